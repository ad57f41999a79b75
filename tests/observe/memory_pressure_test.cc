// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/memory_pressure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "observe/own_cgroup.h"
#include "support/process.h"
#include "topology/fixture.h"

namespace ait {
namespace {

using ::ait::testing::Fixture;
using ::ait::testing::OwnCgroup;
using ::ait::testing::Process;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr const char* kV2Mount =
    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kV1Mount =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

/// A machine with 64 GiB, half of them free, and a process of 1 GiB in /a/b.
class PressureTest : public ::testing::Test {
 protected:
  PressureTest() {
    SetMachine(GiB(64), GiB(32));
    SetProcess(GiB(3), Bytes(0));
  }

  void SetMachine(Bytes total, Bytes available, std::string_view swap = "") {
    fixture_.Write("proc/meminfo",
                   StrCat("MemTotal:  ", total.value() / 1024,
                          " kB\nMemAvailable:  ", available.value() / 1024, " kB\n", swap));
  }
  void SetProcess(Bytes address_space, Bytes swapped) {
    fixture_.Write("proc/self/status",
                   StrCat("VmSize:\t", address_space.value() / 1024,
                          " kB\nVmRSS:\t1048576 kB\nVmData:\t 2048 kB\nVmSwap:\t",
                          swapped.value() / 1024, " kB\n"));
  }
  void UseV2() {
    fixture_.Write("proc/self/mountinfo", kV2Mount);
    fixture_.Write("proc/self/cgroup", "0::/a/b\n");
  }
  void UseV1() {
    fixture_.Write("proc/self/mountinfo", kV1Mount);
    fixture_.Write("proc/self/cgroup", "4:memory:/a/b\n");
  }
  void Set(std::string_view file, std::int64_t value) {
    fixture_.Write(StrCat("sys/fs/cgroup/", file), StrCat(value, "\n"));
  }
  void Set(std::string_view file, Bytes value) { Set(file, value.value()); }

  MemoryPressureWatch Watch() { return MemoryPressureWatch({.roots = fixture_.roots()}); }
  MemoryPressure Read() { return Watch().Read(); }

