// SPDX-License-Identifier: Apache-2.0
#include "optim/whole_parameter_optimizer.h"

#include <numeric>
#include <utility>

#include "ait/base/types.h"
#include "ait/memory/heap.h"
#include "optim/flat_optimizer.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kArrayAlignment = 16;  // elements: each state array begins a cache line

std::int64_t CountOf(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::size_t FloatBytes(std::int64_t count) {
  return static_cast<std::size_t>(RoundUp(count, kArrayAlignment)) * sizeof(float);
}

// Calls move(i, place) for each element: its row-major number and its place in the buffer.
template <typename Move>
void ForEachElement(const ParameterSegment& segment, const Move& move) {
  const std::size_t dimensions = segment.shape.size();
  std::vector<std::int64_t> index(dimensions, 0);
  const std::int64_t count = segment.size();
  std::int64_t place = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    move(i, place);
    for (std::size_t d = dimensions; d-- > 0;) {
      place += segment.strides[d];
      if (++index[d] < segment.shape[d]) break;
      place -= segment.shape[d] * segment.strides[d];
      index[d] = 0;
    }
  }
}

class WholeParameterOptimizer final : public FlatOptimizer {
 public:
  explicit WholeParameterOptimizer(std::unique_ptr<WholeParameterRule> rule)
      : rule_(std::move(rule)), scratch_memory_(HeapResource::Create()) {}

  Status Init(const ParameterLayout& layout, const ParameterGroups& groups, BindOptions options) {
    MemoryHandle memory = options.memory ? options.memory : HeapResource::Create();
    AIT_RETURN_IF_ERROR(
        FlatOptimizer::Init(layout, groups, std::move(options), {}, Ownership::kWholeParameters));
    // A piece is a whole parameter.
    std::int64_t elements = 0;
    for (const OwnedPiece& piece : pieces()) {
      const ParameterSegment& parameter = parameters()[piece.parameter];
      const Owned& owned =
          owned_.emplace_back(Owned{rule_->StateOf(parameter), {}, rule_->ScratchBytes(parameter)});
      for (const ShapedArray& array : owned.arrays)
        elements += RoundUp(CountOf(array.shape), kArrayAlignment);
    }
    auto buffer = HostBuffer::Create(std::move(memory), FloatBytes(elements));
    if (!buffer.ok()) return Annotate(buffer.status(), "optimizer state");
    state_ = *std::move(buffer);
    float* next = state_.As<float>().data();
    for (Owned& owned : owned_) {
      for (const ShapedArray& array : owned.arrays) {
        const std::int64_t count = RoundUp(CountOf(array.shape), kArrayAlignment);
        // First touch by the threads that will update.
        ForEachChunk(executor(), count, [&](std::int64_t begin, std::int64_t size) {
          std::fill_n(next + begin, size, 0.0f);
        });
        owned.state.push_back(next);
        next += count;
      }
    }
    return OkStatus();
  }

  std::vector<StateSlice> State() override {
    const std::vector<StateSlice> beside = FlatOptimizer::State();  // masters, one for each piece
    std::vector<StateSlice> slices;
    for (std::size_t p = 0; p < owned_.size(); ++p) {
      const Owned& owned = owned_[p];
      for (std::size_t i = 0; i < owned.arrays.size(); ++i) {
        const std::vector<std::int64_t>& shape = owned.arrays[i].shape;
        const std::span values(owned.state[i], static_cast<std::size_t>(CountOf(shape)));
        slices.push_back({.parameter = parameters()[pieces()[p].parameter].name,
                          .state = owned.arrays[i].name,
                          .bytes = std::as_writable_bytes(values),
                          .shape = shape});
      }
      if (!beside.empty()) slices.push_back(beside[p]);
    }
    return slices;
  }

  std::int64_t state_bytes() const override {
    return FlatOptimizer::state_bytes() + static_cast<std::int64_t>(state_.size_bytes());
  }

 protected:
  void OnBeginStep(const StepOptions& options) override {
    rule_->BeginStep(step(), options);
    zero_gradients_ = options.gradients_after == GradientsAfter::kZero;
  }

  Status UpdateOwned(const UpdateSlice& slice) override {
    std::size_t bytes = 0;
    ForEachPiece(RangeOf(slice), [&](const OwnedPiece& piece, ElementRange) {
      bytes = std::max(bytes, RuleBytes(piece) + CopyBytes(slice, piece));
    });
    AIT_ASSIGN_OR_RETURN(HostBuffer scratch, HostBuffer::Create(scratch_memory_, bytes));
    ForEachPiece(RangeOf(slice), [&](const OwnedPiece& piece, ElementRange) {
      UpdateOne(slice, piece, scratch.data());
    });
    return OkStatus();
  }

