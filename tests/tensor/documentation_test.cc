// SPDX-License-Identifier: Apache-2.0
// The code of docs/tensor-memory.md.
#include <ATen/core/ivalue.h>
// Keep the order.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <cstdint>

#include "ait/memory/heap.h"
#include "ait/memory/pool.h"
#include "ait/tensor/cpu_allocator.h"
#include "ait/tensor/device_memory.h"
#include "ait/tensor/empty.h"
#include "ait/tensor/staging.h"
#include "support/document.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

// clang-format off: as the page shows it
StatusOr<PoolStatistics> Train() {
  AIT_ASSIGN_OR_RETURN(const auto pool, PoolResource::Create());
  AIT_ASSIGN_OR_RETURN(const auto scope, CpuAllocatorScope::Create(pool));
  const at::Tensor activations = at::ones({1000});
  return pool->statistics();
}

StatusOr<at::Tensor> MakeTable(std::int64_t rows, const MemoryHandle& memory) {
  AIT_ASSIGN_OR_RETURN(at::Tensor table, Empty({rows, 384}, DType::kFloat32, memory));
  table.zero_();
  return table;
}

Status Stage(const at::Tensor& batch_of_step, at::Tensor batch, const MemoryHandle& pinned) {
  AIT_ASSIGN_OR_RETURN(const auto staging, Staging::Create({.memory = pinned, .device = Device(0)}));
  AIT_ASSIGN_OR_RETURN(StagedCopy copy, staging->Copy(batch_of_step, batch));
  batch.zero_();
  AIT_RETURN_IF_ERROR(copy.Wait());
  return OkStatus();
}

std::int64_t PeakOfGpu() {
  std::int64_t peak = -1;
  const StatusOr<DeviceMemoryStatistics> gpu = ObserveDeviceMemory(Device(0));
  if (gpu.ok()) peak = gpu->allocated_peak_bytes;
  return peak;
}
// clang-format on

TEST(TensorMemoryPage, ItsCodeIsThis) {
  testing::ExpectCodeIsCompiled(AIT_DOCS "/tensor-memory.md", AIT_SOURCE);
}

TEST(TensorMemoryPage, ItsCodeRuns) {
  ASSERT_OK_AND_ASSIGN(const PoolStatistics pool, Train());
  EXPECT_EQ(pool.live_bytes, 4096) << "4000, rounded";
  ASSERT_OK_AND_ASSIGN(const at::Tensor table, MakeTable(5, HeapResource::Create()));
  EXPECT_EQ(table.sum().item<float>(), 0);
  const at::Tensor step = at::empty({7});
  ASSERT_OK(Stage(step, at::ones({7}), HeapResource::Create()));
  EXPECT_EQ(step.sum().item<float>(), 7);
  EXPECT_EQ(PeakOfGpu(), -1) << "this test does not link libtorch's CUDA part";
}

}  // namespace
}  // namespace ait
