// SPDX-License-Identifier: Apache-2.0

// The protocol of the shared-memory transport holds in every interleaving; see the model for what
// that means. That the model can find faults is tested too: with any one of the precautions taken
// away it finds what goes wrong, and the steps to it.

#include "comm/shm_protocol_model.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace ait::shm_model {

void PrintTo(const Setting& s, std::ostream* out) {
  constexpr std::string_view kNames[] = {"no fault", "deadline", "abort",
                                         "kill",     "leave",    "absent"};
  *out << s.ranks << " ranks, " << kNames[static_cast<int>(s.fault)]
       << (s.sleeps ? ", sleeping" : ", spinning");
  for (const Kind kind : s.operations) *out << (kind == Kind::kDirect ? ", direct" : ", staged");
}

namespace {

constexpr Fault kFaults[] = {Fault::kNone, Fault::kDeadline, Fault::kAbort,
                             Fault::kKill, Fault::kLeave,    Fault::kAbsent};

/// All sequences of kinds.
std::vector<std::vector<Kind>> Sequences(int length) {
  std::vector<std::vector<Kind>> all(std::size_t{1} << length);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (int k = 0; k < length; ++k) {
      all[i].push_back((i >> k & 1) != 0 ? Kind::kStaged : Kind::kDirect);
    }
  }
  return all;
}

void ExpectRight(const Setting& setting) {
  SCOPED_TRACE(::testing::PrintToString(setting));
  const Exploration exploration = Explore(setting);
  EXPECT_EQ(exploration.fault, "");
  EXPECT_TRUE(exploration.saw_success);
  EXPECT_EQ(exploration.saw_failure, setting.fault != Fault::kNone);
}

TEST(ShmProtocol, HoldsForTwoRanksInEveryOrder) {
  for (const Fault fault : kFaults) {
    for (const auto& operations : Sequences(3)) {
      ExpectRight({.ranks = 2, .operations = operations, .fault = fault, .sleeps = true});
    }
  }
}

TEST(ShmProtocol, HoldsForThreeRanksThatSpinInEveryOrder) {
  for (const Fault fault : kFaults) {
    for (const auto& operations : Sequences(2)) {
      ExpectRight({.ranks = 3, .operations = operations, .fault = fault, .sleeps = false});
    }
  }
}

// Up to a million states each.
TEST(ShmProtocol, HoldsForThreeRanksThatSleepInEveryOrder) {
  using enum Kind;
  ExpectRight({.ranks = 3, .operations = {kDirect}, .fault = Fault::kNone});
  ExpectRight({.ranks = 3, .operations = {kDirect}, .fault = Fault::kDeadline});
  ExpectRight({.ranks = 3, .operations = {kStaged}, .fault = Fault::kAbort});
  ExpectRight({.ranks = 3, .operations = {kDirect}, .fault = Fault::kKill});
  ExpectRight({.ranks = 3, .operations = {kDirect}, .fault = Fault::kLeave});
}

// More than ten million states for an abort: minutes, and gigabytes of memory. For changes of the
// protocol, by --gtest_also_run_disabled_tests.
TEST(ShmProtocol, DISABLED_HoldsForTwoOperationsOfThreeRanksThatSleep) {
  for (const Fault fault : kFaults) {
    for (const auto& operations : Sequences(2)) {
      ExpectRight({.ranks = 3, .operations = operations, .fault = fault});
    }
  }
}

// What happens without a precaution.

void ExpectFault(const Setting& setting, std::string_view what) {
  SCOPED_TRACE(::testing::PrintToString(setting));
  const std::string fault = Explore(setting).fault;
  EXPECT_TRUE(fault.starts_with(what)) << "found: " << fault;
}

constexpr std::string_view kTouches = "a rank touches a buffer that was given back";
constexpr std::string_view kStuck = "nobody can go on";

TEST(ShmProtocol, NeedsTheSecondLookAtBroken) {
  for (const Fault fault : {Fault::kDeadline, Fault::kAbort}) {
    ExpectFault({.fault = fault, .protocol = {.looks_again = false}}, kTouches);
  }
}

TEST(ShmProtocol, NeedsToBecomeQuiet) {
  for (const Fault fault : {Fault::kDeadline, Fault::kAbort}) {
    ExpectFault({.fault = fault, .protocol = {.becomes_quiet = false}}, kTouches);
  }
  // Of three ranks, the death of one is enough.
  ExpectFault({.ranks = 3,
               .operations = {Kind::kDirect},
               .fault = Fault::kKill,
               .sleeps = false,
               .protocol = {.becomes_quiet = false}},
              kTouches);
}

TEST(ShmProtocol, NeedsToWaitForDone) {
  ExpectFault({.sleeps = false, .protocol = {.waits_for_done = false}}, "a result is wrong");
}

TEST(ShmProtocol, NeedsToTellThatARankHasEnded) {
  ExpectFault({.fault = Fault::kDeadline, .protocol = {.tells_ended = false}}, kStuck);
}

TEST(ShmProtocol, NeedsToTryAgainInABrokenGroup) {
  for (const Kind kind : {Kind::kDirect, Kind::kStaged}) {
    for (const Fault fault : {Fault::kDeadline, Fault::kAbort}) {
      ExpectFault({.operations = {kind, kind}, .fault = fault, .protocol = {.tries_again = false}},
                  "an operation fails that has succeeded elsewhere");
    }
  }
}

TEST(ShmProtocol, NeedsToAnnounceSleepBeforeTheLastLook) {
  ExpectFault({.protocol = {.announces_sleep = false}}, kStuck);
}

TEST(ShmProtocol, NeedsToPublishBeforeTheLookForSleepers) {
  ExpectFault({.protocol = {.publishes_first = false}}, kStuck);
}

TEST(ShmProtocol, NeedsTheBell) { ExpectFault({.protocol = {.rings_bell = false}}, kStuck); }

TEST(ShmProtocol, NeedsTwoHalvesOfStagingMemory) {
  ExpectFault({.operations = {Kind::kStaged, Kind::kStaged}, .protocol = {.has_two_halves = false}},
              "a rank reads staging memory that is filled anew");
}

}  // namespace
}  // namespace ait::shm_model
