// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/host_offload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <ostream>
#include <thread>
#include <tuple>

#include "ait/device/buffer.h"
#include "ait/optim/adam.h"
#include "ait/optim/norm.h"
#include "ait/optim/sgd.h"
#include "optim/optim_fixtures.h"
#include "support/fake_gpu.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::FakeGpuCounted;
using ::testing::HasSubstr;
using testing::LayoutOf;
using testing::RandomFloats;
using testing::SetFakeGpuState;
using testing::StatusIs;

constexpr std::int64_t kChunk = 4096;
constexpr int kCudaErrorOfACopy = 700;

std::shared_ptr<DeviceRuntime> Gpus() {
  return DeviceRuntime::Open({.library = testing::FakeGpuLibrary()});
}

// About ten chunks; parameters end anywhere.
ParameterLayout Layout() { return LayoutOf({30'000, 7, 9'000, 0, 1, 65}); }

using StateBytes = std::map<std::tuple<std::string, std::string>, std::vector<std::byte>>;

StateBytes StateOf(BoundOptimizer& optimizer) {
  StateBytes state;
  EXPECT_OK(optimizer.VisitState(StateAccess::kRead, [&](const StateSlice& slice) {
    auto& bytes = state[{std::string(slice.parameter), std::string(slice.state)}];
    bytes.insert(bytes.end(), slice.bytes.begin(), slice.bytes.end());
    return OkStatus();
  }));
  return state;
}

// A model on the fake device, and the same in memory of the host.
class Model {
 public:
  Model(std::shared_ptr<DeviceRuntime> gpus, DType dtype)
      : gpus_(std::move(gpus)),
        dtype_(dtype),
        count_(Layout().owned[0].end),
        stream_(*Stream::Create(gpus_, Device(0))),
        ready_(*Event::Create(gpus_, Device(0))),
        parameters_(*DeviceBuffer::Create(gpus_, Device(0), Bytes(count_ * SizeOf(dtype)))),
        gradients_(*DeviceBuffer::Create(gpus_, Device(0), Bytes(count_ * 4))),
        host_parameters_(static_cast<std::size_t>(count_ * SizeOf(dtype))),
        host_gradients_(static_cast<std::size_t>(count_)) {}

  void Bind(const Optimizer& optimizer, const BindOptions& options) {
    ASSERT_OK_AND_ASSIGN(bound_, optimizer.Bind(Layout(), options));
    // What lies on the device at first is not exact: what is lost by rounding is lost.
    const std::vector<float> values = RandomFloats(count_, 1);
    ASSERT_OK(bound_->SetParameters(HostSlice(0, count_), values));
    std::vector<float> rounded(values.size());
    ASSERT_OK_AND_ASSIGN(
        auto plain, Sgd{}.Bind(Layout(), {.parameter_dtype = dtype_, .masters = Masters::kNone}));
    ASSERT_OK(plain->GetParameters(HostSlice(0, count_), rounded));
    ASSERT_OK(bound_->SetParameters(HostSlice(0, count_), rounded));
    ASSERT_OK(stream_.Copy(parameters_.data(), host_parameters_.data(), parameters_.size()));
    ASSERT_OK(ready_.Record(stream_));
  }

  // New gradients on both sides, on the device behind `ready`.
  void Backward(unsigned seed) {
    host_gradients_ = RandomFloats(count_, seed);
    ASSERT_OK(stream_.Copy(gradients_.data(), host_gradients_.data(), gradients_.size()));
    ASSERT_OK(ready_.Record(stream_));
  }

  DeviceSlice Slice(std::int64_t begin, std::int64_t end) const {
    const Buffer parameters{parameters_.data(), count_, dtype_};
    const Buffer gradients{gradients_.data(), count_, DType::kFloat32};
    return {.begin = begin,
            .parameters = parameters.Slice(begin, end - begin),
            .gradients = gradients.Slice(begin, end - begin),
            .ready = &ready_};
  }
  UpdateSlice HostSlice(std::int64_t begin, std::int64_t end) {
    const Buffer parameters{host_parameters_.data(), count_, dtype_};
    return {.begin = begin,
            .parameters = parameters.Slice(begin, end - begin),
            .gradients = View(host_gradients_).Slice(begin, end - begin)};
  }

  void UpdateHost(const StepOptions& options) {
    ASSERT_OK(bound_->BeginStep(options));
    ASSERT_OK(bound_->Update(HostSlice(0, count_)));
  }

