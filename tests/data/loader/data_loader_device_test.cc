// SPDX-License-Identifier: Apache-2.0
// Copies to a GPU, with the fake one.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "ait/data/loader/data_loader.h"
#include "ait/device/buffer.h"
#include "ait/device/stream.h"
#include "data/loader/loader_test_support.h"
#include "support/fake_gpu.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::FakeGpuCounted;
using testing::HashOf;
using testing::NumberSource;
using testing::ScatteredPlan;
using testing::SetFakeGpuState;
using testing::StatusIs;

class DataLoaderDeviceTest : public ::testing::Test {
 protected:
  DataLoaderDeviceTest() { testing::ResetFakeGpu(); }
  ~DataLoaderDeviceTest() override { testing::ResetFakeGpu(); }

  std::shared_ptr<DeviceRuntime> gpus_ =
      DeviceRuntime::Open({.library = testing::FakeGpuLibrary()});
  std::shared_ptr<ScatteredPlan> plan_ = std::make_shared<ScatteredPlan>(203, 10, 2);
  std::shared_ptr<NumberSource> source_ = std::make_shared<NumberSource>(203);
};

// The consumer's stream is slower than the loader, so that nothing is right by chance.
TEST_F(DataLoaderDeviceTest, TheConsumersStreamSeesEachBatch) {
  for (const int copy_delay_us : {0, 300}) {
    SetFakeGpuState({.copy_delay_us = copy_delay_us});
    auto stream = Stream::Create(gpus_, Device(1));
    ASSERT_OK(stream);
    auto loader = DataLoader::Create(
        plan_, {source_},
        {.threads = 2,
         .device_copy = DeviceCopyOptions{
             .gpus = gpus_, .device = Device(1), .consumer_stream = stream->native()}});
    ASSERT_OK(loader);
    EXPECT_GT(FakeGpuCounted().streams, 1);
    std::vector<std::vector<std::int64_t>> seen, expected;
    std::vector<std::unique_ptr<DeviceBuffer>> results;
    while (const DataBatch* batch = loader->Next()) {
      const BatchArray* x = batch->Find("x");
      ASSERT_NE(x->device, nullptr);
      expected.emplace_back(x->As<std::int64_t>().begin(), x->As<std::int64_t>().end());
      // Only given to the stream: the batch goes back long before it is done.
      auto result =
          DeviceBuffer::Create(gpus_, Device(1), Bytes(static_cast<std::int64_t>(x->size_bytes())),
                               MemoryPlace::kPinned);
      ASSERT_OK(result);
      ASSERT_OK(stream->Copy(result->data(), x->device,
                             Bytes(static_cast<std::int64_t>(x->size_bytes()))));
      results.push_back(std::make_unique<DeviceBuffer>(*std::move(result)));
    }
    ASSERT_OK(loader->status());
    ASSERT_OK(stream->Wait());
    for (const auto& result : results) {
      const auto* begin = static_cast<const std::int64_t*>(result->data());
      seen.emplace_back(begin, begin + result->size().value() / 8);
    }
    EXPECT_EQ(seen.size(), 42U);
    EXPECT_EQ(seen, expected);
  }
}

TEST_F(DataLoaderDeviceTest, HostMemoryIsPinnedAndNothingIsLeft) {
  {
    auto loader = DataLoader::Create(
        plan_, {source_},
        {.threads = 2, .device_copy = DeviceCopyOptions{.gpus = gpus_, .device = Device(0)}});
    ASSERT_OK(loader);
    for (int i = 0; i < 5; ++i) ASSERT_NE(loader->Next(), nullptr);
    EXPECT_GT(FakeGpuCounted().registered, 0);
    ASSERT_OK(loader->Restore(loader->state()));
    ASSERT_NE(loader->Next(), nullptr);
  }
  EXPECT_EQ(FakeGpuCounted().registered, 0);
  EXPECT_EQ(FakeGpuCounted().blocks, 0);
  EXPECT_EQ(FakeGpuCounted().streams, 0);
  EXPECT_EQ(FakeGpuCounted().events, 0);
}

TEST_F(DataLoaderDeviceTest, WorksWithoutThreadsAndWithNoRoom) {
  auto loader =
      DataLoader::Create(plan_, {source_},
                         {.threads = 0,
                          .budget = Bytes(1),
                          .device_copy = DeviceCopyOptions{.gpus = gpus_, .device = Device(0)}});
  ASSERT_OK(loader);
  int batches = 0;
  while (loader->Next() != nullptr) ++batches;
  EXPECT_OK(loader->status());
  EXPECT_EQ(batches, 42);
}

TEST_F(DataLoaderDeviceTest, AFailedCopyEndsTheData) {
  SetFakeGpuState({.copy_error = 2, .copies_before = 7});
  auto loader = DataLoader::Create(
      plan_, {source_},
      {.threads = 2, .device_copy = DeviceCopyOptions{.gpus = gpus_, .device = Device(0)}});
  ASSERT_OK(loader);
  int batches = 0;
  while (loader->Next() != nullptr) ++batches;
  EXPECT_FALSE(loader->status().ok());
  EXPECT_EQ(batches, 7);
}

TEST_F(DataLoaderDeviceTest, ADeviceThatIsNotThereIsRefused) {
  const auto error_of = [&](DeviceCopyOptions copy) {
    return DataLoader::Create(plan_, {source_}, {.device_copy = std::move(copy)}).status();
  };
  EXPECT_THAT(error_of({}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(error_of({.gpus = gpus_, .device = Device(9)}),
              StatusIs(StatusCode::kInvalidArgument));
  SetFakeGpuState({.devices = 0});
  EXPECT_THAT(error_of({.gpus = DeviceRuntime::Open({.library = testing::FakeGpuLibrary()})}),
              StatusIs(StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace ait
