// SPDX-License-Identifier: Apache-2.0
#include "ait/runtime/out_of_memory.h"

// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <ATen/ops/empty.h>
// clang-format on

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <tuple>

#include "ait/base/log.h"
#include "ait/base/throw_on_error.h"
#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/memory/statistics.h"
#include "ait/optim/adam.h"
#include "ait/optim/sgd.h"
#include "ait/runtime/trainer.h"
#include "runtime/toy_model.h"
#include "support/process.h"
#include "support/status_matchers.h"
#include "topology/fixture.h"

namespace ait {
namespace {

using ::ait::testing::Fixture;
using ::ait::testing::MakeBatch;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::ToyBatch;
using ::ait::testing::ToyRank;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Hands out memory until it is told to refuse.
class RefusingResource final : public MemoryAdaptor {
 public:
  static std::shared_ptr<RefusingResource> Create() {
    return std::shared_ptr<RefusingResource>(new RefusingResource());
  }
  void RefuseAfter(int allocations) { left_ = allocations; }

 private:
  RefusingResource() : MemoryAdaptor("refusing", HeapResource::Create()) {}
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override {
    if (left_ >= 0 && left_-- == 0) {
      left_ = 0;
      return ResourceExhaustedError("no room for ", bytes, " bytes in the test");
    }
    return MemoryAdaptor::DoAllocate(bytes, alignment);
  }
  std::atomic<int> left_ = -1;
};

class Recorder final : public LogSink {
 public:
  void Write(Severity severity, std::string_view component, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    lines_.push_back(StrCat(Name(severity), " ", component, ": ", message));
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

/// Trains a step whose loss does `extra` before it computes.
StatusOr<StepResult> Step(Trainer& trainer, const ToyRank& rank,
                          const std::function<void()>& extra = nullptr) {
  return trainer.Step(MakeBatch(rank.rank(), 6), [&](const ToyBatch& batch) {
    if (extra) extra();
    return rank.model.Loss(batch);
  });
}

void AskTorchForTooMuch() { std::ignore = at::empty({std::int64_t{1} << 50}); }

/// What segments cost, so that remedies do not depend on what a toy model takes.
std::vector<SegmentCost> FourSegments() {
  const SegmentCost segment{
      .name = "block",
      .keep = {.held_bytes = 1 << 20, .peak_bytes = 1 << 20},
      .recompute = ActionCost{.held_bytes = 1 << 16, .peak_bytes = 1 << 20, .seconds = 0.01}};
  return std::vector<SegmentCost>(4, segment);
}

TEST(OutOfMemoryReport, IsATableForPeople) {
  OutOfMemoryReport report{.rank = 1, .step = 12, .micro_step = 2, .micro_steps = 4};
  report.phase = MemoryPhase::kForward;
  report.reason = "no room";
  report.asked = GiB(1);
  report.budgets = {{.source = "/sys/fs/cgroup/memory.max", .limit = GiB(4), .used = MiB(3996)}};
  report.process.resident = GiB(3);
  report.process.swapped = Bytes(0);
  report.split = {.live = GiB(2), .held = MiB(512), .file = MiB(300), .shared = MiB(212)};
  report.step_so_far.live.peak = GiB(2);
  report.step_so_far.phases[1] = {.times = 1, .live = {.peak = GiB(2)}};
  report.model.measured = {.parameters = 400 << 20, .gradients = 400 << 20, .states = 800 << 20};
  report.has_holders = true;
  report.holders = {{.label = "forward/attention", .bytes = 900 << 20, .count = 24},
                    {.label = "cache", .bytes = 100 << 20, .count = 1}};
  report.growth = "live bytes grow by 1.2 MiB a step since step 4, 9.6 MiB so far";
  report.remedies.push_back(
      {.what = "ZeRO stage 1 instead of 0", .saves_bytes = 400 << 20, .step_factor = 1.01});
  report.missing = MiB(924);
  EXPECT_EQ(
      report.Describe(),
      "rank 1, step 12, micro-batch 2 of 4: out of memory in forward: 1.0 GiB asked, 100.0 "
      "MiB left of 4.0 GiB (/sys/fs/cgroup/memory.max): no room\n"
      "  budget    1. 3.9 GiB of 4.0 GiB used, 100.0 MiB left (/sys/fs/cgroup/memory.max; the "
      "kernel kills at it)\n"
      "  process   3.0 GiB resident: 2.0 GiB live, 512.0 MiB held by allocators or not "
      "counted, 300.0 MiB of files, 212.0 MiB shared; 0 bytes in swap\n"
      "  this step peaks so far: forward 2.0 GiB (live)\n"
      "  model     parameters 400.0 MiB, gradients 400.0 MiB, optimizer states 800.0 MiB\n"
      "  holders   1. forward/attention: 900.0 MiB in 24 blocks\n"
      "            2. cache: 100.0 MiB in 1 block\n"
      "  growth    live bytes grow by 1.2 MiB a step since step 4, 9.6 MiB so far\n"
      "  try       first end the growth: what follows only puts off the end\n"
      "            1. ZeRO stage 1 instead of 0: saves 400.0 MiB, not enough alone; step x "
      "1.01\n"
      "            measured by the 924.0 MiB that were missing here");
}

TEST(OutOfMemoryReport, WhatIsNotKnownSaysSo) {
  const std::string text = OutOfMemoryReport{.rank = 0, .step = 1}.Describe();
  EXPECT_THAT(text, AllOf(HasSubstr("budget    unknown"), HasSubstr("unknown resident"),
                          HasSubstr("live part unknown"),
                          HasSubstr("holders   unknown: give TrainerOptions::memory.holders")));
}

TEST(Trainer, AnAllocationThatFailsInForwardIsExplained) {
  RunRanks(1, [](ToyRank& rank) {
    const auto tracked = TrackingResource::Create(HeapResource::Create());
    Trainer trainer(*rank.engine, AdamW(),
                    {.accumulate = 2,
                     .memory = {.holders = tracked, .segments = FourSegments(), .micro_batch = 8}});
    std::vector<HostBuffer> kept;
    const auto keep = [&](std::string_view name, std::size_t bytes) {
      const MemoryLabel label(name);
      kept.push_back(ThrowOnError(HostBuffer::Create(tracked, bytes)));
    };
    ASSERT_OK(Step(trainer, rank, [&] { keep("attention", 9000); }));
    ASSERT_OK(Step(trainer, rank, [&] { keep("embedding", 3000); }));
    ASSERT_OK(Step(trainer, rank));
    const auto failed = Step(trainer, rank, AskTorchForTooMuch);
    EXPECT_THAT(failed,
                StatusIs(StatusCode::kResourceExhausted,
                         AllOf(HasSubstr("step 2"), HasSubstr("out of memory in forward"),
                               HasSubstr("4194304.0 GiB asked"), HasSubstr("can't allocate memory"),
                               HasSubstr("1. forward/attention: 8.8 KiB in 1 block"),
                               HasSubstr("\n  try       1. "))));
    const OutOfMemoryReport* report = trainer.out_of_memory();
    ASSERT_NE(report, nullptr);
    EXPECT_EQ(report->failure, MemoryFailure::kHost);
    EXPECT_EQ(report->step, 2);
    EXPECT_EQ(report->micro_step, 2);
    EXPECT_EQ(report->phase, MemoryPhase::kForward);
    EXPECT_EQ(report->asked, Bytes(std::int64_t{1} << 52));
    ASSERT_EQ(report->holders.size(), 2u);
    EXPECT_EQ(report->holders[1],
              (MemoryHolder{.label = "forward/embedding", .bytes = 3000, .count = 1}));
    EXPECT_EQ(report->remedies.size(), 3u);
    EXPECT_GT(report->model.measured.states, 0);
    EXPECT_TRUE(report->last_step.has_value());
    EXPECT_FALSE(report->budgets.empty());
    EXPECT_EQ(trainer.status(), failed.status());
  });
}

TEST(Trainer, RemediesAreMeasuredByWhatWasMissing) {
  RunRanks(1, [](ToyRank& rank) {
    Fixture fixture;
    fixture.Write("proc/self/limits",
                  StrCat("Max address space  ", MiB(100).value(), "  x bytes\n"));
    fixture.Write("proc/self/status", StrCat("VmSize:\t", MiB(99).value() / 1024, " kB\n"));
    Trainer trainer(*rank.engine, AdamW(),
                    {.memory = {.pressure = MemoryPressureOptions{.roots = fixture.roots()},
                                .segments = FourSegments(),
                                .micro_batch = 8}});
    ASSERT_OK(Step(trainer, rank));
    const auto resource = RefusingResource::Create();
    resource->RefuseAfter(0);
    const auto failed = Step(
        trainer, rank, [&] { ThrowOnError(HostBuffer::Create(resource, (5 << 20) / 2).status()); });
    EXPECT_THAT(failed, StatusIs(StatusCode::kResourceExhausted, HasSubstr("no room for 2621440")));
    const OutOfMemoryReport* report = trainer.out_of_memory();
    ASSERT_NE(report, nullptr);
    EXPECT_EQ(report->missing, KiB(1536));  // 2.5 MiB asked, 1 left
    ASSERT_FALSE(report->remedies.empty());
    EXPECT_TRUE(report->remedies[0].fits);
    EXPECT_EQ(report->remedies[0].what, "micro-batch 4 instead of 8, accumulating 2 micro-steps");
    EXPECT_THAT(report->Describe(), HasSubstr("enough for this; step x 1.03"));
    EXPECT_GE(report->remedies[0].saves_bytes, KiB(1536).value());
    EXPECT_THAT(report->Summary(), HasSubstr("Max address space"));
  });
}

TEST(Trainer, RecomputingTakesAThirdOfAStepHoweverManyMicroStepsItHas) {
  RunRanks(1, [](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd(), {.accumulate = 8, .memory = {.live = [] {
                                                             return MemoryUse{.now = Bytes(0),
                                                                              .peak = GiB(1)};
                                                           }}});
    for (int i = 0; i < 8; ++i) ASSERT_OK(Step(trainer, rank));
    std::ignore = Step(trainer, rank, AskTorchForTooMuch);
    ASSERT_NE(trainer.out_of_memory(), nullptr);
    EXPECT_TRUE(trainer.out_of_memory()->segments_are_guessed);
    int found = 0;
    for (const Remedy& remedy : trainer.out_of_memory()->remedies) {
      if (!remedy.what.starts_with("activation checkpointing")) continue;
      ++found;
      EXPECT_GT(remedy.step_factor, 1.2) << remedy.what;
      EXPECT_LT(remedy.step_factor, 1.34) << remedy.what;
    }
    EXPECT_EQ(found, 1);
  });
}

TEST(Trainer, RemembersTheActivationsOfEarlierSteps) {
  RunRanks(1, [](ToyRank& rank) {
    bool grows = true;  // as resident memory does, in the first step alone
    Trainer trainer(*rank.engine, Sgd(), {.memory = {.live = [&] {
                                            return MemoryUse{.now = Bytes(0),
                                                             .peak = grows ? GiB(1) : Bytes(0)};
                                          }}});
    ASSERT_OK(Step(trainer, rank));
    grows = false;
    for (int i = 0; i < 2; ++i) ASSERT_OK(Step(trainer, rank));
    std::ignore = Step(trainer, rank, AskTorchForTooMuch);
    ASSERT_NE(trainer.out_of_memory(), nullptr);
    EXPECT_TRUE(trainer.out_of_memory()->segments_are_guessed);
    EXPECT_FALSE(trainer.out_of_memory()->activations_are_unknown);
    EXPECT_THAT(trainer.out_of_memory()->Describe(),
                AllOf(HasSubstr("activation checkpointing"), HasSubstr("a micro-batch of 1/")));
  });
}

TEST(Trainer, SaysWhereActivationsAreUnknown) {
  RunRanks(1, [](ToyRank& rank) {
    Trainer trainer(
        *rank.engine, Sgd(),
        {.memory = {.live = [] { return MemoryUse{.now = Bytes(0), .peak = Bytes(0)}; }}});
    ASSERT_OK(Step(trainer, rank));
    std::ignore = Step(trainer, rank, AskTorchForTooMuch);
    ASSERT_NE(trainer.out_of_memory(), nullptr);
    EXPECT_TRUE(trainer.out_of_memory()->activations_are_unknown);
    EXPECT_THAT(trainer.out_of_memory()->Describe(), HasSubstr("activations are unknown"));
  });
}

TEST(Trainer, AFailureInBackwardNamesBackward) {
  RunRanks(1, [](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd());
    ASSERT_OK(Step(trainer, rank));
    const auto failed = trainer.Step(MakeBatch(0, 6), [&](const ToyBatch& batch) {
      LossSum loss = rank.model.Loss(batch);
      loss.sum.register_hook([](const at::Tensor& gradient) {
        AskTorchForTooMuch();
        return gradient;
      });
      return loss;
    });
    EXPECT_THAT(failed, StatusIs(StatusCode::kResourceExhausted,
                                 AllOf(HasSubstr("out of memory in backward"), HasSubstr("step 2"),
                                       HasSubstr("\n  process   "))));
    ASSERT_NE(trainer.out_of_memory(), nullptr);
    EXPECT_EQ(trainer.out_of_memory()->phase, MemoryPhase::kBackward);
  });
}

TEST(Trainer, WhereOneRankRunsOutTheOthersNameIt) {
  RunRanks(2, [](ToyRank& rank) {
    Trainer trainer(*rank.engine, AdamW());
    ASSERT_OK(Step(trainer, rank));
    const bool is_out = rank.rank() == 1;
    const auto failed = Step(trainer, rank, is_out ? AskTorchForTooMuch : nullptr);
    if (is_out) {
      EXPECT_THAT(failed, StatusIs(StatusCode::kResourceExhausted,
                                   AllOf(StartsWith("rank 1: step 2: out of memory in forward"),
                                         HasSubstr("\n  process   "))));
      ASSERT_NE(trainer.out_of_memory(), nullptr);
      EXPECT_EQ(trainer.out_of_memory()->rank, 1);
    } else {
      EXPECT_THAT(failed, StatusIs(StatusCode::kAborted,
                                   AllOf(HasSubstr("rank 1: step 2: out of memory in forward"),
                                         HasSubstr("4194304.0 GiB asked"), Not(HasSubstr("\n")))));
      EXPECT_EQ(trainer.out_of_memory(), nullptr);
    }
  });
}

TEST(Trainer, ZeroStagesAreRemediesWhereThereAreRanks) {
  RunRanks(2, [](ToyRank& rank) {
    // Activations that take nothing, so that only the model's own states can be made smaller.
    Trainer trainer(
        *rank.engine, AdamW(),
        {.memory = {.live = [] { return MemoryUse{.now = Bytes(0), .peak = Bytes(0)}; }}});
    ASSERT_OK(Step(trainer, rank));
    std::ignore = Step(trainer, rank, rank.rank() == 0 ? AskTorchForTooMuch : nullptr);
    if (rank.rank() != 0) return;
    ASSERT_NE(trainer.out_of_memory(), nullptr);
    EXPECT_THAT(trainer.out_of_memory()->Describe(),
                HasSubstr("ZeRO stage 1 instead of 0: saves "));
  });
}

TEST(Trainer, AnErrorThatIsNotAboutMemoryStaysAsItIs) {
  RunRanks(1, [](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd());
    const auto failed = Step(trainer, rank, [] {
      ThrowOnError(ResourceExhaustedError("the disk of the cache is full"));
    });
    EXPECT_EQ(Message(failed.status()),
              "rank 0: step 1: the loss function failed: the disk of the cache is full");
    EXPECT_EQ(trainer.out_of_memory(), nullptr);
  });
}

TEST(Trainer, ADeviceThatIsFullIsToldFromTheHost) {
  RunRanks(1, [](ToyRank& rank) {
    Trainer trainer(
        *rank.engine, Sgd(),
        {.memory = {.device = [] { return MemoryUse{.now = GiB(70), .peak = GiB(71)}; }}});
    const auto first = Step(trainer, rank);
    ASSERT_OK(first);
    const auto failed = Step(trainer, rank, [] {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2.00 GiB.");
    });
    EXPECT_THAT(failed, StatusIs(StatusCode::kResourceExhausted,
                                 AllOf(HasSubstr("out of device memory in forward: 2.0 GiB asked"),
                                       HasSubstr("device    70.0 GiB in use"))));
    EXPECT_EQ(trainer.out_of_memory()->failure, MemoryFailure::kDevice);
  });
}

TEST(Trainer, AReportAsksTheFunctionsOfTheProgramOnOneThreadAtATime) {
  RunRanks(1, [](ToyRank& rank) {
    std::atomic<int> asking = 0;
    std::atomic<bool> met = false;
    const auto source = [&] {
      if (asking.fetch_add(1) != 0) met = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      asking.fetch_sub(1);
      return MemoryUse{.now = GiB(2), .peak = GiB(3)};
    };
    Trainer trainer(*rank.engine, Sgd(),
                    {.memory = {.live = source, .device = source, .peaks = MemoryPeaks::kSampled}});
    ASSERT_OK(Step(trainer, rank));
    const auto resource = RefusingResource::Create();
    resource->RefuseAfter(0);
    for (int i = 0; i < 20; ++i) {
      std::ignore = trainer.ExplainOutOfMemory(HostBuffer::Create(resource, 4096).status());
      ASSERT_NE(trainer.out_of_memory(), nullptr);
      EXPECT_EQ(trainer.out_of_memory()->device.now, GiB(2));
      EXPECT_EQ(trainer.out_of_memory()->split.live, GiB(2));
    }
    EXPECT_FALSE(met);
  });
}

TEST(Trainer, AnErrorOfTheDataSetCanBeExplained) {
  RunRanks(1, [](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd());
    ASSERT_OK(Step(trainer, rank));
    const auto resource = RefusingResource::Create();
    resource->RefuseAfter(0);
    const Status data = HostBuffer::Create(resource, 4096).status();
    const Status explained = trainer.ExplainOutOfMemory(data);
    EXPECT_THAT(explained, StatusIs(StatusCode::kResourceExhausted,
                                    AllOf(HasSubstr("out of memory in load: 4.0 KiB asked"),
                                          HasSubstr("\n  process   "))));
    EXPECT_EQ(trainer.ExplainOutOfMemory(explained), explained) << "it is explained already";
    EXPECT_EQ(trainer.ExplainOutOfMemory(NotFoundError("x")), NotFoundError("x"));
    EXPECT_OK(Step(trainer, rank)) << "the trainer goes on";
  });
}

