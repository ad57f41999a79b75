// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/flight_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "ait/comm/communicator.h"
#include "ait/comm/hang_report.h"
#include "ait/comm/thread_group.h"
#include "ait/comm/transport.h"
#include "comm/work_internal.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::StatusIs;

/// Rank 1 of 3; operations end when the test says so.
class HeldTransport final : public Transport {
 public:
  std::string_view name() const override { return "held"; }
  Rank rank() const override { return Rank(1); }
  WorldSize size() const override { return WorldSize(3); }
  Work Start(Operation) override {
    works->push_back(std::make_shared<internal::WorkState>());
    return Work(works->back());
  }
  StatusOr<std::unique_ptr<Transport>> Subgroup(std::span<const Rank>, std::uint64_t,
                                                Deadline) override {
    return std::make_unique<HeldTransport>();
  }
  void Abort(const Status&) override {}

  using Works = std::vector<std::shared_ptr<internal::WorkState>>;
  std::shared_ptr<Works> works = std::make_shared<Works>();
};

struct Held {
  explicit Held(FlightRecorderOptions options = {.rank = Rank(1), .size = WorldSize(3)})
      : recorder(std::make_shared<FlightRecorder>(std::move(options))) {
    auto transport = std::make_unique<HeldTransport>();
    works = transport->works;
    communicator = std::make_unique<Communicator>(std::move(transport),
                                                  CommunicatorOptions{.recorder = recorder});
  }
  void Finish(std::size_t i, Status status = OkStatus()) {
    EXPECT_TRUE((*works)[i]->Finish(std::move(status)));
  }

  std::shared_ptr<FlightRecorder> recorder;
  std::shared_ptr<HeldTransport::Works> works;
  std::unique_ptr<Communicator> communicator;
  std::vector<float> x = std::vector<float>(8);
};

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
}

TEST(FlightRecorder, HoldsWhatWasCalledAndHowItEnded) {
  Held held;
  held.communicator->Note(812, "backward");
  const Work reduce =
      held.communicator->AllReduce(View(held.x), ReduceOp::kMax, {.label = "bucket 3"});
  const Work barrier = held.communicator->Barrier();
  const Work send = held.communicator->Send(View(held.x), Rank(2), 9);
  held.Finish(0);
  held.Finish(1, AbortedError("a peer is gone"));
  EXPECT_THAT(barrier.Wait(), StatusIs(StatusCode::kAborted));

  const std::vector<FlightRecord> records = held.recorder->Records();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].number, 1u);
  EXPECT_EQ(records[0].sequence, 1u);
  EXPECT_EQ(records[0].kind, OperationKind::kAllReduce);
  EXPECT_EQ(records[0].reduce, ReduceOp::kMax);
  EXPECT_EQ(records[0].count, 8);
  EXPECT_STREQ(records[0].label, "bucket 3");
  EXPECT_EQ(records[0].step, 812);
  EXPECT_STREQ(records[0].phase, "backward");
  EXPECT_EQ(records[0].state, FlightState::kDone);
  EXPECT_LE(records[0].issued, records[0].finished);
  EXPECT_EQ(records[1].state, FlightState::kFailed);
  EXPECT_EQ(records[1].code, StatusCode::kAborted);
  EXPECT_EQ(records[2].state, FlightState::kWaiting);
  EXPECT_EQ(records[2].sequence, 0u);
  EXPECT_EQ(records[2].peer, 2);
  EXPECT_EQ(records[2].tag, 9u);
  ASSERT_EQ(held.recorder->Outstanding().size(), 1u);
  EXPECT_EQ(held.recorder->Outstanding()[0].number, 3u);
}

