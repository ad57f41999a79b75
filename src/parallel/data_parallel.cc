// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/data_parallel.h"

#include <optional>
#include <type_traits>
#include <utility>

#include "ait/parallel/compression.h"
#include "ait/parallel/whole_parameters.h"
#include "parallel/agreement_internal.h"
#include "parallel/data_parallel_impl.h"
#include "parallel/layout_of_internal.h"
#include "tensor/catch.h"

namespace ait::inline v0 {
namespace {

std::string OptionsText(const DataParallelOptions& options) {
  return StrCat("options: zero_stage ", static_cast<int>(options.zero_stage), ", first_bucket ",
                options.first_bucket, ", bucket_cap ", options.bucket_cap, ", initial_sync ",
                options.initial_sync == InitialSync::kBroadcast ? "broadcast" : "verify",
                ", precision ", options.precision.Describe(), ", reduce ",
                options.reduce.has_value() ? static_cast<int>(*options.reduce) : -1,
                ", whole_up_to ", options.whole_up_to, ", prefetch ", options.prefetch, ", slices ",
                static_cast<int>(options.slices), ", hybrid ",
                options.hybrid.shard == nullptr ? 0 : options.hybrid.shard->size().value(), " x ",
                options.hybrid.replicate == nullptr ? 0 : options.hybrid.replicate->size().value(),
                ", must_agree \"", options.must_agree, "\", compression ",
                options.compression == nullptr ? "none" : options.compression->Describe());
}

Status CheckCompression(const DataParallelOptions& options) {
  if (options.compression == nullptr) return OkStatus();
  if (options.zero_stage != ZeroStage::kNone) {
    return InvalidArgumentError(
        "compression replaces the all-reduce of ZeroStage::kNone, but the "
        "stage is ",
        static_cast<int>(options.zero_stage),
        ", which reduces to owners; for fewer bytes set precision.reduction "
        "to bfloat16, or use kNone");
  }
  if (options.reduce == ReduceWhen::kEachMicroStep) {
    return InvalidArgumentError(
        "compression carries what it did not send from step to step; it reduces once a step: use "
        "ReduceWhen::kOnce");
  }
  if (options.precision.reduction != options.precision.gradients) {
    return InvalidArgumentError("precision.reduction is ", Name(options.precision.reduction),
                                ", but with compression that decides what travels; leave it at ",
                                Name(options.precision.gradients));
  }
  return OkStatus();
}

Status CheckHybrid(const Communicator& all, const DataParallelOptions& options) {
  const HybridSharding& hybrid = options.hybrid;
  if (hybrid.shard == nullptr && hybrid.replicate == nullptr) return OkStatus();
  if (hybrid.shard == nullptr || hybrid.replicate == nullptr) {
    return InvalidArgumentError("hybrid sharding needs both groups, but ",
                                hybrid.shard == nullptr ? "shard" : "replicate", " is null");
  }
  if (options.zero_stage == ZeroStage::kNone) {
    return InvalidArgumentError(
        "hybrid sharding is for ZeroStage::kOptimizer and above: kNone shards nothing");
  }
  const int shard = hybrid.shard->size().value();
  const int replicate = hybrid.replicate->size().value();
  if (shard * replicate != all.size().value()) {
    return InvalidArgumentError("hybrid sharding: ", shard, " ranks that shard times ", replicate,
                                " replicas are not the ", all.size(),
                                " ranks of the communicator; split it into groups of one size");
  }
  return OkStatus();
}

Status CheckUnits(const DataParallelOptions& options) {
  if (options.zero_stage != ZeroStage::kParameters) return OkStatus();
  if (options.units.empty()) {
    return InvalidArgumentError(
        "ZeroStage::kParameters gathers parameters by units, and there are none; name the parts of "
        "the model in DataParallelOptions::units, UnitsUnder(\"blocks\", parameters) for "
        "instance, and call them by DataParallel::Unit, or use ZeroStage::kGradients");
  }
  if (options.prefetch < 0 || options.prefetch > 8) {
    return InvalidArgumentError("prefetch is ", options.prefetch,
                                "; allowed are 0 to 8 units that are gathered ahead");
  }
  if (options.whole_up_to < 0) {
    return InvalidArgumentError("whole_up_to is ", options.whole_up_to,
                                "; it is a number of elements, at least 0");
  }
  return OkStatus();
}

Status CheckOptions(const Communicator& communicator, const DataParallelOptions& options) {
  AIT_RETURN_IF_ERROR(CheckUnits(options));
  if (options.offload.enabled()) AIT_RETURN_IF_ERROR(options.offload.Validate());
  AIT_RETURN_IF_ERROR(options.precision.Validate());
  AIT_RETURN_IF_ERROR(CheckCompression(options));
  return CheckHybrid(communicator, options);
}

// Buffers that share memory with a parameter would lose it when the parameter moves.
Status CheckBuffers(const NamedTensors& buffers, const NamedTensors& parameters) {
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const at::Tensor& buffer = buffers.tensor(b);
    if (!buffer.defined() || buffer.layout() != c10::kStrided || !buffer.device().is_cpu()) {
      return InvalidArgumentError("buffer ", buffers.name(b),
                                  " is not a dense tensor in host memory");
    }
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (buffer.numel() > 0 && parameters.tensor(p).is_alias_of(buffer)) {
        return InvalidArgumentError("buffer ", buffers.name(b), " shares memory with parameter ",
                                    parameters.name(p), "; clone it");
      }
    }
  }
  return OkStatus();
}

