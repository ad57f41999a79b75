// SPDX-License-Identifier: Apache-2.0
// What an engine tells of itself, and the state of its compression.
#include <algorithm>
#include <string_view>
#include <utility>

#include "parallel/agreement_internal.h"
#include "parallel/data_parallel_impl.h"
#include "tensor/catch.h"

namespace ait::inline v0 {
namespace {

// Bytes of the optimizer state of real elements, without padding.
struct StateBytes {
  std::int64_t masters = 0;
  std::int64_t states = 0;
};

StateBytes BytesOf(BoundOptimizer& optimizer) {
  StateBytes bytes;
  for (const StateSlice& slice : optimizer.State()) {
    const bool is_master =
        slice.state == "master" || slice.state == "remainder" || slice.state == "compensation";
    (is_master ? bytes.masters : bytes.states) += static_cast<std::int64_t>(slice.bytes.size());
  }
  return bytes;
}

// What `bytes` of `part` elements make of `all` elements over `ranks` ranks.
std::int64_t Scale(std::int64_t bytes, std::int64_t part, std::int64_t all, std::int64_t ranks) {
  if (part == 0) return 0;
  return static_cast<std::int64_t>(static_cast<double>(bytes) / static_cast<double>(part) *
                                   static_cast<double>(all) / static_cast<double>(ranks));
}

}  // namespace

MemoryReport DataParallel::Impl::Memory() const {
  MemoryReport report;
  const std::int64_t ranks = shard_->size().value();
  const bool shards_gradients = options.zero_stage >= ZeroStage::kGradients && reduces_each_;
  const std::int64_t gradient_ranks = shards_gradients ? ranks : 1;
  const std::int64_t state_ranks = is_sharded_ ? ranks : 1;
  std::int64_t real = 0;  // bytes of `measured` that are of elements of parameters
  for (std::size_t g = 0; g < layout.groups().size(); ++g) {
    const FlatGroup& group = layout.groups()[g];
    std::int64_t count = 0;
    std::int64_t owned = 0;
    std::int64_t in_units = 0;
    std::int64_t owned_in_units = 0;
    for (const FlatSlot& slot : group.slots) {
      const std::int64_t own =
          Intersection({slot.offset, slot.offset + slot.count}, Owned(bucket(slot.bucket))).size();
      count += slot.count;
      owned += own;
      if (bucket(slot.bucket).unit < 0) continue;
      in_units += slot.count;
      owned_in_units += own;
    }
    const std::int64_t parameter_bytes = SizeOf(group.dtype);
    const std::int64_t gradient_bytes = SizeOf(gradient_dtypes_[g]);
    report.formula.parameters += (count - in_units + in_units / ranks) * parameter_bytes;
    report.formula.gradients += count * gradient_bytes / gradient_ranks;
    report.measured.parameters += store_->buffers()[g].bytes().value();
    real += (count - in_units + owned_in_units) * parameter_bytes +
            (shards_gradients ? owned : count) * gradient_bytes;
    if (optimizers.empty()) continue;
    const StateBytes bytes = BytesOf(*optimizers[g]);
    report.formula.masters += Scale(bytes.masters, owned, count, state_ranks);
    report.formula.states += Scale(bytes.states, owned, count, state_ranks);
    report.measured.masters += optimizers[g]->master_bytes();
    report.measured.states += optimizers[g]->state_bytes() - optimizers[g]->master_bytes();
    // Of state in a file, what is in memory is in use, and is no padding.
    const std::int64_t in_file = optimizers[g]->offloaded_bytes();
    report.offloaded += in_file;
    real += in_file > 0 ? optimizers[g]->state_bytes() : bytes.masters + bytes.states;
  }
  AddUnits(report, real);
  report.measured.gradients = gradients_->gradient_bytes();
  report.measured.buckets = gradients_->bucket_bytes();
  report.peak_buckets = report.measured.buckets;  // the ring keeps what it has grown to
  if (optimizers.empty()) {
    report.measured.masters = report.formula.masters = initial_values_.bytes();
    real += initial_values_.bytes();
  }
  report.padding = report.measured.parameters + report.measured.gradients +
                   report.measured.masters + report.measured.states - real;
  return report;
}

StatusOr<CompressionState> DataParallel::Impl::SaveCompression() const {
  AIT_RETURN_IF_ERROR(BetweenSteps("SaveCompression"));
  return options.compression == nullptr ? CompressionState() : options.compression->Save();
}

StatusOr<std::string> DataParallel::Impl::LoadCompression(
    std::span<const CompressionState> states) {
  AIT_RETURN_IF_ERROR(BetweenSteps("LoadCompression"));
  const auto begin_anew = [&] {
    return options.compression->Bind(layout, communicator->rank(), communicator->size());
  };
  if (options.compression == nullptr) {
    const bool is_empty =
        std::ranges::all_of(states, [](const auto& state) { return state.method.empty(); });
    return std::string(is_empty ? "" : "the engine does not compress: the state is not used");
  }
  AIT_RETURN_IF_ERROR(begin_anew());
  const StatusOr<std::string> lost =
      internal::CatchAsStatus([&] { return options.compression->Load(states); });
  const Status agreed = internal::CheckAgreement(
      *communicator, lost.status(),
      {StrCat("state of the gradient compression: ", options.compression->Describe())}, 0,
      Labelled(""));
  if (agreed.ok()) return lost;
  AIT_RETURN_IF_ERROR(begin_anew());
  return agreed;
}

}  // namespace ait::inline v0