 private:
  struct Owned {
    std::vector<ShapedArray> arrays;
    std::vector<float*> state;
    std::size_t scratch_bytes = 0;
  };

  const Owned& OwnedOf(const OwnedPiece& piece) const {
    return owned_[static_cast<std::size_t>(&piece - pieces().data())];
  }

  std::size_t RuleBytes(const OwnedPiece& piece) const {
    return (OwnedOf(piece).scratch_bytes + 63) / 64 * 64;
  }

  bool NeedsRead(const UpdateSlice& slice) const {
    return slice.gradients.dtype != DType::kFloat32 || prepares_gradients();
  }

  // Copies of gradients and parameters, as fp32 and as row-major, as far as needed.
  std::size_t CopyBytes(const UpdateSlice& slice, const OwnedPiece& piece) const {
    const std::size_t bytes = FloatBytes(piece.range.size());
    if (!parameters()[piece.parameter].is_row_major()) return 4 * bytes;
    return NeedsRead(slice) || access().dtype() != DType::kFloat32 ? 2 * bytes : 0;
  }

  // `scratch` holds what the rule asked for, and then the copies.
  void UpdateOne(const UpdateSlice& slice, const OwnedPiece& piece, std::byte* scratch) {
    const ParameterSegment& segment = parameters()[piece.parameter];
    const std::int64_t begin = piece.range.begin, count = piece.range.size();
    auto* const first = reinterpret_cast<float*>(scratch + RuleBytes(piece));
    float* const second = first + RoundUp(count, kArrayAlignment);
    float* const third = second + RoundUp(count, kArrayAlignment);
    float* const fourth = third + RoundUp(count, kArrayAlignment);
    const auto part = [&](std::int64_t offset, std::int64_t size) {
      return ElementRange{begin + offset, begin + offset + size};
    };
    const auto for_each_chunk = [&](const auto& body) { ForEachChunk(executor(), count, body); };

    const float* gradients = reinterpret_cast<const float*>(At(slice, slice.gradients, begin));
    if (NeedsRead(slice)) {
      for_each_chunk([&](std::int64_t offset, std::int64_t size) {
        ReadGradients(slice, part(offset, size), first + offset);
      });
      gradients = first;
    }
    float* exact = access().InPlace(At(slice, slice.parameters, begin), BesideAt(piece, begin));
    if (exact == nullptr) {
      exact = second;
      for_each_chunk([&](std::int64_t offset, std::int64_t size) {
        ReadValues(slice, piece, part(offset, size), exact + offset);
      });
    }
    float* values = exact;
    const bool is_row_major = segment.is_row_major();
    if (!is_row_major) {
      values = third;
      ForEachElement(segment, [&](std::int64_t i, std::int64_t place) {
        values[i] = exact[place];
        fourth[i] = gradients[place];
      });
      gradients = fourth;
    }
    rule_->Update({.segment = segment,
                   .group = piece.group,
                   .values = values,
                   .gradients = gradients,
                   .state = OwnedOf(piece).state,
                   .scratch = scratch,
                   .executor = executor()});
    if (!is_row_major) {
      ForEachElement(segment,
                     [&](std::int64_t i, std::int64_t place) { exact[place] = values[i]; });
    }
    for_each_chunk([&](std::int64_t offset, std::int64_t size) {
      WriteValues(slice, piece, part(offset, size), exact + offset);
      if (zero_gradients_) ZeroGradients(slice, part(offset, size));
    });
  }

  std::unique_ptr<WholeParameterRule> rule_;
  MemoryHandle scratch_memory_;
  std::vector<Owned> owned_;  // by piece
  HostBuffer state_;
  bool zero_gradients_ = false;
};

}  // namespace

StatusOr<std::unique_ptr<BoundOptimizer>> BindWholeParameters(
    const ParameterLayout& layout, const ParameterGroups& groups, BindOptions options,
    std::unique_ptr<WholeParameterRule> rule) {
  auto bound = std::make_unique<WholeParameterOptimizer>(std::move(rule));
  AIT_RETURN_IF_ERROR(bound->Init(layout, groups, std::move(options)));
  return std::unique_ptr<BoundOptimizer>(std::move(bound));
}

}  // namespace ait::inline v0::internal
