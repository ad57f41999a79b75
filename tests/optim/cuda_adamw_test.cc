// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/cuda_adamw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ait/base/float16.h"
#include "ait/device/buffer.h"
#include "ait/device/stream.h"
#include "optim/optim_fixtures.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::LayoutOf;
using ::ait::testing::RandomFloats;
using ::ait::testing::SameBits;
using ::ait::testing::StatusIs;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr std::int64_t kCount = 300'007;

TEST(CudaAdamW, WithoutKernelsDriverOrDeviceItSaysSo) {
  if (DeviceRuntime::Open()->count() > 0) GTEST_SKIP() << "there is one";
  EXPECT_THAT(CudaAdamW::Create(Device(0)),
              StatusIs(StatusCode::kFailedPrecondition,
                       AnyOf(HasSubstr("no GPU"), HasSubstr("without nvcc"))));
}

// On a GPU: the bits of the optimizer of the host.
class OnGpu : public ::testing::TestWithParam<std::pair<DType, DType>> {
 protected:
  void SetUp() override {
    if (gpus_->count() == 0) GTEST_SKIP() << gpus_->status();
  }

  DeviceBuffer Upload(Stream& stream, const void* from, std::int64_t bytes) {
    auto buffer = DeviceBuffer::Create(gpus_, Device(0), Bytes(bytes));
    EXPECT_OK(buffer);
    EXPECT_OK(stream.Copy(buffer->data(), from, Bytes(bytes)));
    return *std::move(buffer);
  }

  std::shared_ptr<DeviceRuntime> gpus_ = DeviceRuntime::Open();
};

INSTANTIATE_TEST_SUITE_P(DTypes, OnGpu,
                         ::testing::Values(std::pair(DType::kFloat32, DType::kFloat32),
                                           std::pair(DType::kFloat32, DType::kBFloat16),
                                           std::pair(DType::kBFloat16, DType::kFloat32),
                                           std::pair(DType::kBFloat16, DType::kBFloat16)));

TEST_P(OnGpu, GivesTheBitsOfTheHost) {
  const auto [parameter_dtype, gradient_dtype] = GetParam();
  const AdamWOptions options = {.learning_rate = 1e-2, .weight_decay = 0.1};
  const bool halves = parameter_dtype == DType::kBFloat16;
  std::vector<float> exact = RandomFloats(kCount, 1);
  std::vector<BFloat16> narrow(kCount);
  ASSERT_OK_AND_ASSIGN(const auto host, AdamW{options}.Bind(LayoutOf({kCount}),
                                                            {.parameter_dtype = parameter_dtype}));
  const Buffer parameters = halves ? View(narrow) : View(exact);
  ASSERT_OK(host->SetParameters({.parameters = parameters}, std::vector<float>(exact)));

  ASSERT_OK_AND_ASSIGN(Stream stream, Stream::Create(gpus_, Device(0)));
  ASSERT_OK_AND_ASSIGN(const auto gpu, CudaAdamW::Create(Device(0), options));
  const std::vector<float> zeros(kCount);
  const DeviceBuffer p = Upload(stream, exact.data(), 4 * kCount);
  const DeviceBuffer copy = Upload(stream, narrow.data(), 2 * kCount);
  const DeviceBuffer m = Upload(stream, zeros.data(), 4 * kCount);
  const DeviceBuffer v = Upload(stream, zeros.data(), 4 * kCount);
  const StepOptions step_options = {.learning_rate_factor = 0.5,
                                    .gradient_scale = 0.25,
                                    .gradients_after = GradientsAfter::kZero};
  DeviceBuffer g;
  for (int step = 1; step <= 5; ++step) {
    std::vector<float> wide = RandomFloats(kCount, 10 + step);
    std::vector<BFloat16> half;
    for (const float x : wide) half.emplace_back(x);
    const Buffer gradients = gradient_dtype == DType::kBFloat16 ? View(half) : View(wide);
    g = Upload(stream, gradients.data, gradients.bytes().value());
    ASSERT_OK(gpu->Update(stream.native(), step, step_options,
                          {.parameters = halves ? copy.data() : p.data(),
                           .parameter_dtype = parameter_dtype,
                           .master = halves ? static_cast<float*>(p.data()) : nullptr,
                           .gradients = g.data(),
                           .gradient_dtype = gradient_dtype,
                           .exp_avg = static_cast<float*>(m.data()),
                           .exp_avg_sq = static_cast<float*>(v.data()),
                           .count = kCount}));
    ASSERT_OK(stream.Wait());
    ASSERT_OK(host->BeginStep(step_options));
    ASSERT_OK(host->Update({.parameters = parameters, .gradients = gradients}));
  }
  std::vector<float> of_host(kCount), of_gpu(kCount), left(kCount);
  std::vector<BFloat16> narrow_of_gpu(kCount);
  ASSERT_OK(host->GetParameters({.parameters = parameters}, of_host));
  ASSERT_OK(stream.Copy(of_gpu.data(), p.data(), Bytes(4 * kCount)));
  ASSERT_OK(stream.Copy(narrow_of_gpu.data(), copy.data(), Bytes(2 * kCount)));
  ASSERT_OK(stream.Copy(left.data(), g.data(), g.size()));
  ASSERT_OK(stream.Wait());
  EXPECT_TRUE(SameBits(of_gpu, of_host));
  EXPECT_TRUE(SameBits(left, zeros)) << "gradients are zero afterwards";
  if (halves) {
    for (std::size_t i = 0; i < narrow.size(); ++i)
      ASSERT_EQ(narrow_of_gpu[i].bits, narrow[i].bits) << i;
  }
}

TEST_P(OnGpu, BadNumbersDTypesAndPointersAreRefused) {
  ASSERT_OK_AND_ASSIGN(const auto gpu, CudaAdamW::Create(Device(0)));
  EXPECT_THAT(gpu->Update(nullptr, 0, {}, {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("step 0")));
  EXPECT_THAT(gpu->Update(nullptr, 1, {}, {.parameter_dtype = DType::kFloat16}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("parameters are float16")));
  EXPECT_THAT(gpu->Update(nullptr, 1, {}, {.count = 5}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("lacks an array")));
}

}  // namespace
}  // namespace ait
