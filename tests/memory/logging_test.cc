// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/logging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/memory/limit.h"
#include "ait/memory/statistics.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using enum AllocationEventKind;

struct Log {
  std::vector<AllocationEvent> events;
  std::shared_ptr<LoggingResource> memory;

  explicit Log(MemoryHandle upstream = HeapResource::Create())
      : memory(LoggingResource::Create(
            std::move(upstream),
            {.writer = [this](const AllocationEvent& event) { events.push_back(event); }})) {}
};

TEST(LoggingResource, ReportsEachCallWithWhatCameOfIt) {
  const Log log(LimitResource::Create(HeapResource::Create(), {.limit = Bytes(1000)}).value());
  void* const block = log.memory->Allocate(1000, 256).value();
  EXPECT_FALSE(log.memory->Allocate(1).ok());
  log.memory->Deallocate(block, 1000, 256);
  ASSERT_EQ(log.events.size(), 3u);
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const auto expect = [&](const AllocationEvent& event, AllocationEvent expected) {
    expected.time = event.time;
    expected.thread = gettid();
    EXPECT_EQ(event, expected) << ToCsv(event) << ToCsv(expected);
  };
  expect(log.events[0], {.kind = kAllocate, .address = address, .bytes = 1000, .alignment = 256});
  expect(
      log.events[1],
      {.kind = kAllocate, .bytes = 1, .alignment = 128, .result = StatusCode::kResourceExhausted});
  expect(log.events[2], {.kind = kDeallocate, .address = address, .bytes = 1000, .alignment = 256});
  EXPECT_LE(log.events[0].time, log.events[1].time);
  EXPECT_LE(log.events[1].time, log.events[2].time);
}

TEST(LoggingResource, WritesLinesToASinkAndFailuresAsWarnings) {
  class Sink final : public LogSink {
   public:
    void Write(Severity severity, std::string_view component, std::string_view message) override {
      lines.push_back(StrCat(Name(severity), " ", component, " ", message));
    }
    std::vector<std::string> lines;
  } sink;
  const auto memory = LoggingResource::Create(
      LimitResource::Create(HeapResource::Create(), {.limit = Bytes(10)}).value(), {.log = &sink});
  memory->Deallocate(memory->Allocate(10).value(), 10);
  EXPECT_FALSE(memory->Allocate(11).ok());
  EXPECT_THAT(sink.lines,
              ElementsAre(HasSubstr(",10,128,OK"), HasSubstr(",deallocate,0x"),
                          AllOf(HasSubstr("warning memory "),
                                HasSubstr(",allocate,0x0,11,128,RESOURCE_EXHAUSTED: cannot "))));
}

TEST(LoggingResource, TheWriterMayUseTheResource) {
  std::shared_ptr<LoggingResource> memory;
  int events = 0;
  memory = LoggingResource::Create(HeapResource::Create(), {.writer = [&](const AllocationEvent&) {
                                     ++events;
                                     EXPECT_OK(HostBuffer::Create(memory, 64));
                                   }});
  memory->Deallocate(memory->Allocate(10).value(), 10);
  EXPECT_EQ(events, 2);
}

TEST(AllocationFormats, AreAsDocumented) {
  const AllocationEvent event = {.time = std::chrono::nanoseconds(1234),
                                 .thread = 56,
                                 .kind = kDeallocate,
                                 .address = 0x7f00abc0,
                                 .bytes = 789,
                                 .alignment = 128};
  EXPECT_EQ(AllocationCsvHeader(), "time_ns,thread,event,address,bytes,alignment,result\n");
  EXPECT_EQ(ToCsv(event), "1234,56,deallocate,0x7f00abc0,789,128,OK\n");
  EXPECT_EQ(ToJson(event),
            "{\"time_ns\":1234,\"thread\":56,\"event\":\"deallocate\",\"address\":\"0x7f00abc0\","
            "\"bytes\":789,\"alignment\":128,\"result\":\"OK\"}\n");
}

TEST(ParseAllocationCsv, ReadsWhatWasWritten) {
  const std::vector<AllocationEvent> events = {
      {.time = std::chrono::nanoseconds(1),
       .thread = 2,
       .address = UINT64_MAX,
       .bytes = SIZE_MAX,
       .alignment = 128},
      {.kind = kDeallocate, .result = StatusCode::kOk},
      {.bytes = 5, .result = StatusCode::kResourceExhausted},
  };
  std::string text = AllocationCsvHeader();
  for (const AllocationEvent& event : events) text += ToCsv(event);
  ASSERT_OK_AND_ASSIGN(const std::vector<AllocationEvent> read, ParseAllocationCsv(text));
  EXPECT_EQ(read, events);
  text.pop_back();
  EXPECT_EQ(ParseAllocationCsv(text).value(), events) << "the last newline is not needed";
  EXPECT_TRUE(ParseAllocationCsv("").value().empty());
}