TEST(FlightRecorder, WritesDownAnOperationThatIsRefusedAndOneThatIsOverAtOnce) {
  auto recorder = std::make_shared<FlightRecorder>();
  auto alone = MakeThreadGroup(WorldSize(1), {.recorder = recorder}).front();
  std::vector<float> x(4);
  EXPECT_OK(alone->AllReduce(View(x), ReduceOp::kSum).Wait());
  EXPECT_THAT(alone->Broadcast(View(x), Rank(7)).Wait(), StatusIs(StatusCode::kInvalidArgument));
  const std::vector<FlightRecord> records = recorder->Records();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].state, FlightState::kDone);
  EXPECT_EQ(records[1].state, FlightState::kFailed);
  EXPECT_EQ(records[1].peer, 7);
  EXPECT_TRUE(recorder->Outstanding().empty());
}

TEST(FlightRecorder, KeepsTheLastOnes) {
  auto recorder = std::make_shared<FlightRecorder>(FlightRecorderOptions{.capacity = 20});
  auto alone = MakeThreadGroup(WorldSize(1), {.recorder = recorder}).front();
  for (int i = 0; i < 100; ++i) EXPECT_OK(alone->Barrier().Wait());
  const std::vector<FlightRecord> records = recorder->Records();
  ASSERT_EQ(records.size(), 32u) << "a power of two";
  EXPECT_EQ(records.front().number, 69u);
  EXPECT_EQ(records.back().number, 100u);
}

TEST(FlightRecorder, AnOperationThatNewerOnesHavePushedOutMayStillEnd) {
  Held held({.capacity = 16, .rank = Rank(1), .size = WorldSize(3)});
  for (int i = 0; i < 40; ++i) held.communicator->Barrier().Cancel();
  for (std::size_t i = 0; i < 40; ++i) held.Finish(i);
  for (const FlightRecord& record : held.recorder->Records())
    EXPECT_EQ(record.state, FlightState::kDone);
  EXPECT_TRUE(held.recorder->Outstanding().empty());
}

