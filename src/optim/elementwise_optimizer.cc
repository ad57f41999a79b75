// SPDX-License-Identifier: Apache-2.0
#include "optim/elementwise_optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kMaxArrays = 8;  // of an algorithm

class ElementwiseOptimizer final : public FlatOptimizer {
 public:
  explicit ElementwiseOptimizer(std::unique_ptr<ElementwiseRule> rule) : rule_(std::move(rule)) {}

  Status Bind(const ParameterLayout& layout, const ParameterGroups& groups, BindOptions options,
              std::vector<StateArray> arrays) {
    array_count_ = arrays.size();
    return Init(layout, groups, std::move(options), std::move(arrays));
  }

 private:
  void OnBeginStep(const StepOptions& options) override {
    zero_gradients_ = options.gradients_after == GradientsAfter::kZero;
    rule_->BeginStep(step(), options);
  }

  Status UpdateOwned(const UpdateSlice& slice) override {
    const bool plain = access().dtype() == DType::kFloat32 &&
                       slice.gradients.dtype == DType::kFloat32 && slice.copies.empty() &&
                       !prepares_gradients();
    ForEachPart(executor(), RangeOf(slice), [&](ElementRange part) {
      ForEachPiece(part, [&](const OwnedPiece& piece, ElementRange range) {
        plain ? UpdatePlain(slice, piece, range) : UpdateInTiles(slice, piece, range);
      });
    });
    return OkStatus();
  }

  using StatePointers = std::array<std::byte*, kMaxArrays>;

  StatePointers StateOf(const OwnedPiece& piece, std::int64_t element) const {
    StatePointers state{};
    for (std::size_t i = 0; i < array_count_; ++i) state[i] = StateAt(piece, i, element);
    return state;
  }

  void UpdatePlain(const UpdateSlice& slice, const OwnedPiece& piece, ElementRange range) const {
    const StatePointers state = StateOf(piece, range.begin);
    rule_->Update(piece.group, {.parameters = FloatsAt(slice, slice.parameters, range.begin),
                                .gradients = FloatsAt(slice, slice.gradients, range.begin),
                                .state = state.data(),
                                .n = range.size(),
                                .zero_gradients = zero_gradients_});
  }

  // Widens what is not fp32, runs the same arithmetic, and writes back.
  void UpdateInTiles(const UpdateSlice& slice, const OwnedPiece& piece, ElementRange range) const {
    constexpr std::int64_t kTile = ParameterAccess::kTileElements;
    alignas(64) std::array<float, kTile> parameter_tile;
    alignas(64) std::array<float, kTile> gradient_tile;
    const bool own_gradients = slice.gradients.dtype == DType::kFloat32 && !prepares_gradients();
    for (ElementRange tile = range; tile.begin < range.end; tile.begin = tile.end) {
      tile.end = std::min(tile.begin + kTile, range.end);
      float* parameters =
          access().InPlace(At(slice, slice.parameters, tile.begin), BesideAt(piece, tile.begin));
      if (parameters == nullptr) {
        ReadValues(slice, piece, tile, parameters = parameter_tile.data());
      }
      float* gradients = gradient_tile.data();
      if (own_gradients) {
        gradients = FloatsAt(slice, slice.gradients, tile.begin);
      } else {
        ReadGradients(slice, tile, gradients);
      }
      PrefetchTile(slice, piece, {tile.end, std::min(tile.end + kTile, range.end)});
      const StatePointers state = StateOf(piece, tile.begin);
      rule_->Update(piece.group, {.parameters = parameters,
                                  .gradients = gradients,
                                  .state = state.data(),
                                  .n = tile.size(),
                                  .zero_gradients = zero_gradients_ && own_gradients});
      WriteValues(slice, piece, tile, parameters);
      if (zero_gradients_ && !own_gradients) ZeroGradients(slice, tile);
    }
  }

  // What the conversions of the next tile use: they are too short to wait for memory. The rule asks
  // for its own arrays ahead of use.
  void PrefetchTile(const UpdateSlice& slice, const OwnedPiece& piece, ElementRange tile) const {
    if (slice.gradients.dtype != DType::kFloat32) {
      Prefetch(At(slice, slice.gradients, tile.begin), tile.size() * 2);
    }
    if (access().dtype() == DType::kFloat32) return;
    Prefetch(At(slice, slice.parameters, tile.begin), tile.size() * 2);
    if (access().masters() == Masters::kRemainder || access().masters() == Masters::kKahan) {
      Prefetch(BesideAt(piece, tile.begin), tile.size() * 2);
    }
  }

  static void Prefetch(const std::byte* begin, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(begin + at, 1);
  }

  static float* FloatsAt(const UpdateSlice& slice, const Buffer& buffer, std::int64_t element) {
    return reinterpret_cast<float*>(At(slice, buffer, element));
  }

  std::unique_ptr<ElementwiseRule> rule_;
  std::size_t array_count_ = 0;
  bool zero_gradients_ = false;
};

}  // namespace

std::vector<GroupRates> RatesOf(const ParameterGroups& groups, GroupRates own) {
  std::vector<GroupRates> rates;
  for (const ParameterGroup& group : groups) {
    rates.push_back({.learning_rate = group.learning_rate.value_or(own.learning_rate),
                     .weight_decay = group.weight_decay.value_or(own.weight_decay)});
  }
  rates.push_back(own);
  return rates;
}

std::string DescribeOptimizer(const Optimizer& optimizer, std::string_view options) {
  const auto number = [](const std::optional<double>& value) {
    return value ? StrCat(*value) : std::string("none");
  };
  std::string text = StrCat(optimizer.name(), " v", optimizer.state_version(), " {", options, "}");
  for (const ParameterGroup& group : optimizer.groups()) {
    text += StrCat(" [", group.name.size(), ":", group.name, " ", group.pattern.size(), ":",
                   group.pattern, " ", group.min_dimensions, "..", group.max_dimensions,
                   " learning_rate ", number(group.learning_rate), " weight_decay ",
                   number(group.weight_decay), "]");
  }
  return text;
}

Status CheckOption(std::string_view optimizer, std::string_view option, double value, double least,
                   double bound) {
  if (value >= least && value < bound) return OkStatus();
  if (std::isinf(bound)) {
    return InvalidArgumentError(optimizer, ": ", option, " is ", value,
                                "; it must be finite and at least ", least);
  }
  return InvalidArgumentError(optimizer, ": ", option, " is ", value, "; it must be at least ",
                              least, " and below ", bound);
}

std::vector<StateArray> Float32Arrays(const std::vector<std::string>& names) {
  std::vector<StateArray> arrays;
  for (const std::string& name : names) arrays.push_back({.name = name});
  return arrays;
}

StatusOr<std::unique_ptr<BoundOptimizer>> BindElementwise(const ParameterLayout& layout,
                                                          const ParameterGroups& groups,
                                                          BindOptions options,
                                                          std::vector<StateArray> arrays,
                                                          std::unique_ptr<ElementwiseRule> rule) {
  auto optimizer = std::make_unique<ElementwiseOptimizer>(std::move(rule));
  AIT_RETURN_IF_ERROR(optimizer->Bind(layout, groups, std::move(options), std::move(arrays)));
  return std::unique_ptr<BoundOptimizer>(std::move(optimizer));
}

}  // namespace ait::inline v0::internal
