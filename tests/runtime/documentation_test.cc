// SPDX-License-Identifier: Apache-2.0
// The code of docs/out-of-memory.md.
#include <gtest/gtest.h>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/memory/statistics.h"
#include "ait/optim/adam.h"
#include "ait/runtime/trainer.h"
#include "ait/tensor/cpu_allocator.h"
#include "runtime/toy_model.h"
#include "support/document.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using Batch = testing::ToyBatch;

// clang-format off: as the page shows it
Status Train(DataParallel& engine, const testing::ToyModel& model, LogSink* log,
             const Status& data) {
  const auto Loss = [&model](const Batch& b) { return model.Loss(b); };
  const Batch batch = testing::MakeBatch(1, 5);
  auto tracked = ait::TrackingResource::Create(ait::HeapResource::Create());
  auto counted = ait::StatisticsResource::Create(tracked);
  AIT_ASSIGN_OR_RETURN(auto scope, ait::CpuAllocatorScope::Create(counted));
  ait::Trainer trainer(engine, ait::AdamW(),
                       {.memory = {.holders = tracked,
                                   .live = ait::LiveBytesOf(counted),
                                   .at_risk = ait::AtRisk::kFailStep},
                        .log = log});
  auto step = trainer.Step(batch, [&](const Batch& b) {
    const ait::MemoryLabel label("attention");           // "forward/attention"
    return Loss(b);
  });
  AIT_RETURN_IF_ERROR(step.status());
  const StepMemory* memory = trainer.memory();
  if (memory == nullptr || !memory->live.peak || *memory->live.peak == Bytes(0))
    return InternalError("libtorch's memory was not counted");
  if (!data.ok()) return trainer.ExplainOutOfMemory(data);
  return OkStatus();
}
// clang-format on

TEST(OutOfMemoryPage, ItsCodeIsThis) {
  testing::ExpectCodeIsCompiled(AIT_DOCS "/out-of-memory.md", AIT_SOURCE);
}

TEST(OutOfMemoryPage, ItsCodeRuns) {
  testing::RunRanks(1, [](testing::ToyRank& rank) {
    EXPECT_OK(Train(*rank.engine, rank.model, nullptr, OkStatus()));
    const Status error =
        Train(*rank.engine, rank.model, nullptr,
              HostBuffer::Create(HeapResource::Create(), std::size_t{1} << 47).status());
    EXPECT_THAT(error, testing::StatusIs(StatusCode::kResourceExhausted,
                                         ::testing::HasSubstr("\n  holders   ")));
  });
}

}  // namespace
}  // namespace ait