  // Behind `Await` on a stream, device and host are equal.
  void ExpectSame(HostOffload& offload) {
    ASSERT_OK(offload.Await(stream_));
    std::vector<std::byte> parameters(host_parameters_.size());
    std::vector<float> gradients(host_gradients_.size());
    ASSERT_OK(stream_.Copy(parameters.data(), parameters_.data(), parameters_.size()));
    ASSERT_OK(stream_.Copy(gradients.data(), gradients_.data(), gradients_.size()));
    ASSERT_OK(stream_.Wait());
    EXPECT_EQ(parameters, host_parameters_);
    EXPECT_EQ(StateOf(offload.optimizer()), StateOf(*bound_));
    // Padding is of no parameter: an update of the host leaves it, the device clears all.
    for (const ParameterSegment& parameter : Layout().parameters) {
      const auto [begin, end] = parameter.range();
      EXPECT_TRUE(testing::SameBits(std::span(gradients).subspan(begin, end - begin),
                                    std::span(host_gradients_).subspan(begin, end - begin)));
    }
  }

  std::int64_t count() const { return count_; }
  BoundOptimizer& bound() { return *bound_; }
  std::span<const float> host_gradients() const { return host_gradients_; }

 private:
  std::shared_ptr<DeviceRuntime> gpus_;
  DType dtype_;
  std::int64_t count_;
  Stream stream_;
  Event ready_;
  DeviceBuffer parameters_;
  DeviceBuffer gradients_;
  std::vector<std::byte> host_parameters_;
  std::vector<float> host_gradients_;
  std::unique_ptr<BoundOptimizer> bound_;
};

class HostOffloadTest : public ::testing::Test {
 protected:
  HostOffloadTest() { testing::ResetFakeGpu(); }
  ~HostOffloadTest() override { testing::ResetFakeGpu(); }

  HostOffloadOptions Options(BindOptions bind = {},
                             HostGradients gradients = HostGradients::kChunks) const {
    return {.runtime = gpus_,
            .gradients = gradients,
            .chunk_elements = kChunk,
            .chunks = 2,
            .bind = std::move(bind)};
  }

  std::shared_ptr<DeviceRuntime> gpus_ = Gpus();
};

struct Case {
  std::string name;
  std::shared_ptr<const Optimizer> optimizer;
  DType dtype = DType::kFloat32;
  Masters masters = Masters::kFloat32;
  HostGradients gradients = HostGradients::kChunks;
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class SameBits : public HostOffloadTest, public ::testing::WithParamInterface<Case> {};

TEST_P(SameBits, AsTheOptimizerOnTheHostWithSlowCopies) {
  SetFakeGpuState({.copy_delay_us = 300});
  const BindOptions bind{
      .parameter_dtype = GetParam().dtype, .masters = GetParam().masters, .seed = 3};
  Model model(gpus_, GetParam().dtype);
  model.Bind(*GetParam().optimizer, bind);
  ASSERT_OK_AND_ASSIGN(auto offload, HostOffload::Create(*GetParam().optimizer, Layout(),
                                                         Options(bind, GetParam().gradients)));
  ASSERT_OK(offload->TakeParameters(model.Slice(0, model.count())));
  for (unsigned step = 1; step <= 4; ++step) {
    const StepOptions options{
        .learning_rate_factor = 0.5,
        .gradient_scale = 0.25,
        .gradients_after = step % 2 == 0 ? GradientsAfter::kZero : GradientsAfter::kKept};
    model.Backward(step);
    ASSERT_OK(offload->BeginStep(options));
    for (const auto& [begin, end] :
         {std::pair<std::int64_t, std::int64_t>{0, 64}, {64, 20'032}, {20'032, model.count()}}) {
      ASSERT_OK(offload->Update(model.Slice(begin, end)));
    }
    model.UpdateHost(options);
    model.ExpectSame(*offload);
  }
  std::vector<float> exact(static_cast<std::size_t>(model.count()));
  std::vector<float> expected = exact;
  ASSERT_OK(offload->GetParameters(0, exact));
  ASSERT_OK(model.bound().GetParameters(model.HostSlice(0, model.count()), expected));
  EXPECT_TRUE(testing::SameBits(exact, expected));
}

std::vector<Case> Cases() {
  const auto adamw = std::make_shared<AdamW>(AdamW::Options{.weight_decay = 0.1});
  const auto sgd = std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.1, .momentum = 0.9});
  const auto bf16 = DType::kBFloat16;
  return {{"adamw", adamw},
          {"adamw_whole", adamw, DType::kFloat32, Masters::kFloat32, HostGradients::kWhole},
          {"sgd", sgd},
          {"adamw_bf16", adamw, bf16},
          {"adamw_bf16_whole", adamw, bf16, Masters::kFloat32, HostGradients::kWhole},
          {"adamw_remainder", adamw, bf16, Masters::kRemainder},
          {"adamw_kahan", adamw, bf16, Masters::kKahan},
          {"adamw_stochastic", adamw, bf16, Masters::kStochastic},
          {"adamw_fp16", adamw, DType::kFloat16}};
}
INSTANTIATE_TEST_SUITE_P(Optimizers, SameBits, ::testing::ValuesIn(Cases()),
                         [](const auto& way) { return way.param.name; });

