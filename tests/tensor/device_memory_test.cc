// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/device_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

/// Stands where libtorch_cuda would put its allocator.
class PretendedAllocator final : public c10::DeviceAllocator {
 public:
  bool used = true;

  bool initialized() override { return used; }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    TORCH_CHECK_VALUE(device == 0, "invalid device ", static_cast<int>(device));
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].increase(1000);
    stats.allocated_bytes[0].decrease(300);
    stats.reserved_bytes[0].increase(4096);
    stats.inactive_split_bytes[0].increase(50);
    stats.num_alloc_retries = 2;
    stats.num_ooms = 1;
    return stats;
  }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  c10::DataPtr allocate(std::size_t) override { return {}; }
  void copy_data(void*, const void*, std::size_t) const override {}
};

TEST(DeviceMemory, SaysThatThereIsNone) {
  EXPECT_THAT(ObserveDeviceMemory(Device(0)),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("not in this process")));
  EXPECT_THAT(ObserveDeviceMemory(Device(-1)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("-1")));
}

TEST(DeviceMemory, TellsWhatLibtorchsAllocatorTells) {
  static PretendedAllocator allocator;
  c10::SetAllocator(c10::DeviceType::CUDA, &allocator);
  ASSERT_OK_AND_ASSIGN(const DeviceMemoryStatistics memory, ObserveDeviceMemory(Device(0)));
  EXPECT_EQ(memory.allocated_bytes, 700);
  EXPECT_EQ(memory.allocated_peak_bytes, 1000);
  EXPECT_EQ(memory.reserved_bytes, 4096);
  EXPECT_EQ(memory.reserved_peak_bytes, 4096);
  EXPECT_EQ(memory.gap_bytes, 50);
  EXPECT_EQ(memory.retry_count, 2);
  EXPECT_EQ(memory.out_of_memory_count, 1);
  EXPECT_THAT(ObserveDeviceMemory(Device(1)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("invalid device 1")));
  allocator.used = false;
  EXPECT_THAT(ObserveDeviceMemory(Device(0)),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("not used CUDA")));
  c10::SetAllocator(c10::DeviceType::CUDA, nullptr);
}

}  // namespace
}  // namespace ait
