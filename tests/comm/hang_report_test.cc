// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/hang_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "support/status_matchers.h"

namespace ait {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::StatusIs;
using Presence = RankReport::Presence;

ReportedOperation AllReduce(std::uint64_t sequence, std::int64_t count = 1024) {
  return {.sequence = sequence,
          .kind = "all-reduce",
          .reduce = "sum",
          .dtype = "float32",
          .count = count,
          .label = "bucket 7",
          .state = "waiting",
          .age = 6000ms};
}

/// A rank of four that waits in the all-reduce with number 42.
RankReport Waiting(int rank) {
  RankReport report{.rank = Rank(rank),
                    .is_known = true,
                    .host = "node",
                    .pid = 1000 + rank,
                    .step = 812,
                    .phase = "backward",
                    .age = 6000ms};
  report.groups.push_back({.name = "world",
                           .members = {Rank(0), Rank(1), Rank(2), Rank(3)},
                           .issued = 42,
                           .finished = 41,
                           .current = AllReduce(42)});
  return report;
}

/// A rank that has not come to it.
RankReport Elsewhere(int rank) {
  RankReport report = Waiting(rank);
  report.step = 812;
  report.phase = "data";
  report.age = 14000ms;
  report.groups[0].issued = 41;
  report.groups[0].current.reset();
  return report;
}

std::vector<RankReport> Ranks(RankReport last) {
  return {Waiting(0), Waiting(1), Waiting(2), std::move(last)};
}

TEST(HangReport, NamesTheRankThatIsMissingAndWhereItIs) {
  const HangVerdict verdict = Judge(Ranks(Elsewhere(3)));
  EXPECT_EQ(verdict.cause, HangCause::kMissing);
  EXPECT_THAT(verdict.ranks, ElementsAre(Rank(3)));
  EXPECT_EQ(verdict.group, "world");
  EXPECT_EQ(verdict.operation, "all-reduce (sum) of 1024 float32, sequence 42, bucket 7");
  EXPECT_THAT(verdict.text,
              AllOf(HasSubstr("all-reduce (sum) of 1024 float32"),
                    HasSubstr("rank 3 (pid 1003 on node) is missing"),
                    HasSubstr("step 812, data, for 14 s"), HasSubstr("last finished sequence 41")));
}

TEST(HangReport, TellsARankThatDoesNotAnswerFromOneThatIsElsewhere) {
  RankReport stopped = Elsewhere(3);
  stopped.presence = Presence::kSilent;
  const HangVerdict verdict = Judge(Ranks(stopped));
  EXPECT_EQ(verdict.cause, HangCause::kSilent);
  EXPECT_THAT(verdict.text, AllOf(HasSubstr("does not answer"), HasSubstr("step 812, data")));
  stopped.is_known = false;
  EXPECT_THAT(Judge(Ranks(stopped)).text,
              AllOf(HasSubstr("rank 3 does not answer"), Not(HasSubstr("last seen"))));
}

TEST(HangReport, ADeathExplainsTheRest) {
  RankReport dead = Elsewhere(2);
  dead.presence = Presence::kDied;
  const HangVerdict verdict = Judge({Waiting(0), Waiting(1), std::move(dead), Elsewhere(3)});
  EXPECT_EQ(verdict.cause, HangCause::kDied);
  EXPECT_THAT(verdict.ranks, ElementsAre(Rank(2)));
  EXPECT_THAT(verdict.text, HasSubstr("rank 2 (pid 1002 on node) died"));
}

TEST(HangReport, NamesTheFieldsInWhichRanksDiffer) {
  const auto differ = [](auto change) {
    RankReport other = Waiting(3);
    change(*other.groups[0].current);
    const HangVerdict verdict = Judge(Ranks(std::move(other)));
    EXPECT_EQ(verdict.cause, HangCause::kMismatch);
    EXPECT_THAT(verdict.ranks, ElementsAre(Rank(3)));
    return verdict.text;
  };
  EXPECT_THAT(differ([](ReportedOperation& o) { o.count = 1025; }),
              AllOf(HasSubstr("of 1024 "), HasSubstr("of 1025 "), HasSubstr("differs in count)")));
  EXPECT_THAT(differ([](ReportedOperation& o) { o.dtype = "float64"; }),
              HasSubstr("differs in dtype)"));
  EXPECT_THAT(differ([](ReportedOperation& o) { o.reduce = "max"; }),
              HasSubstr("differs in reduction)"));
  EXPECT_THAT(differ([](ReportedOperation& o) { o.parts_hash = 5; }),
              HasSubstr("differs in parts)"));
  EXPECT_THAT(differ([](ReportedOperation& o) {
                o.kind = "broadcast";
                o.reduce = "";
              }),
              HasSubstr("differs in kind)"));
}

TEST(HangReport, ARankThatIsAheadHasPassedOverTheOperation) {
  RankReport ahead = Waiting(3);
  ahead.groups[0].issued = 43;
  ahead.groups[0].current->sequence = 43;
  const HangVerdict verdict = Judge(Ranks(std::move(ahead)), Rank(0));
  EXPECT_EQ(verdict.cause, HangCause::kMismatch);
  EXPECT_THAT(verdict.text, HasSubstr("differs in sequence)"));
}

TEST(HangReport, ARankThatHasDoneItIsNotToBlame) {
  RankReport done = Waiting(3);
  done.groups[0].finished = 42;
  done.groups[0].current.reset();
  EXPECT_EQ(Judge(Ranks(std::move(done))).cause, HangCause::kSlow);
}

TEST(HangReport, AMissingRankMayWaitInAnotherGroup) {
  RankReport elsewhere = Elsewhere(3);
  elsewhere.groups.push_back({.name = "world/1.2",
                              .members = {Rank(2), Rank(3)},
                              .issued = 5,
                              .finished = 4,
                              .current = AllReduce(5)});
  elsewhere.groups.back().current->age = 1ms;
  const HangVerdict verdict = Judge(Ranks(std::move(elsewhere)));
  EXPECT_EQ(verdict.cause, HangCause::kMissing);
  EXPECT_THAT(verdict.text, HasSubstr("it waits in all-reduce"));
  EXPECT_THAT(verdict.text, HasSubstr("of group world/1.2"));
}

TEST(HangReport, AMessageWaitsForItsPeer) {
  RankReport receiver = Elsewhere(0);
  receiver.groups[0].current = ReportedOperation{.kind = "receive",
                                                 .dtype = "int32",
                                                 .count = 4,
                                                 .peer = 2,
                                                 .tag = 9,
                                                 .state = "waiting",
                                                 .age = 6000ms};
  const HangVerdict verdict = Judge({receiver, Elsewhere(1), Elsewhere(2), Elsewhere(3)});
  EXPECT_EQ(verdict.cause, HangCause::kMissing);
  EXPECT_THAT(verdict.ranks, ElementsAre(Rank(2)));
  EXPECT_THAT(verdict.text, HasSubstr("receive of 4 int32 from rank 2, tag 9"));
}

TEST(HangReport, FailuresThatFollowFromOthersDoNotSpeakFirst) {
  std::vector<RankReport> reports = Ranks(Elsewhere(3));
  for (RankReport& report : reports) {
    if (!report.groups[0].current) continue;
    report.groups[0].current->state = "failed";
    report.groups[0].current->code = "ABORTED";
    report.groups[0].current->age = 9000ms;
  }
  reports[1].groups[0].current->code = "RESOURCE_EXHAUSTED";
  reports[1].groups[0].current->age = 10ms;
  reports[1].failure = "rank 1: no memory";
  reports[3] = Waiting(3);
  reports[3].groups[0].current->state = "failed";
  reports[3].groups[0].current->code = "ABORTED";
  const HangVerdict verdict = Judge(reports);
  EXPECT_EQ(verdict.cause, HangCause::kFailed);
  EXPECT_THAT(verdict.text, HasSubstr("no memory"));
}

TEST(HangReport, NothingIsWrongWhereNobodyWaits) {
  EXPECT_EQ(Judge({Elsewhere(0), Elsewhere(1)}).cause, HangCause::kNone);
  EXPECT_EQ(Judge({}).cause, HangCause::kNone);
  EXPECT_EQ(Judge(Ranks(Elsewhere(3)), Rank(3)).cause, HangCause::kNone);
}

TEST(HangReport, TravelsAsText) {
  RankReport report = Waiting(3);
  report.failure = "two\nlines\tand a tab";
  report.groups.push_back({.name = "world/1.0", .members = {Rank(3)}, .closed = true});
  ASSERT_OK_AND_ASSIGN(const RankReport back, RankReport::Parse(report.Serialize()));
  EXPECT_EQ(back.rank, Rank(3));
  EXPECT_EQ(back.host, "node");
  EXPECT_EQ(back.pid, 1003);
  EXPECT_EQ(back.step, 812);
  EXPECT_EQ(back.phase, "backward");
  EXPECT_EQ(back.age, 6000ms);
  EXPECT_EQ(back.failure, "two lines and a tab");
  ASSERT_EQ(back.groups.size(), 2u);
  EXPECT_EQ(back.groups[0].members.size(), 4u);
  EXPECT_EQ(back.groups[0].current->Describe(), report.groups[0].current->Describe());
  EXPECT_EQ(back.groups[0].current->age, 6000ms);
  EXPECT_TRUE(back.groups[1].closed);
  EXPECT_FALSE(back.groups[1].current.has_value());
}

TEST(HangReport, DamagedTextIsRefused) {
  const std::string text = Waiting(3).Serialize();
  for (std::size_t length = 0; length < text.size(); ++length) {
    // Whatever comes back, it comes back.
    RankReport::Parse(text.substr(0, length)).status().IgnoreError();
  }
  EXPECT_THAT(RankReport::Parse(""), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(RankReport::Parse("rank\tx\t"), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(RankReport::Parse("noise\n"), StatusIs(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace ait