TEST(FlightRecorder, GroupsOfASplitShareItUnderNamesThatAllMembersKnow) {
  auto ranks = MakeThreadGroup(WorldSize(4));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      const auto half = ranks[r]->Split(static_cast<int>(r % 2), 0);
      ASSERT_OK(half.status());
      EXPECT_OK((*half)->Barrier().Wait());
      EXPECT_EQ(&(*half)->recorder(), &ranks[r]->recorder());
      const RankReport report = ranks[r]->recorder().Report();
      ASSERT_EQ(report.groups.size(), 2u);
      EXPECT_EQ(report.groups[0].name, "world");
      EXPECT_EQ(report.groups[1].name, r % 2 == 0 ? "world/1.0" : "world/1.1");
      const int first = static_cast<int>(r % 2);
      EXPECT_THAT(report.groups[1].members, ElementsAre(Rank(first), Rank(first + 2)));
      EXPECT_EQ(report.groups[1].finished, 1u);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(FlightRecorder, AClosedGroupIsForgottenInTheEnd) {
  auto recorder = std::make_shared<FlightRecorder>();
  for (int i = 0; i < 1000; ++i) recorder->AddGroup(StrCat("group ", i), {Rank(0)});
  const auto json = nlohmann::json::parse(recorder->ToJson());
  EXPECT_EQ(json["groups"].size(), 0u);
}

TEST(FlightRecorder, TheReportTellsTheFirstThatIsNotDone) {
  Held held;
  held.communicator->Note(3, "reduce");
  const Work first = held.communicator->Barrier();
  const Work second =
      held.communicator->Broadcast(View(held.x), Rank(2), {.label = "weights\tof a\nlayer"});
  const Work third = held.communicator->Barrier();
  held.Finish(0);
  const RankReport report = held.recorder->Report();
  EXPECT_EQ(report.rank, Rank(1));
  EXPECT_EQ(report.step, 3);
  EXPECT_EQ(report.phase, "reduce");
  EXPECT_GT(report.pid, 0);
  ASSERT_EQ(report.groups.size(), 1u);
  EXPECT_EQ(report.groups[0].issued, 3u);
  EXPECT_EQ(report.groups[0].finished, 1u);
  ASSERT_TRUE(report.groups[0].current.has_value());
  EXPECT_EQ(report.groups[0].current->sequence, 2u);
  EXPECT_EQ(report.groups[0].current->state, "waiting");
  held.Finish(1, UnavailableError("rank 2 died"));
  held.Finish(2, AbortedError("the group ended"));
  const RankReport after = held.recorder->Report();
  EXPECT_EQ(after.groups[0].current->sequence, 2u);
  EXPECT_EQ(after.groups[0].current->code, "UNAVAILABLE");
  EXPECT_THAT(after.failure, HasSubstr("rank 2 died"));
}

TEST(FlightRecorder, AnExplanationGoesIntoTheErrorOfADeadlineAlone) {
  Held held;
  const Work late = held.communicator->Barrier();
  const Work dead = held.communicator->Barrier();
  held.recorder->Explain(1, "rank 2 sleeps");
  held.recorder->Explain(2, "rank 2 sleeps");
  held.Finish(0, DeadlineExceededError("the deadline passed"));
  held.Finish(1, UnavailableError("rank 2 died"));
  EXPECT_THAT(late.Wait(), StatusIs(StatusCode::kDeadlineExceeded,
                                    "the deadline passed; hang report: rank 2 sleeps"));
  EXPECT_THAT(dead.Wait(), StatusIs(StatusCode::kUnavailable, "rank 2 died"));
}

TEST(FlightRecorder, ItsFileIsJsonWhateverLabelsHold) {
  Held held;
  held.communicator->Note(5, "data");
  const Work one = held.communicator->AllReduce(
      View(held.x), ReduceOp::kSum, {.label = "a \"quoted\" \\ label\n\x01 of \xc3\xa9\xff"});
  // The cut falls into the middle of a character.
  const Work two = held.communicator->Barrier({.label = std::string(46, 'x') + "\xc3\xa9"});
  const Work three = held.communicator->Gather({nullptr, 1, static_cast<DType>(77)}, {}, Rank(0));
  const testing::TempDir directory;
  ASSERT_OK(held.recorder->DumpToDirectory(directory / "made"));
  const nlohmann::json file = ReadJson(directory / "made/rank-1.json");
  ASSERT_TRUE(file.is_object());
  EXPECT_EQ(file["format"], "ait-flight-1");
  EXPECT_EQ(file["rank"], 1);
  EXPECT_EQ(file["size"], 3);
  EXPECT_EQ(file["step"], 5);
  EXPECT_EQ(file["phase"], "data");
  EXPECT_EQ(file["notes"].size(), 1u);
  ASSERT_EQ(file["operations"].size(), 3u);
  EXPECT_EQ(file["operations"][0]["label"], "a \"quoted\" \\ label\n\x01 of \xc3\xa9?");
  EXPECT_EQ(file["operations"][0]["state"], "waiting");
  EXPECT_TRUE(file["operations"][0]["finished_us"].is_null());
  EXPECT_GT(file["operations"][0]["issued_us"], 1e15);
  EXPECT_EQ(file["operations"][1]["label"], std::string(46, 'x') + "?");
  EXPECT_EQ(file["operations"][2]["dtype"], "type number 77");
}

TEST(FlightRecorder, TheFirstFailureLeavesAFileAndTheEndANewerOne) {
  const testing::TempDir directory;
  {
    Held held({.rank = Rank(1), .size = WorldSize(3), .directory = directory / "flight"});
    const Work barrier = held.communicator->Barrier();
    EXPECT_OK(held.recorder->Dump());
    EXPECT_EQ(ReadJson(directory / "flight/rank-1.json")["failure"], "");
    held.Finish(0, UnavailableError("rank 2 died"));
    EXPECT_OK(held.recorder->Dump());
    const Work later = held.communicator->Barrier();
    held.Finish(1, AbortedError("the group ended"));
  }
  const nlohmann::json file = ReadJson(directory / "flight/rank-1.json");
  EXPECT_EQ(file["failure"], "rank 2 died");
  EXPECT_EQ(file["operations"].size(), 2u);
}

TEST(FlightRecorder, ARefusedCallIsNoFailureAndEveryGroupThatFailsLeavesAFile) {
  const testing::TempDir directory;
  const auto recorder = std::make_shared<FlightRecorder>(FlightRecorderOptions{
      .rank = Rank(1), .size = WorldSize(3), .directory = directory / "flight"});
  const auto ends_with = [&](const char* text) {
    for (int i = 0; i < 2000; ++i) {  // a thread writes it
      const nlohmann::json file = ReadJson(directory / "flight/rank-1.json");
      if (file.is_object() && file["failure"] == text) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  };
  auto alone = MakeThreadGroup(WorldSize(1), {.recorder = recorder}).front();
  std::vector<float> x(4);
  EXPECT_THAT(alone->Broadcast(View(x), Rank(7)).Wait(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(recorder->Report().failure, "");

  const auto child = recorder->AddGroup("child", {Rank(1), Rank(2)});
  const auto world = recorder->AddGroup("world", {Rank(0), Rank(1), Rank(2)});
  child->Fail(CancelledError("taken back"));
  EXPECT_TRUE(ends_with("taken back"));
  world->Fail(UnavailableError("rank 2 died"));
  EXPECT_TRUE(ends_with("rank 2 died"));
  world->Fail(UnavailableError("told again"));
  recorder->AddGroup("other", {Rank(1)})->Fail(AbortedError("the group ended"));
  EXPECT_EQ(recorder->Report().failure, "rank 2 died") << "what the others say tells less";
  recorder->AddGroup("survivors", {Rank(0), Rank(1)})->Fail(UnavailableError("rank 0 died"));
  EXPECT_TRUE(ends_with("rank 0 died"));
}

TEST(FlightRecorder, ARunThatEndsWellLeavesNoFile) {
  const testing::TempDir directory;
  {
    Held held({.rank = Rank(1), .size = WorldSize(3), .directory = directory / "flight"});
    const Work barrier = held.communicator->Barrier();
    held.Finish(0);
    std::vector<float> x(3);
    const Work poll = held.communicator->Receive(View(x), Rank(0));
    held.Finish(1, DeadlineExceededError("nothing came"));  // a program may look again and again
  }
  EXPECT_FALSE(std::ifstream(directory / "flight/rank-1.json").is_open());
}

TEST(FlightRecorder, ADirectoryThatCannotBeMadeIsAnErrorThatNamesIt) {
  const testing::TempDir directory;
  std::ofstream(directory / "file") << "no directory";
  const auto recorder = std::make_shared<FlightRecorder>();
  const Status status = recorder->DumpToDirectory(directory / "file/flight");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Message(status), HasSubstr(directory / "file"));
  EXPECT_THAT(Message(status), HasSubstr("record of rank 0"));
}

TEST(FlightRecorder, AnAbortIsAFailure) {
  const auto recorder = std::make_shared<FlightRecorder>();
  auto alone = MakeThreadGroup(WorldSize(1), {.recorder = recorder}).front();
  alone->Abort(ResourceExhaustedError("the disk is full"));
  EXPECT_EQ(nlohmann::json::parse(recorder->ToJson())["failure"], "the disk is full");
}

TEST(FlightRecorder, IsReadWhileItIsWritten) {
  auto ranks = MakeThreadGroup(WorldSize(2));
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) {
      const auto json = nlohmann::json::parse(ranks[0]->recorder().ToJson(), nullptr, false);
      EXPECT_TRUE(json.is_object());
      ranks[0]->Note(1, "read");
    }
  });
  std::thread peer([&] {
    std::vector<float> x(16);
    for (int i = 0; i < 500; ++i) EXPECT_OK(ranks[1]->AllReduce(View(x), ReduceOp::kSum).Wait());
  });
  std::vector<float> x(16);
  for (int i = 0; i < 500; ++i) EXPECT_OK(ranks[0]->AllReduce(View(x), ReduceOp::kSum).Wait());
  peer.join();
  stop = true;
  reader.join();
  EXPECT_EQ(ranks[0]->recorder().Report().groups.at(0).finished, 500u);
}

}  // namespace
}  // namespace ait