std::optional<std::int64_t> Counter(const StepMetrics& metrics, std::string_view name) {
  for (const auto& [key, value] : metrics.counters) {
    if (key == name) return value;
  }
  return std::nullopt;
}

TEST(Trainer, ReportsThePeakOfEachPhase) {
  RunRanks(1, [](ToyRank& rank) {
    const TempDir dir;
    const auto counted = StatisticsResource::Create(HeapResource::Create());
    Trainer trainer(*rank.engine, Sgd(), {.memory = {.live = LiveBytesOf(counted)}});
    EXPECT_EQ(trainer.memory(), nullptr);
    const auto step = Step(
        trainer, rank, [&] { std::ignore = ThrowOnError(HostBuffer::Create(counted, 70'000)); });
    ASSERT_OK(step);
    EXPECT_EQ(Counter(step->metrics, "memory_peak_forward_bytes"), 70'000);
    EXPECT_EQ(Counter(step->metrics, "memory_peak_backward_bytes"), 0);
    EXPECT_EQ(Counter(step->metrics, "memory_live_peak_bytes"), 70'000);
    EXPECT_GT(Counter(step->metrics, "memory_peak_bytes"), 1 << 20);
    EXPECT_FALSE(Counter(step->metrics, "memory_device_peak_bytes").has_value());
    EXPECT_FALSE(Counter(step->metrics, "memory_peak_checkpoint_bytes").has_value());
    ASSERT_NE(trainer.memory(), nullptr);
    EXPECT_EQ(trainer.memory()->largest(), MemoryPhase::kForward);

    ASSERT_OK(trainer.Save(dir / "weights.safetensors"));
    const auto next = Step(trainer, rank);
    ASSERT_OK(next);
    EXPECT_EQ(Counter(next->metrics, "memory_peak_checkpoint_bytes"), 0);
    EXPECT_EQ(Counter(next->metrics, "memory_peak_forward_bytes"), 0);
  });
}

/// A machine of files whose memory cgroup is as full as the test says.
class FullCgroup {
 public:
  FullCgroup() {
    fixture_.Write("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    fixture_.Write("proc/self/cgroup", "0::/job\n");
    fixture_.Write("sys/fs/cgroup/job/memory.max", StrCat(GiB(1).value(), "\n"));
    Use(MiB(100));
  }
  void Use(Bytes bytes) {
    fixture_.Write("sys/fs/cgroup/job/memory.current", StrCat(bytes.value(), "\n"));
  }
  void Kills(int count) {
    fixture_.Write("sys/fs/cgroup/job/memory.events", StrCat("high 0\noom_kill ", count, "\n"));
  }
  void StallMachine(double percent) {
    const std::string stalls = StrCat("avg10=", percent, " avg60=0.00 avg300=0.00 total=1\n");
    fixture_.Write("proc/pressure/memory", StrCat("some ", stalls, "full ", stalls));
  }
  MemoryWatchOptions options(AtRisk at_risk) const {
    return {.at_risk = at_risk,
            .pressure = MemoryPressureOptions{.roots = fixture_.roots()},
            .interval = Duration::zero()};
  }

 private:
  Fixture fixture_;
};

TEST(Trainer, WarnsOnceWhenTheCgroupIsNearlyFullAndAgainAfterItWasBetter) {
  RunRanks(1, [](ToyRank& rank) {
    FullCgroup cgroup;
    Recorder log;
    Trainer trainer(*rank.engine, Sgd(), {.memory = cgroup.options(AtRisk::kWarn), .log = &log});
    ASSERT_OK(Step(trainer, rank));
    EXPECT_TRUE(log.lines().empty());
    cgroup.Use(MiB(1014));
    for (int i = 0; i < 3; ++i) ASSERT_OK(Step(trainer, rank));
    ASSERT_EQ(log.lines().size(), 1u);
    EXPECT_THAT(log.lines()[0],
                AllOf(StartsWith("warning memory: rank 0, step 2, forward: memory is at risk: "),
                      HasSubstr("/job/memory.max"), HasSubstr("10.0 MiB are left")));
    cgroup.Use(MiB(300));
    ASSERT_OK(Step(trainer, rank));
    cgroup.Use(MiB(1014));
    ASSERT_OK(Step(trainer, rank));
    EXPECT_EQ(log.lines().size(), 2u);
  });
}

TEST(Trainer, AReportTakesNoKillFromTheNextLook) {
  RunRanks(1, [](ToyRank& rank) {
    FullCgroup cgroup;
    cgroup.Kills(0);
    Recorder log;
    Trainer trainer(*rank.engine, Sgd(), {.memory = cgroup.options(AtRisk::kWarn), .log = &log});
    ASSERT_OK(Step(trainer, rank));
    cgroup.Kills(1);
    const auto resource = RefusingResource::Create();
    resource->RefuseAfter(0);
    std::ignore = trainer.ExplainOutOfMemory(HostBuffer::Create(resource, 4096).status());
    ASSERT_NE(trainer.out_of_memory(), nullptr);
    EXPECT_TRUE(log.lines().empty());
    ASSERT_OK(Step(trainer, rank));
    ASSERT_EQ(log.lines().size(), 1u);
    EXPECT_THAT(log.lines()[0], HasSubstr("has killed 1 process"));
  });
}

TEST(Trainer, WarnsOfStallsAndEndsNoStepForThem) {
  RunRanks(1, [](ToyRank& rank) {
    FullCgroup cgroup;
    Recorder log;
    Trainer trainer(*rank.engine, Sgd(),
                    {.memory = cgroup.options(AtRisk::kFailStep), .log = &log});
    ASSERT_OK(Step(trainer, rank));
    cgroup.StallMachine(55.5);
    ASSERT_OK(Step(trainer, rank));
    ASSERT_EQ(log.lines().size(), 1u);
    EXPECT_THAT(log.lines()[0],
                AllOf(HasSubstr("memory is at risk"), HasSubstr("all tasks stood still")));
  });
}

TEST(Trainer, EndsTheStepOnAllRanksBeforeTheKernelKills) {
  FullCgroup cgroup;
  RunRanks(2, [&](ToyRank& rank) {
    const bool watches = rank.rank() == 1;
    Trainer trainer(*rank.engine, Sgd(),
                    {.memory = watches ? cgroup.options(AtRisk::kFailStep) : MemoryWatchOptions()});
    ASSERT_OK(Step(trainer, rank));
    if (watches) cgroup.Use(MiB(1020));
    const auto failed = Step(trainer, rank);
    if (watches) {
      EXPECT_THAT(failed, StatusIs(StatusCode::kResourceExhausted,
                                   AllOf(HasSubstr("rank 1: step 2: nearly out of memory in "
                                                   "forward: 4.0 MiB left of 1.0 GiB"),
                                         HasSubstr("ends before the kernel ends the process"))));
      EXPECT_EQ(trainer.out_of_memory()->failure, MemoryFailure::kRisk);
      EXPECT_GT(trainer.out_of_memory()->missing, MiB(90));  // to a tenth of the limit
    } else {
      EXPECT_THAT(failed, StatusIs(StatusCode::kAborted,
                                   HasSubstr("rank 1: step 2: nearly out of memory in forward")));
    }
  });
}

TEST(Trainer, TellsOfALeakOnceAndNamesIt) {
  RunRanks(1, [](ToyRank& rank) {
    const auto tracked = TrackingResource::Create(HeapResource::Create());
    const auto counted = StatisticsResource::Create(tracked);
    Recorder log;
    Trainer trainer(*rank.engine, Sgd(),
                    {.memory = {.holders = tracked,
                                .live = LiveBytesOf(counted),
                                .at_risk = AtRisk::kIgnore,
                                .interval = Duration::zero(),
                                .growth = MemoryGrowthOptions{.warm_up_steps = 3}},
                     .log = &log});
    std::vector<HostBuffer> leak;
    for (int step = 0; step < 80; ++step) {
      ASSERT_OK(Step(trainer, rank, [&] {
        const MemoryLabel label("history");
        leak.push_back(ThrowOnError(HostBuffer::Create(counted, 100'000)));
      }));
    }
    ASSERT_EQ(log.lines().size(), 1u);
    EXPECT_THAT(log.lines()[0],
                AllOf(StartsWith("warning memory: rank 0: live bytes grow by 97.7 KiB a step"),
                      HasSubstr("label 'forward/history' grows by 97.7 KiB a step")));
  });
}

}  // namespace
}  // namespace ait