// Everything that a rank can find wrong by itself, before the ranks talk.
StatusOr<FlatLayout> Prepare(const Communicator& communicator, const NamedTensors& parameters,
                             const DataParallelOptions& options,
                             internal::CompressionLease& compression,
                             Status (*check_free)(const NamedTensors&)) {
  AIT_RETURN_IF_ERROR(CheckOptions(communicator, options));
  const Communicator& shard =
      options.hybrid.shard != nullptr ? *options.hybrid.shard : communicator;
  AIT_ASSIGN_OR_RETURN(FlatLayout layout, internal::LayoutOf(parameters, options, shard.size()));
  AIT_RETURN_IF_ERROR(CheckBuffers(options.buffers, parameters));
  AIT_RETURN_IF_ERROR(check_free(parameters));
  if (options.compression != nullptr) {
    AIT_RETURN_IF_ERROR(compression.Take(options.compression));
    AIT_RETURN_IF_ERROR(
        options.compression->Bind(layout, communicator.rank(), communicator.size()));
  }
  return layout;
}

internal::Facts AllFacts(const FlatLayout& layout, const DataParallelOptions& options) {
  internal::Facts facts = {OptionsText(options)};
  for (std::string& fact : internal::FactsOf(layout.parameters())) facts.push_back(std::move(fact));
  for (std::size_t b = 0; b < options.buffers.size(); ++b) {
    const at::Tensor& buffer = options.buffers.tensor(b);
    std::string sizes;
    for (const std::int64_t size : buffer.sizes()) sizes += StrCat(sizes.empty() ? "" : ", ", size);
    facts.push_back(StrCat("buffer ", options.buffers.name(b), ": ",
                           c10::toString(buffer.scalar_type()), " [", sizes, "]"));
  }
  return facts;
}

// Calls a method of the engine. An exception leaves it in the middle of something: it ends.
template <typename Impl, typename Function>
std::invoke_result_t<Function&> OrEnd(Impl& impl, const char* phase, Function&& function) {
  using Result = std::invoke_result_t<Function&>;
  std::optional<Result> result;
  const Status thrown = internal::CatchAsStatus([&] { result.emplace(function()); });
  return thrown.ok() ? *std::move(result) : Result(impl.End(thrown, phase));
}

}  // namespace

