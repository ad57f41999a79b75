// SPDX-License-Identifier: Apache-2.0
// What an engine does with reduced gradients: optimizers over the elements that this rank owns, and
// new parameters on all ranks.
#include <algorithm>
#include <utility>

#include "parallel/agreement_internal.h"
#include "parallel/data_parallel_impl.h"
#include "tensor/catch.h"

namespace ait::inline v0 {
namespace {

Time Now() { return SystemClock().now(); }

}  // namespace

// Algorithms over whole parameters need slices that end between them.
Status DataParallel::Impl::CheckWhole(const Optimizer& optimizer) const {
  if (!is_sharded_ || optimizer.ownership() != Ownership::kWholeParameters) return OkStatus();
  for (const FlatBucket& bucket : layout.buckets()) {
    for (const int parameter : bucket.parameters) {
      const FlatSlot& slot = *layout.slot(parameter);
      const ElementRange range{slot.offset, slot.offset + slot.count};
      for (int r = 0; r < shard_->size().value(); ++r) {
        const ElementRange part = Intersection(range, bucket.slice(Rank(r)));
        if (part.size() == 0 || part == range) continue;
        return InvalidArgumentError(
            optimizer.name(), " updates whole parameters, but of parameter ",
            layout.parameters()[static_cast<std::size_t>(parameter)].name, ", of ", slot.count,
            " elements, rank ", r, " owns ", part.size(),
            "; create the engine with .slices = SliceRule::kWholeParameters");
      }
    }
  }
  return OkStatus();
}

StatusOr<ParameterLayout> DataParallel::Impl::OptimizerLayout(std::size_t g) const {
  std::vector<std::int64_t> model_elements;
  std::int64_t element = 0;
  for (const ParameterInfo& info : layout.parameters()) {
    model_elements.push_back(element);
    if (info.tied_to < 0) element += info.count();
  }
  const FlatGroup& group = layout.groups()[g];
  ParameterLayout parameters;
  for (const FlatSlot& slot : group.slots) {
    const auto index = static_cast<std::size_t>(slot.parameter);
    const ParameterInfo& info = layout.parameters()[index];
    if (group.dtype != DType::kFloat32 && group.dtype != DType::kBFloat16 &&
        group.dtype != DType::kFloat16) {
      return UnimplementedError("parameter ", info.name, " is ", Name(group.dtype),
                                "; the optimizers update float32, bfloat16 and float16");
    }
    parameters.parameters.push_back({.name = info.name,
                                     .begin = slot.offset,
                                     .shape = info.sizes,
                                     .model_element = model_elements[index],
                                     .strides = info.strides});
  }
  if (!is_sharded_) {
    parameters.owned.push_back({.begin = 0, .end = group.count});
    return parameters;
  }
  for (const FlatBucket& bucket : layout.buckets()) {
    const ElementRange owned = Owned(bucket);
    if (bucket.group == static_cast<int>(g) && owned.size() > 0) parameters.owned.push_back(owned);
  }
  std::ranges::sort(parameters.owned, {}, &ElementRange::begin);
  return parameters;
}

StatusOr<DataParallel::Impl::Optimizers> DataParallel::Impl::Bind(const Optimizer& optimizer,
                                                                  SimdLevel max_simd_level) const {
  AIT_RETURN_IF_ERROR(CheckWhole(optimizer));
  std::vector<ParameterLayout> layouts;
  for (std::size_t g = 0; g < layout.groups().size(); ++g) {
    AIT_ASSIGN_OR_RETURN(layouts.emplace_back(), OptimizerLayout(g));
  }
  Optimizers bound;
  for (std::size_t g = 0; g < layout.groups().size(); ++g) {
    auto own = optimizer.Bind(layouts[g], {.executor = executor_,
                                           .max_simd_level = max_simd_level,
                                           .parameter_dtype = layout.groups()[g].dtype,
                                           .masters = options.precision.masters,
                                           .seed = options.precision.seed,
                                           .offload = options.offload});
    if (!own.ok()) return Annotate(own.status(), optimizer.name());
    bound.push_back(*std::move(own));
  }
  return bound;
}

Status DataParallel::Impl::SetOptimizer(const Optimizer& optimizer, SimdLevel max_simd_level) {
  AIT_RETURN_IF_ERROR(Usable("SetOptimizer"));
  if (state_ == State::kAccumulating || state_ == State::kReducing) {
    return FailedPreconditionError(
        "SetOptimizer: micro-steps of a step are open; call it between steps, or after "
        "FinishGradients");
  }
  StatusOr<Optimizers> bound =
      internal::CatchAsStatus([&] { return Bind(optimizer, max_simd_level); });
  if (is_sharded_ && HasBelowFp32()) {
    // All ranks or none; and from here on no rank reads the parameters that are rewritten.
    AIT_RETURN_IF_ERROR(
        internal::CheckAgreement(*communicator, bound.status(), {}, 0, Labelled("")));
  }
  AIT_RETURN_IF_ERROR(bound.status());
  const Status rewritten = SetMasters(*bound);
  if (!rewritten.ok()) return ended.ok() ? End(rewritten, "SetOptimizer") : rewritten;
  optimizers = *std::move(bound);
  groups_ = optimizer.groups();
  initial_values_.Clear();
  return OkStatus();
}

bool DataParallel::Impl::HasBelowFp32() const {
  return std::ranges::any_of(layout.groups(),
                             [](const FlatGroup& group) { return group.dtype != DType::kFloat32; });
}

// Gives new optimizers the parameters below fp32 as exactly as they are known: by the optimizers
// before, by the tensors that the engine was made of, or as they are.
Status DataParallel::Impl::SetMasters(std::span<const std::unique_ptr<BoundOptimizer>> bound) {
  for (int b = 0; b < bucket_count(); ++b) {
    const auto g = static_cast<std::size_t>(bucket(b).group);
    if (layout.groups()[g].dtype == DType::kFloat32) continue;
    const auto [begin, end] = Owned(bucket(b));
    if (begin == end) continue;
    const UpdateSlice slice{.begin = begin, .parameters = OwnParameters(b)};
    std::vector<float> widened = internal::WidenedValues(slice.parameters);
    std::span<float> values = widened;
    if (!optimizers.empty()) {
      AIT_RETURN_IF_ERROR(optimizers[g]->GetParameters(slice, values));
      internal::KeepWhatRounds(slice.parameters, values);
    } else if (!initial_values_.of(b).empty()) {
      values = initial_values_.of(b);
      internal::KeepWhatRounds(slice.parameters, values);
    }
    AIT_RETURN_IF_ERROR(bound[g]->SetParameters(slice, values));
  }
  // Masters round their own way.
  return HasBelowFp32() && is_sharded_ ? GatherParameters() : OkStatus();
}

Status DataParallel::Impl::Update(const StepOptions& given) {
  AIT_RETURN_IF_ERROR(Usable("Update"));
  if (state_ != State::kDecided) {
    return FailedPreconditionError(
        "Update: the gradients are not reduced; call FinishGradients first");
  }
  if (optimizers.size() != layout.groups().size()) {
    return FailedPreconditionError("Update: the engine has no optimizer; call SetOptimizer first");
  }
  // Where the peers are about to wait for this rank, its refusal ends the engine for all.
  const auto refuse = [this](const Status& reason) {
    return is_sharded_ && ended.ok() ? End(reason, "Update") : reason;
  };
  const Status found = TakeHookError();
  if (!found.ok()) return refuse(found);
  const Status unchanged = CheckUnchanged();
  if (!unchanged.ok()) return refuse(unchanged);
  const Time begin = Now();
  const Status adopted = gradients_->Adopt();
  if (!adopted.ok()) return End(adopted, "taking over gradients");
  StepOptions step = given;
  step.gradients_after = GradientsAfter::kKept;  // the next step writes over them
  for (const auto& optimizer : optimizers) {
    const Status begun = optimizer->BeginStep(step);
    if (!begun.ok()) return refuse(begun);
  }
  AIT_RETURN_IF_ERROR(is_sharded_ ? UpdateSlices() : UpdateWhole());
  BumpVersions();
  counters.update = Now() - begin;
  CloseStep(GradientCompression::StepEnd::kUpdated);
  return OkStatus();
}

Status DataParallel::Impl::UpdateWhole() {
  for (std::size_t g = 0; g < optimizers.size(); ++g) {
    const Status updated = optimizers[g]->Update(
        {.begin = 0, .parameters = store_->buffers()[g], .gradients = gradients_->Whole(g)});
    if (!updated.ok()) return End(updated, "the update");
  }
  return OkStatus();
}

// One pass over the slices of this rank, which writes the new parameters to all ranks; where their
// memory is out of reach, all-gathers follow the pass bucket by bucket.
Status DataParallel::Impl::UpdateSlices() {
  const bool reaches = is_reached_by_peers_ || std::ranges::any_of(peers_, [](const auto& group) {
                         return !group.empty();
                       });
  // Nobody reads its parameters any more.
  if (reaches) AIT_RETURN_IF_ERROR(Meet("before the update"));
  Status updated;
  std::vector<Work> gathers;
  for (int b = 0; b < bucket_count() && updated.ok(); ++b) {
    const auto g = static_cast<std::size_t>(bucket(b).group);
    const auto [begin, end] = Owned(bucket(b));
    const bool is_whole = bucket(b).unit < 0;
    const std::int64_t skip =
        (store_->begin(b) + begin - bucket(b).begin) * SizeOf(layout.groups()[g].dtype);
    copies_.clear();
    if (is_whole) {
      for (std::byte* const peer : peers_[g]) copies_.push_back(peer + skip);
    }
    if (end > begin) {
      updated = optimizers[g]->Update({.begin = begin,
                                       .parameters = OwnParameters(b),
                                       .gradients = gradients_->Owned(b),
                                       .copies = copies_});
    }
    if (is_whole && peers_[g].empty() && updated.ok()) gathers.push_back(GatherBucket(b));
  }
  // Also after an error: what the peers write here has to be over.
  const Status met = reaches ? Meet("after the update") : OkStatus();
  if (!updated.ok()) return End(updated, "the update");
  AIT_RETURN_IF_ERROR(met);
  const Time begin = Now();
  const Status gathered = WaitAll(gathers);
  counters.exposed += Now() - begin;
  return gathered.ok() ? OkStatus() : End(gathered, "gathering parameters");
}

Status DataParallel::Impl::Meet(const char* label) {
  const Time begin = Now();
  const Status met = shard_->Barrier(Labelled(label)).Wait();
  counters.exposed += Now() - begin;
  ++counters.collectives;
  return met.ok() ? OkStatus() : End(met, label);
}

// Bucket b of the parameters from the owners of its slices, in place.
Work DataParallel::Impl::GatherBucket(int b) {
  const FlatBucket& from = bucket(b);
  if (from.count == 0 || shard_->size().value() == 1) return Work();
  const Buffer whole = store_->Elements(b, {from.begin, from.begin + from.count});
  const auto [begin, end] = Owned(from);
  ++counters.collectives;
  counters.communicated_bytes += whole.bytes().value();
  return shard_->AllGather(whole.Slice(begin - from.begin, end - begin), whole, from.slice_counts,
                           Labelled(StrCat("parameters of ", reducer_->LabelOfBucket(b))));
}

Status DataParallel::Impl::GatherParameters() {
  std::vector<Work> gathers;
  for (int b = 0; b < bucket_count(); ++b) {
    if (bucket(b).unit < 0) gathers.push_back(GatherBucket(b));
  }
  const Status gathered = WaitAll(gathers);
  if (!gathered.ok()) return End(gathered, "gathering parameters");
  BumpVersions();
  return is_reached_by_peers_ ? Meet("after the parameters have changed") : OkStatus();
}

}  // namespace ait::inline v0