  Fixture fixture_;
};

TEST_F(PressureTest, AMachineWithRoomIsOk) {
  const MemoryPressure pressure = Read();
  EXPECT_EQ(pressure.verdict, MemoryVerdict::kOk);
  EXPECT_EQ(pressure.reason, "");
  ASSERT_EQ(pressure.rooms.size(), 1u);
  EXPECT_EQ(pressure.rooms[0].left(), GiB(32));
  EXPECT_THAT(pressure.rooms[0].source, EndsWith("/proc/meminfo (MemAvailable)"));
}

TEST_F(PressureTest, NothingToReadIsOkAndUnknown) {
  const MemoryPressure pressure =
      MemoryPressureWatch({.roots = {.proc = "/nowhere", .sys = "/nowhere"}}).Read();
  EXPECT_EQ(pressure.verdict, MemoryVerdict::kOk);
  EXPECT_TRUE(pressure.rooms.empty());
  EXPECT_EQ(pressure.tightest(), nullptr);
  EXPECT_FALSE(pressure.swapped || pressure.swap_free || pressure.some_stalled || pressure.kills);
}

TEST_F(PressureTest, V2TheNearestLimitOfAllLevelsSetsTheVerdict) {
  UseV2();
  Set("a/b/memory.current", MiB(1000));
  fixture_.Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  Set("a/memory.current", MiB(3950));
  Set("a/memory.max", GiB(4));
  const MemoryPressure tight = Read();
  EXPECT_EQ(tight.verdict, MemoryVerdict::kTight);
  EXPECT_THAT(tight.source, EndsWith("/sys/fs/cgroup/a/memory.max"));
  EXPECT_THAT(tight.reason,
              AllOf(HasSubstr("the limit is 4.0 GiB"), HasSubstr("146.0 MiB are left"),
                    HasSubstr("the kernel kills a process at it")));
  ASSERT_NE(tight.tightest(), nullptr);
  EXPECT_EQ(tight.tightest()->left(), MiB(146));

  Set("a/memory.current", MiB(4050));
  const MemoryPressure risk = Read();
  EXPECT_EQ(risk.verdict, MemoryVerdict::kAtRisk);
  EXPECT_THAT(risk.Describe(), AllOf(HasSubstr("memory is at risk: "), HasSubstr("46.0 MiB left")));

  // Cache that nobody uses makes way.
  fixture_.Write("sys/fs/cgroup/a/memory.stat",
                 StrCat("anon 1\ninactive_file ", MiB(2000).value(), "\n"));
  EXPECT_EQ(Read().verdict, MemoryVerdict::kOk);
}

TEST_F(PressureTest, V2AThrottlingLimitIsTightAtWorst) {
  UseV2();
  Set("a/b/memory.current", MiB(1100));
  Set("a/b/memory.high", GiB(1));
  const MemoryPressure pressure = Read();
  EXPECT_EQ(pressure.verdict, MemoryVerdict::kTight);
  EXPECT_THAT(pressure.source, EndsWith("/a/b/memory.high"));
  EXPECT_THAT(pressure.reason, HasSubstr("more than it allows"));
}

TEST_F(PressureTest, V2AKillInTheCgroupIsARiskOnceAndCounted) {
  UseV2();
  const auto events = [&](int high, int kills) {
    fixture_.Write("sys/fs/cgroup/a/b/memory.events",
                   StrCat("low 0\nhigh ", high, "\nmax 9\noom 4\noom_kill ", kills, "\n"));
  };
  events(5, 2);
  auto watch = Watch();
  EXPECT_EQ(watch.Read().kills, 0);
  events(5, 3);
  const MemoryPressure killed = watch.Read();
  EXPECT_EQ(killed.verdict, MemoryVerdict::kAtRisk);
  EXPECT_EQ(killed.kills, 1);
  EXPECT_THAT(killed.source, EndsWith("/a/b/memory.events"));
  EXPECT_EQ(watch.Read().verdict, MemoryVerdict::kOk);
  EXPECT_EQ(watch.Read().kills, 1);
  events(6, 3);
  EXPECT_EQ(watch.Read().verdict, MemoryVerdict::kTight);
}

TEST_F(PressureTest, StallsOfTheCgroupCountBeforeThoseOfTheMachine) {
  fixture_.Write("proc/pressure/memory",
                 "some avg10=40.00 avg60=1.00 avg300=0.10 total=9\n"
                 "full avg10=1.00 avg60=0.00 avg300=0.00 total=3\n");
  const MemoryPressure machine = Read();
  EXPECT_EQ(machine.verdict, MemoryVerdict::kTight);
  EXPECT_THAT(machine.source, EndsWith("/proc/pressure/memory"));
  EXPECT_THAT(machine.reason,
              HasSubstr("some task stood still for memory in 40 % of the last 10 s"));

  UseV2();
  fixture_.Write("sys/fs/cgroup/a/b/memory.pressure",
                 "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 total=0\n");
  EXPECT_EQ(Read().verdict, MemoryVerdict::kOk);
  fixture_.Write("sys/fs/cgroup/a/b/memory.pressure",
                 "some avg10=80.50 avg60=0.00 avg300=0.00 total=0\nfull avg10=33.00 total=0\n");
  const MemoryPressure stalled = Read();
  EXPECT_EQ(stalled.verdict, MemoryVerdict::kAtRisk);
  EXPECT_DOUBLE_EQ(stalled.some_stalled.value(), 0.805);
  EXPECT_THAT(stalled.source, EndsWith("/a/b/memory.pressure"));
}

TEST_F(PressureTest, V1LimitUsageAndKills) {
  UseV1();
  Set("memory/a/b/memory.usage_in_bytes", MiB(2030));
  Set("memory/a/b/memory.limit_in_bytes", GiB(2));
  Set("memory/a/memory.usage_in_bytes", MiB(2030));
  Set("memory/a/memory.limit_in_bytes", 9223372036854771712);
  fixture_.Write("sys/fs/cgroup/memory/a/b/memory.oom_control",
                 "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  auto watch = Watch();
  const MemoryPressure risk = watch.Read();
  EXPECT_EQ(risk.verdict, MemoryVerdict::kAtRisk);
  EXPECT_THAT(risk.source, EndsWith("/memory/a/b/memory.limit_in_bytes"));
  EXPECT_EQ(risk.rooms.size(), 2u);  // and the machine

  fixture_.Write("sys/fs/cgroup/memory/a/b/memory.stat",
                 StrCat("cache 1\ntotal_inactive_file ", GiB(1).value(), "\n"));
  EXPECT_EQ(watch.Read().verdict, MemoryVerdict::kOk);
  fixture_.Write("sys/fs/cgroup/memory/a/b/memory.oom_control",
                 "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  const MemoryPressure killed = watch.Read();
  EXPECT_EQ(killed.verdict, MemoryVerdict::kAtRisk);
  EXPECT_THAT(killed.reason, HasSubstr("has killed 2 processes"));
}

TEST_F(PressureTest, V1ALimitOfAParentThatCannotBeSeen) {
  UseV1();
  Set("memory/a/b/memory.usage_in_bytes", MiB(1000));
  Set("memory/a/b/memory.limit_in_bytes", 9223372036854771712);
  fixture_.Write("sys/fs/cgroup/memory/a/b/memory.stat",
                 StrCat("hierarchical_memory_limit ", GiB(1).value(), "\n"));
  const MemoryPressure risk = Read();
  EXPECT_EQ(risk.verdict, MemoryVerdict::kAtRisk);
  EXPECT_THAT(risk.source, EndsWith("memory.stat (hierarchical_memory_limit)"));
}

TEST_F(PressureTest, LimitsOfTheProcessRefuse) {
  fixture_.Write("proc/self/limits",
                 StrCat("Limit                     Soft Limit           Hard Limit    Units\n"
                        "Max data size             unlimited            unlimited     bytes\n"
                        "Max address space         ",
                        MiB(3080).value(), "           unlimited     bytes\n"));
  const MemoryPressure pressure = Read();
  EXPECT_EQ(pressure.verdict, MemoryVerdict::kAtRisk);
  EXPECT_THAT(pressure.reason, AllOf(HasSubstr("Max address space"), HasSubstr("8.0 MiB are left"),
                                     HasSubstr("allocations fail at it")));
  EXPECT_EQ(pressure.tightest()->effect, LimitEffect::kRefuses);
}

TEST_F(PressureTest, TheMachineItselfMayBeFull) {
  SetMachine(GiB(64), MiB(700));
  EXPECT_EQ(Read().verdict, MemoryVerdict::kAtRisk);
  SetMachine(GiB(64), GiB(3));
  EXPECT_EQ(Read().verdict, MemoryVerdict::kTight);
  SetMachine(GiB(64), GiB(5));  // less than a tenth, and much all the same
  EXPECT_EQ(Read().verdict, MemoryVerdict::kOk);
}

TEST_F(PressureTest, GoingToSwapIsTightWhileItGoes) {
  SetMachine(GiB(64), GiB(32), "SwapTotal:  4096 kB\nSwapFree:  1024 kB\n");
  SetProcess(GiB(3), MiB(100));
  auto watch = Watch();
  const MemoryPressure quiet = watch.Read();
  EXPECT_EQ(quiet.verdict, MemoryVerdict::kOk);  // it may have been long ago
  EXPECT_EQ(quiet.swapped, MiB(100));
  EXPECT_EQ(quiet.swap_free, MiB(1));
  SetProcess(GiB(3), MiB(150));
  const MemoryPressure swapping = watch.Read();
  EXPECT_EQ(swapping.verdict, MemoryVerdict::kTight);
  EXPECT_THAT(swapping.reason, HasSubstr("50.0 MiB of this process went to swap"));
  EXPECT_EQ(watch.Read().verdict, MemoryVerdict::kOk);
}

TEST_F(PressureTest, DamagedFilesDoNotLimit) {
  UseV2();
  fixture_.Write("sys/fs/cgroup/a/b/memory.current", "many\n");
  fixture_.Write("sys/fs/cgroup/a/b/memory.max", "-5\n");
  fixture_.Write("sys/fs/cgroup/a/b/memory.events", "oom_kill\n");
  fixture_.Write("sys/fs/cgroup/a/b/memory.pressure", "some avg10=\nfull avg10=nan\n");
  fixture_.Write("proc/self/limits", "Max address space\n");
  const MemoryPressure pressure = Read();
  EXPECT_EQ(pressure.verdict, MemoryVerdict::kOk);
  EXPECT_EQ(pressure.rooms.size(), 1u);
  EXPECT_FALSE(pressure.kills || pressure.some_stalled || pressure.full_stalled);
}

TEST(MemoryPressure, ARealCgroupThatFillsUpGoesFromOkToAtRisk) {
  const OwnCgroup group(MiB(64));
  if (!group.why_not().empty()) GTEST_SKIP() << group.why_not();
  Process process = Process::Spawn({.program = AIT_TEST_FILLER, .args = {group.path(), "63"}});
  const testing::Exit exit = process.Wait();
  EXPECT_EQ(exit.code, 0);
  EXPECT_THAT(exit.output, AllOf(HasSubstr("memory is ok"), HasSubstr("memory is at risk"),
                                 HasSubstr(group.path())));
}

}  // namespace
}  // namespace ait