StatusOr<std::unique_ptr<DataParallel>> DataParallel::Create(
    std::shared_ptr<Communicator> communicator, NamedTensors parameters,
    DataParallelOptions options) {
  if (communicator == nullptr) return InvalidArgumentError("the communicator is null");
  internal::CompressionLease compression;
  StatusOr<FlatLayout> layout = internal::CatchAsStatus(
      [&] { return Prepare(*communicator, parameters, options, compression, Impl::CheckFree); });
  AIT_RETURN_IF_ERROR(internal::CheckAgreement(
      *communicator, layout.status(), layout.ok() ? AllFacts(*layout, options) : internal::Facts(),
      layout.ok() ? layout->hash() : 0, {.timeout = options.timeout}));
  auto impl = std::make_unique<Impl>(std::move(communicator), std::move(options),
                                     *std::move(layout), std::move(compression));
  AIT_RETURN_IF_ERROR(
      OrEnd(*impl, "moving the parameters", [&] { return impl->Start(std::move(parameters)); }));
  return std::unique_ptr<DataParallel>(new DataParallel(std::move(impl)));
}

DataParallel::DataParallel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DataParallel::~DataParallel() = default;

const std::shared_ptr<Communicator>& DataParallel::communicator() const {
  return impl_->communicator;
}
const FlatLayout& DataParallel::layout() const { return impl_->layout; }
const DataParallelOptions& DataParallel::options() const { return impl_->options; }
const NamedTensors& DataParallel::parameters() const { return impl_->parameters(); }
const NamedTensors& DataParallel::buffers() const { return impl_->options.buffers; }
StatusOr<WholeParameters> DataParallel::GatherFull() {
  return OrEnd(*impl_, "GatherFull", [&] { return impl_->GatherFull(); });
}
MemoryReport DataParallel::Memory() const { return impl_->Memory(); }
const StepCounters& DataParallel::counters() const { return impl_->counters; }
const Status& DataParallel::status() const { return impl_->ended; }
std::span<const std::unique_ptr<BoundOptimizer>> DataParallel::optimizers() const {
  return impl_->optimizers;
}

Status DataParallel::SetOptimizer(const Optimizer& optimizer, SimdLevel max_simd_level) {
  return OrEnd(*impl_, "SetOptimizer",
               [&] { return impl_->SetOptimizer(optimizer, max_simd_level); });
}
Status DataParallel::BeginMicroStep(MicroStep micro_step) {
  return OrEnd(*impl_, "BeginMicroStep", [&] { return impl_->BeginMicroStep(micro_step); });
}
Status DataParallel::Backward(const at::Tensor& loss) {
  return OrEnd(*impl_, "Backward", [&] { return impl_->Backward(loss); });
}
StatusOr<GradientSummary> DataParallel::FinishGradients(const StepInput& input) {
  return OrEnd(*impl_, "FinishGradients", [&] { return impl_->FinishGradients(input); });
}
Status DataParallel::Update(const StepOptions& options) {
  return OrEnd(*impl_, "Update", [&] { return impl_->Update(options); });
}
void DataParallel::Abort(const Status& reason) { impl_->Abort(reason); }
Status DataParallel::Discard() {
  return OrEnd(*impl_, "Discard", [&] { return impl_->Discard(); });
}
StatusOr<CompressionState> DataParallel::SaveCompression() const {
  return internal::CatchAsStatus([&] { return impl_->SaveCompression(); });
}
StatusOr<std::string> DataParallel::LoadCompression(std::span<const CompressionState> states) {
  return OrEnd(*impl_, "LoadCompression", [&] { return impl_->LoadCompression(states); });
}
Status DataParallel::BroadcastBuffers() {
  return OrEnd(*impl_, "BroadcastBuffers", [&] { return impl_->BroadcastBuffers(); });
}

}  // namespace ait::inline v0