TEST(ParseAllocationCsv, NamesTheLineThatIsSomethingElse) {
  for (const char* line :
       {"1,2,allocate,0x1,5,128", "1,2,allocate,0x1,5,128,OK,1", "1,2,allocate,1,5,128,OK",
        "1,2,move,0x1,5,128,OK", "1,2,allocate,0x1,-5,128,OK", "1,2,allocate,0x1,5,128,FINE",
        ",,,,,,", "99999999999999999999,2,allocate,0x1,5,128,OK"}) {
    EXPECT_THAT(
        ParseAllocationCsv(StrCat("1,2,allocate,0x1,5,128,OK\n", line, "\n")),
        StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("line 2"), HasSubstr(line))));
  }
}

TEST(ReplayAllocations, MakesTheSameCallsThatSeveralThreadsMade) {
  Log log;
  {
    std::vector<std::jthread> threads;
    for (unsigned seed = 0; seed < 4; ++seed) {
      threads.emplace_back([&, seed] {
        std::mt19937 random(seed);
        std::vector<HostBuffer> held;
        for (int i = 0; i < 500; ++i) {
          if (held.size() == 8) held.erase(held.begin() + random() % 8);
          held.push_back(HostBuffer::Create(log.memory, 1 + random() % 10'000).value());
        }
      });
    }
  }
  std::string text;
  for (const AllocationEvent& event : log.events) text += ToCsv(event);
  ASSERT_OK_AND_ASSIGN(const auto events, ParseAllocationCsv(text));
  const auto counted = StatisticsResource::Create(HeapResource::Create());
  ASSERT_OK_AND_ASSIGN(const ReplayResult result, ReplayAllocations(events, counted));
  EXPECT_EQ(result.allocations, 2000);
  EXPECT_EQ(result.deallocations, 2000);
  EXPECT_EQ(result.failures, 0);
  EXPECT_EQ(result.left_count, 0);
  EXPECT_EQ(counted->statistics().total_count, 2000);
  EXPECT_EQ(counted->statistics().peak_bytes, result.peak_bytes);
  EXPECT_EQ(counted->statistics().current_count, 0);
}

TEST(ReplayAllocations, CountsWhatFailsNowAndWhatIsLeft) {
  const std::vector<AllocationEvent> events = {
      {.address = 0x1000, .bytes = 600, .alignment = 128},
      {.address = 0x2000, .bytes = 600, .alignment = 128},
      {.bytes = 600, .alignment = 128, .result = StatusCode::kResourceExhausted},
      {.kind = kDeallocate, .address = 0x2000, .bytes = 600, .alignment = 128},
  };
  const auto limited =
      LimitResource::Create(HeapResource::Create(), {.limit = Bytes(1000)}).value();
  ASSERT_OK_AND_ASSIGN(const ReplayResult result, ReplayAllocations(events, limited));
  EXPECT_EQ(result.allocations, 1);
  EXPECT_EQ(result.failures, 1);
  EXPECT_EQ(result.deallocations, 0);
  EXPECT_EQ(result.left_count, 1);
  EXPECT_EQ(result.peak_bytes, 600);
  EXPECT_EQ(limited->held(), Bytes(0)) << "the replay gives all back";
}

TEST(ReplayAllocations, RefusesLogsThatCannotBe) {
  const auto limited =
      LimitResource::Create(HeapResource::Create(), {.limit = Bytes(1000)}).value();
  const AllocationEvent taken = {.address = 0x1000, .bytes = 10, .alignment = 128};
  const AllocationEvent freed = {
      .kind = kDeallocate, .address = 0x1000, .bytes = 10, .alignment = 128};
  AllocationEvent less = freed;
  less.bytes = 9;
  const auto replay = [&](std::vector<AllocationEvent> events) {
    return ReplayAllocations(events, limited).status();
  };
  EXPECT_THAT(replay({taken, freed, freed}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("0x1000, which are not out")));
  EXPECT_THAT(replay({taken, less}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("where 10 are out")));
  EXPECT_THAT(replay({taken, taken}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("while it is out")));
  EXPECT_EQ(limited->held(), Bytes(0));
}

}  // namespace
}  // namespace ait
