// SPDX-License-Identifier: Apache-2.0
// An allocation fails in each phase of a step: the first one, the second, and so on. Every one of
// these is an error that names the phase, and no other rank is left waiting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "ait/optim/adam.h"
#include "ait/runtime/trainer.h"
#include "runtime/toy_model.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace {

/// How many allocations of this thread succeed before one fails; negative: all.
thread_local int allocations_left = -1;

void* Allocate(std::size_t bytes) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  void* const block = std::malloc(bytes > 0 ? bytes : 1);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }

namespace ait {
namespace {

using ::ait::testing::MakeBatch;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::ToyBatch;
using ::ait::testing::ToyRank;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Lets an allocation fail after the `mark`-th mark of the phases from now on, and not beyond the
/// next one. A trainer asks for live bytes at each.
class FailingPhase {
 public:
  MemoryWatchOptions options() {
    return {.live =
                [this] {
                  allocations_left = --marks_left_ == 0 ? after_ : -1;
                  return MemoryUse();
                },
            .at_risk = AtRisk::kIgnore,
            .growth = std::nullopt};
  }
  void FailAt(int mark, int after) {
    marks_left_ = mark;
    after_ = after;
  }

 private:
  int marks_left_ = 0;
  int after_ = 0;
};

StatusOr<StepResult> Step(Trainer& trainer, const ToyRank& rank) {
  return trainer.Step(MakeBatch(rank.rank(), 6),
                      [&](const ToyBatch& batch) { return rank.model.Loss(batch); });
}

/// Fails allocation 0, 1, … of a phase until there are no more; returns how many failed.
int FailEach(int mark, MemoryPhase phase, int most) {
  int failed = 0;
  for (int after = 0; after < most; ++after) {
    bool is_over = false;
    RunRanks(1, [&](ToyRank& rank) {
      FailingPhase failing;
      Trainer trainer(*rank.engine, AdamW(), {.memory = failing.options()});
      ASSERT_OK(Step(trainer, rank));
      failing.FailAt(mark, after);
      const auto step = Step(trainer, rank);
      allocations_left = -1;
      is_over = step.ok();
      if (is_over) return;
      EXPECT_THAT(step, StatusIs(StatusCode::kResourceExhausted,
                                 HasSubstr(StrCat("out of memory in ", Name(phase)))))
          << "allocation " << after;
      ASSERT_NE(trainer.out_of_memory(), nullptr);
      EXPECT_EQ(trainer.out_of_memory()->phase, phase);
      EXPECT_EQ(trainer.out_of_memory()->step, 2);
    });
    if (is_over) break;
    ++failed;
  }
  return failed;
}

TEST(OutOfMemory, EveryAllocationOfForward) {
  EXPECT_GT(FailEach(1, MemoryPhase::kForward, 25), 5);
}
TEST(OutOfMemory, EveryAllocationOfBackward) {
  EXPECT_GT(FailEach(2, MemoryPhase::kBackward, 25), 5);
}
TEST(OutOfMemory, EveryAllocationOfCommunication) {
  EXPECT_GT(FailEach(3, MemoryPhase::kCommunication, 25), 2);
}
TEST(OutOfMemory, EveryAllocationOfTheOptimizer) {
  EXPECT_GT(FailEach(4, MemoryPhase::kOptimizer, 25), 0);
}

TEST(OutOfMemory, OptimizerStateThatCannotBeMadeIsTheErrorOfTheFirstStep) {
  RunRanks(1, [](ToyRank& rank) {
    FailingPhase failing;
    failing.FailAt(3, 2);  // after those of the beginning and of loading
    Trainer trainer(*rank.engine, AdamW(), {.memory = failing.options()});
    allocations_left = -1;
    EXPECT_THAT(Step(trainer, rank), StatusIs(StatusCode::kResourceExhausted,
                                              AllOf(HasSubstr("the trainer cannot start"),
                                                    HasSubstr("out of memory in optimizer"))));
    ASSERT_NE(trainer.out_of_memory(), nullptr);
    EXPECT_EQ(trainer.out_of_memory()->phase, MemoryPhase::kOptimizer);
  });
}

TEST(OutOfMemory, InCommunicationTheOtherRankIsTold) {
  RunRanks(2, [](ToyRank& rank) {
    FailingPhase failing;
    Trainer trainer(*rank.engine, AdamW(), {.memory = failing.options()});
    ASSERT_OK(Step(trainer, rank));
    if (rank.rank() == 1) failing.FailAt(3, 1);
    const auto step = Step(trainer, rank);
    allocations_left = -1;
    if (rank.rank() == 1) {
      EXPECT_THAT(step, StatusIs(StatusCode::kResourceExhausted,
                                 HasSubstr("out of memory in communication")));
    } else {
      EXPECT_THAT(step, StatusIs(StatusCode::kAborted, HasSubstr("rank 1")));
    }
  });
}

// Those before the header is written: the JSON library allocates in its destructor, which may not
// throw, so that without a byte of memory left the process ends there.
TEST(OutOfMemory, AllocationsOfSaving) {
  const TempDir dir;
  bool is_over = false;
  int failed = 0;
  for (int after = 0; after < 8 && !is_over; ++after) {
    RunRanks(1, [&](ToyRank& rank) {
      FailingPhase failing;
      Trainer trainer(*rank.engine, AdamW(), {.memory = failing.options()});
      ASSERT_OK(Step(trainer, rank));
      failing.FailAt(1, after);
      const Status saved = trainer.Save(dir / "weights.safetensors");
      allocations_left = -1;
      is_over = saved.ok();
      if (is_over) return;
      ++failed;
      EXPECT_THAT(
          saved, StatusIs(StatusCode::kResourceExhausted, HasSubstr("out of memory in checkpoint")))
          << "allocation " << after;
    });
  }
  EXPECT_GT(failed, 5);
}

}  // namespace
}  // namespace ait