TEST_F(HostOffloadTest, CopiesOtherChunksWhileOneIsUpdated) {
  Model model(gpus_, DType::kFloat32);
  model.Bind(AdamW{}, {});
  int before = -1;  // not yet
  int update = 0;
  BindOptions bind;
  // Update k goes on when the gradients of chunk k + 1 have come and chunk k - 1 has gone up: when
  // k + 2 chunks came down and k went up.
  bind.executor = {.threads = 2, .run = [&](int parts, const std::function<void(int)>& part) {
                     const int expected = before + (update + 2) + update;
                     for (int i = 0;
                          before >= 0 && i < 500 && FakeGpuCounted().copies_done < expected; ++i) {
                       std::this_thread::sleep_for(std::chrono::milliseconds(10));
                     }
                     if (before >= 0) {
                       EXPECT_EQ(FakeGpuCounted().copies_done, expected) << "update " << update;
                       ++update;
                     }
                     for (int i = 0; i < parts; ++i) part(i);
                   }};
  HostOffloadOptions options = Options(bind);
  options.chunk_elements = 4 * kChunk;  // three chunks, of which two are large enough for threads
  ASSERT_OK_AND_ASSIGN(auto offload, HostOffload::Create(AdamW{}, Layout(), options));
  ASSERT_OK(offload->TakeParameters(model.Slice(0, model.count())));
  model.Backward(1);
  ASSERT_OK(offload->BeginStep({}));
  before = FakeGpuCounted().copies;
  ASSERT_OK(offload->Update(model.Slice(0, model.count())));
  EXPECT_EQ(update, 2);
  model.UpdateHost({});
  model.ExpectSame(*offload);
}

