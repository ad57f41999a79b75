// SPDX-License-Identifier: Apache-2.0
// A step that runs out of memory: an error that says so, wherever in the step it was, and no rank is
// left waiting.
#include <gtest/gtest.h>

#include <atomic>

#include "ait/memory/heap.h"
#include "ait/optim/sgd.h"
#include "ait/runtime/trainer.h"
#include "ait/tensor/cpu_allocator.h"
#include "runtime/toy_model.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::MakeBatch;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::ToyBatch;
using ::ait::testing::ToyRank;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// The heap, until a thread says that for it there is none.
class Exhaustible final : public MemoryResource {
 public:
  static inline thread_local bool exhausted = false;
  MemoryProperties properties() const override { return {.name = "exhaustible"}; }

 private:
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override {
    if (exhausted) return ResourceExhaustedError("the budget of 8 GiB is used up");
    return heap_->Allocate(bytes, alignment);
  }
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override {
    heap_->Deallocate(block, bytes, alignment);
  }
  const std::shared_ptr<HeapResource> heap_ = HeapResource::Create();
};

enum class When { kForward, kBackward };

void RunOut(int ranks, When when) {
  ASSERT_OK_AND_ASSIGN(const auto scope,
                       CpuAllocatorScope::Create(std::make_shared<Exhaustible>()));
  RunRanks(ranks, [&](ToyRank& rank) {
    Trainer trainer(*rank.engine, Sgd{{.learning_rate = 0.1}}, {});
    const auto step = [&](bool runs_out) {
      return trainer.Step(MakeBatch(1, 5), [&](const ToyBatch& batch) {
        Exhaustible::exhausted = runs_out && when == When::kForward;
        const LossSum loss = rank.model.Loss(batch);
        Exhaustible::exhausted = runs_out;
        return loss;
      });
    };
    ASSERT_OK(step(false));
    const bool runs_out = rank.rank() == 0;
    const auto failed = step(runs_out);
    Exhaustible::exhausted = false;
    ASSERT_FALSE(failed.ok());
    if (runs_out) {
      EXPECT_THAT(failed, StatusIs(StatusCode::kResourceExhausted,
                                   AllOf(HasSubstr("libtorch asked for"),
                                         HasSubstr("the budget of 8 GiB is used up"))));
    }
  });
}

TEST(TrainerMemory, AForwardThatRunsOutIsResourceExhausted) { RunOut(1, When::kForward); }
TEST(TrainerMemory, ABackwardThatRunsOutIsResourceExhausted) { RunOut(1, When::kBackward); }
TEST(TrainerMemory, OtherRanksHearOfIt) {
  RunOut(2, When::kForward);
  RunOut(2, When::kBackward);
}

}  // namespace
}  // namespace ait
