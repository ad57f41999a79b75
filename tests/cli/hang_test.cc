// SPDX-License-Identifier: Apache-2.0
// `ait hang`: the verdict over records that ranks left, real ones of ranks as threads and made-up
// ones of what cannot be made to happen here. The reasoning is tested in tests/comm/hang_report_test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <latch>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "ait/comm/flight_recorder.h"
#include "ait/comm/thread_group.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Ranks = std::vector<std::shared_ptr<Communicator>>;

Exit Hang(const std::string& directory) {
  return Process::Spawn({.program = AIT_PROGRAM, .args = {"hang", directory}}).Wait();
}

/// Runs `body` on every rank, each on a thread.
void OnAll(const Ranks& ranks, const std::function<void(Communicator&, int)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] { body(*ranks[rank], static_cast<int>(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
}

void Dump(const Ranks& ranks, const std::string& directory) {
  for (const auto& rank : ranks) EXPECT_OK(rank->recorder().DumpToDirectory(directory));
}

/// The record of a rank, to be changed by a test.
nlohmann::json Record(const std::string& directory, int rank) {
  std::ifstream file(directory + "/rank-" + std::to_string(rank) + ".json");
  return nlohmann::json::parse(file);
}

void Write(const std::string& directory, int rank, const nlohmann::json& record) {
  std::ofstream(directory + "/rank-" + std::to_string(rank) + ".json") << record;
}

TEST(AitHang, ARunThatWentWellHasNothingToTell) {
  const TempDir directory;
  const Ranks ranks = MakeThreadGroup(WorldSize(3));
  OnAll(ranks, [](Communicator& rank, int) { EXPECT_OK(rank.Barrier().Wait()); });
  Dump(ranks, directory.path());
  const Exit exit = Hang(directory.path());
  EXPECT_EQ(exit.code, 0);
  EXPECT_THAT(exit.output, StartsWith("nothing is wrong: no rank waits for another"));
  EXPECT_THAT(exit.output, HasSubstr("group world: called 1, finished 1"));
}

TEST(AitHang, NamesTheRankThatWasMissingWhenTheOthersGaveUp) {
  const TempDir directory;
  const Ranks ranks = MakeThreadGroup(WorldSize(3));
  std::latch given_up(2);
  OnAll(ranks, [&](Communicator& rank, int number) {
    std::vector<float> x(64);
    EXPECT_OK(rank.Barrier().Wait());
    rank.Note(812, number == 1 ? "data" : "reduce");
    if (number == 1) {
      given_up.wait();  // comes when the run is over
      std::this_thread::sleep_for(2ms);
      rank.Note(812, "reduce");
    }
    const Work work =
        rank.AllReduce(View(x), ReduceOp::kSum, {.timeout = 200ms, .label = "bucket 7"});
    EXPECT_FALSE(work.Wait().ok());
    if (number != 1) given_up.count_down();
  });
  Dump(ranks, directory.path());
  const Exit exit = Hang(directory.path());
  EXPECT_EQ(exit.code, 3);
  EXPECT_THAT(exit.output,
              AllOf(StartsWith("missing: all-reduce (sum) of 64 float32, sequence 2, bucket 7"),
                    HasSubstr("rank 1 (pid "), HasSubstr("is missing: last seen at step 812, data"),
                    HasSubstr("last finished sequence 1"), HasSubstr("next: on "),
                    HasSubstr("gdb -p "), HasSubstr("(DEADLINE_EXCEEDED)")));
}

TEST(AitHang, ShowsBothSidesOfAMismatchAndTheFields) {
  const TempDir directory;
  const Ranks ranks = MakeThreadGroup(WorldSize(3));
  OnAll(ranks, [](Communicator& rank, int number) {
    std::vector<float> x(64);
    EXPECT_FALSE(rank.AllReduce(View(x).Slice(0, number == 2 ? 63 : 64), ReduceOp::kSum,
                                {.label = number == 2 ? "head" : "body"})
                     .Wait()
                     .ok());
  });
  Dump(ranks, directory.path());
  const Exit exit = Hang(directory.path());
  EXPECT_EQ(exit.code, 3);
  EXPECT_THAT(exit.output,
              AllOf(StartsWith("mismatch: "), HasSubstr("in group world (count): rank 0: "),
                    HasSubstr("of 64 float32, sequence 1, body; rank 2: all-reduce (sum) of 63 "
                              "float32, sequence 1, head")));
}

TEST(AitHang, ARankWithoutARecordWasSeenToDieOrIsSilent) {
  const TempDir directory;
  Ranks ranks = MakeThreadGroup(WorldSize(3));
  ranks[2].reset();
  ranks.pop_back();
  OnAll(ranks, [](Communicator& rank, int) { EXPECT_FALSE(rank.Barrier().Wait().ok()); });
  Dump(ranks, directory.path());
  Exit exit = Hang(directory.path());
  EXPECT_EQ(exit.code, 3);
  EXPECT_THAT(exit.output, AllOf(StartsWith("does not answer: "), HasSubstr("rank 2"),
                                 HasSubstr("rank 2: no record"), HasSubstr("left no record")));
  for (const char* told : {"rank 2 died", "rank 2 has died (rank 2 has finished nothing yet)"}) {
    nlohmann::json record = Record(directory.path(), 0);
    record["failure"] = StrCat("rank 0: barrier, sequence 1: ", told);
    Write(directory.path(), 0, record);
    exit = Hang(directory.path());
    EXPECT_THAT(exit.output, AllOf(StartsWith("died: "), HasSubstr("rank 2 died"),
                                   HasSubstr("rank 2: died, no record"), HasSubstr("dmesg")));
  }
}

TEST(AitHang, FindsTheRankThatComesLast) {
  const TempDir directory;
  const Ranks ranks = MakeThreadGroup(WorldSize(2));
  OnAll(ranks, [](Communicator& rank, int) {
    for (int i = 0; i < 8; ++i) EXPECT_OK(rank.Barrier().Wait());
  });
  Dump(ranks, directory.path());
  nlohmann::json record = Record(directory.path(), 1);
  for (nlohmann::json& operation : record["operations"]) {
    operation["issued_us"] = operation["issued_us"].get<std::int64_t>() + 35000;
  }
  Write(directory.path(), 1, record);
  EXPECT_THAT(Hang(directory.path()).output, HasSubstr("before that, rank 1 comes last: 3"));
}

TEST(AitHang, TellsWhatItCouldNotRead) {
  const TempDir directory;
  const Ranks ranks = MakeThreadGroup(WorldSize(2));
  Dump(ranks, directory.path());
  std::ofstream(directory / "rank-1.json") << "{\"format\":\"ait-flight-1\",\"rank\":1,";
  Exit exit = Hang(directory.path());
  EXPECT_EQ(exit.code, 0);
  EXPECT_THAT(exit.output, AllOf(HasSubstr("not read: "), HasSubstr("rank-1.json is not a whole")));
  // Fields of a wrong type, absurd numbers: no crash.
  Write(directory.path(), 1,
        {{"format", "ait-flight-1"},
         {"rank", 1},
         {"size", 2},
         {"operations", {{{"sequence", "x"}, {"count", -1}}, 7}},
         {"groups", "none"},
         {"notes", nullptr}});
  EXPECT_EQ(Hang(directory.path()).code, 0);
}

TEST(AitHang, WithoutRecordsItSaysHowToGetThem) {
  const TempDir directory;
  const Exit exit = Hang(directory.path());
  EXPECT_EQ(exit.code, 1);
  EXPECT_THAT(exit.output, AllOf(HasSubstr(directory.path()), HasSubstr("AIT_FLIGHT_DIRECTORY")));
  EXPECT_EQ(Hang(directory / "nothing").code, 1);
  EXPECT_EQ(Process::Spawn({.program = AIT_PROGRAM, .args = {"hang"}}).Wait().code, 2);
  Process::Spawn({.program = AIT_PROGRAM, .args = {"hang", "--help"}}).ExpectExit(0, "Exit codes");
}

}  // namespace
}  // namespace ait::testing