TEST_F(HostOffloadTest, FetchesWhileBackwardRunsSoThatTheNormIsKnownBeforeTheUpdate) {
  SetFakeGpuState({.copy_delay_us = 200});
  Model model(gpus_, DType::kFloat32);
  model.Bind(AdamW{}, {});
  ASSERT_OK_AND_ASSIGN(auto offload,
                       HostOffload::Create(AdamW{}, Layout(), Options({}, HostGradients::kWhole)));
  ASSERT_OK(offload->TakeParameters(model.Slice(0, model.count())));
  for (unsigned step = 1; step <= 3; ++step) {
    model.Backward(step);
    ASSERT_OK(offload->Fetch(model.Slice(0, 20'032)));
    ASSERT_OK(offload->Fetch(model.Slice(20'032, model.count())));
    SumOfSquares sum;
    for (const auto& [begin, end] :
         {std::pair<std::int64_t, std::int64_t>{0, 20'032}, {20'032, model.count()}}) {
      ASSERT_OK_AND_ASSIGN(const ConstBuffer fetched,
                           offload->FetchedGradients(begin, end - begin));
      sum.Add(ComputeSumOfSquares(
          {static_cast<const float*>(fetched.data), static_cast<std::size_t>(fetched.count)}));
    }
    EXPECT_EQ(sum.value(), ComputeSumOfSquares(model.host_gradients()).value());
    if (step == 2) {  // a step that is skipped
      offload->DiscardFetched();
      EXPECT_THAT(offload->FetchedGradients(0, 64), StatusIs(StatusCode::kFailedPrecondition));
      continue;
    }
    const StepOptions options{.gradient_scale = 1 / std::sqrt(sum.value())};
    const int before = FakeGpuCounted().copies;
    ASSERT_OK(offload->BeginStep(options));
    ASSERT_OK(offload->Update(model.Slice(0, 20'032)));
    ASSERT_OK(offload->Update(model.Slice(20'032, model.count())));
    model.UpdateHost(options);
    // No gradient comes down a second time: only parameters go up, chunk by chunk.
    EXPECT_EQ(FakeGpuCounted().copies - before, 5 + 6);
    model.ExpectSame(*offload);
  }
}

TEST_F(HostOffloadTest, KeepsStateInAFileToo) {
  std::string directory = ::testing::TempDir() + "host-offload-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  Model model(gpus_, DType::kBFloat16);
  BindOptions bind{.parameter_dtype = DType::kBFloat16};
  model.Bind(AdamW{}, bind);
  bind.offload = {.directory = directory, .chunk = KiB(64)};
  ASSERT_OK_AND_ASSIGN(auto offload, HostOffload::Create(AdamW{}, Layout(), Options(bind)));
  EXPECT_GT(offload->optimizer().offloaded_bytes(), 0);
  ASSERT_OK(offload->TakeParameters(model.Slice(0, model.count())));
  for (unsigned step = 1; step <= 3; ++step) {
    model.Backward(step);
    ASSERT_OK(offload->BeginStep({}));
    ASSERT_OK(offload->Update(model.Slice(0, model.count())));
    model.UpdateHost({});
    model.ExpectSame(*offload);
  }
  offload.reset();
  std::filesystem::remove_all(directory);
}

TEST_F(HostOffloadTest, SetsExactParameters) {
  Model model(gpus_, DType::kBFloat16);
  const BindOptions bind{.parameter_dtype = DType::kBFloat16};
  model.Bind(AdamW{}, bind);
  ASSERT_OK_AND_ASSIGN(auto offload, HostOffload::Create(AdamW{}, Layout(), Options(bind)));
  const std::vector<float> values = RandomFloats(model.count(), 9);
  ASSERT_OK(offload->SetParameters(model.Slice(0, model.count()), values));
  ASSERT_OK(model.bound().SetParameters(model.HostSlice(0, model.count()), values));
  model.Backward(1);
  model.UpdateHost({});
  ASSERT_OK(offload->BeginStep({}));
  ASSERT_OK(offload->Update(model.Slice(0, model.count())));
  model.ExpectSame(*offload);
}

TEST_F(HostOffloadTest, TellsItsPinnedMemory) {
  const std::int64_t owned = Layout().owned[0].end;
  ASSERT_OK_AND_ASSIGN(auto chunks, HostOffload::Create(AdamW{}, Layout(), Options()));
  EXPECT_EQ(chunks->pinned_bytes(), owned * 4 + 2 * kChunk * 4);
  ASSERT_OK_AND_ASSIGN(auto whole,
                       HostOffload::Create(AdamW{}, Layout(), Options({}, HostGradients::kWhole)));
  EXPECT_EQ(whole->pinned_bytes(), owned * 4 + owned * 4);
}

// Faults.

TEST_F(HostOffloadTest, ReturnsTheErrorOfTheDeviceWhereverItComes) {
  Model model(gpus_, DType::kFloat32);
  model.Bind(AdamW{}, {});
  for (const int copies : {0, 1, 2, 3, 7, 15}) {
    ASSERT_OK_AND_ASSIGN(auto offload, HostOffload::Create(AdamW{}, Layout(), Options()));
    ASSERT_OK(offload->TakeParameters(model.Slice(0, model.count())));
    model.Backward(1);
    ASSERT_OK(offload->BeginStep({}));
    SetFakeGpuState(
        {.copy_error = kCudaErrorOfACopy, .copies_before = FakeGpuCounted().copies + copies});
    const Status status = offload->Update(model.Slice(0, model.count()));
    EXPECT_FALSE(status.ok()) << copies;
    EXPECT_THAT(Message(status), HasSubstr("host offload: "));
    // Nothing is on its way any more.
    EXPECT_EQ(FakeGpuCounted().copies, FakeGpuCounted().copies_done);
    SetFakeGpuState({});
  }
}

TEST_F(HostOffloadTest, SaysThatThereIsNoDevice) {
  SetFakeGpuState({.devices = 0});
  HostOffloadOptions options = Options();
  options.runtime = Gpus();
  EXPECT_THAT(HostOffload::Create(AdamW{}, Layout(), options),
              StatusIs(StatusCode::kFailedPrecondition));
  options.runtime = nullptr;
  EXPECT_THAT(HostOffload::Create(AdamW{}, Layout(), options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("DeviceRuntime::Open")));
}

TEST_F(HostOffloadTest, RefusesWhatDoesNotFit) {
  Model model(gpus_, DType::kFloat32);
  model.Bind(AdamW{}, {});
  HostOffloadOptions options = Options();
  options.chunks = 1;
  EXPECT_THAT(HostOffload::Create(AdamW{}, Layout(), options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("1 chunks")));
  ASSERT_OK_AND_ASSIGN(auto offload, HostOffload::Create(AdamW{}, Layout(), Options()));
  ASSERT_OK(offload->BeginStep({}));
  DeviceSlice slice = model.Slice(0, 128);
  slice.begin = model.count() - 64;
  EXPECT_THAT(offload->Update(slice), StatusIs(StatusCode::kInvalidArgument));
  slice = model.Slice(0, 128);
  slice.gradients.dtype = DType::kBFloat16;
  EXPECT_THAT(offload->Update(slice),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("bfloat16")));
  slice = model.Slice(0, 128);
  slice.gradients.count = 64;
  EXPECT_THAT(offload->Update(slice), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(offload->Fetch(model.Slice(0, 128)),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("kWhole")));
}

}  // namespace
}  // namespace ait
