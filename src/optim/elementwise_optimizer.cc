// SPDX-License-Identifier: Apache-2.0
#include "optim/elementwise_optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "ait/base/types.h"
#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "optim/partition.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kStateAlignment = 16;  // elements: each owned range begins a cache line

// A maximal run of parameter elements of one group, inside one owned range.
struct Run {
  ElementRange range;
  int group;
};

// An owned range and where its state begins in each state array.
struct OwnedRange {
  ElementRange range;
  std::int64_t state_begin;
};

class ElementwiseOptimizer final : public BoundOptimizer {
 public:
  ElementwiseOptimizer(const ParameterLayout& layout, const ParameterGroups& groups,
                       BindOptions options, std::vector<std::string> state_names,
                       std::unique_ptr<ElementwiseRule> rule)
      : parameters_(layout.parameters),
        state_names_(std::move(state_names)),
        executor_(std::move(options.executor)),
        rule_(std::move(rule)) {
    for (const ElementRange& range : layout.owned) {
      owned_.push_back({range, state_elements_});
      state_elements_ += RoundUp(range.size(), kStateAlignment);
    }
    for (const OwnedRange& owned : owned_) {
      for (const ParameterSegment& parameter : parameters_) {
        const ElementRange range = Intersection(parameter.range(), owned.range);
        if (range.size() == 0) continue;
        const int group = GroupOf(groups, parameter).value_or(static_cast<int>(groups.size()));
        if (!runs_.empty() && runs_.back().group == group &&
            runs_.back().range.end == range.begin && range.begin != owned.range.begin) {
          runs_.back().range.end = range.end;
        } else {
          runs_.push_back({range, group});
        }
      }
    }
  }

  Status AllocateState(MemoryHandle memory) {
    if (!memory) memory = HeapResource::Create();
    for (const std::string& name : state_names_) {
      auto buffer =
          HostBuffer::Create(memory, static_cast<std::size_t>(state_elements_) * sizeof(float));
      if (!buffer.ok()) return Annotate(buffer.status(), StrCat("optimizer state \"", name, "\""));
      state_.push_back(*std::move(buffer));
    }
    // First touch by the threads that will update: the same cut as in an update of a whole range.
    for (const OwnedRange& owned : owned_) {
      ForEachPart(executor_, owned.range, [&](ElementRange part) {
        for (std::size_t i = 0; i < state_.size(); ++i) {
          std::fill_n(StateAt(i, owned, part.begin), part.size(), 0.0f);
        }
      });
    }
    return OkStatus();
  }

  Status BeginStep(const StepOptions& options) override {
    constexpr double kLargest = std::numeric_limits<float>::max();  // NaN is not below it either
    if (!(std::abs(options.learning_rate_factor) <= kLargest) ||
        !(std::abs(options.gradient_scale) <= kLargest)) {
      return InvalidArgumentError("step ", step_ + 1, ": learning_rate_factor is ",
                                  options.learning_rate_factor, " and gradient_scale is ",
                                  options.gradient_scale, "; both must be finite in fp32");
    }
    rule_->BeginStep(++step_, options);
    begun_ = true;
    return OkStatus();
  }

  Status Update(const UpdateSlice& slice) override {
    if (!begun_) {
      return FailedPreconditionError(
          "the optimizer is asked to update before a step was begun; call BeginStep");
    }
    AIT_ASSIGN_OR_RETURN(const OwnedRange* owned, Find(slice));
    if (slice.gradients.count != slice.parameters.count) {
      return InvalidArgumentError("slice at element ", slice.begin, " has ", slice.parameters.count,
                                  " parameters and ", slice.gradients.count, " gradients");
    }
    if (slice.gradients.dtype != DType::kFloat32) {
      return UnimplementedError("gradients are ", Name(slice.gradients.dtype),
                                "; the optimizers read float32 so far");
    }
    if (owned == nullptr) return OkStatus();
    ForEachPart(executor_, RangeOf(slice), [&](ElementRange part) {
      UpdatePart(slice, *owned, part);
      CopyOut(slice, part);
    });
    return OkStatus();
  }

  Status SetParameters(const UpdateSlice& slice, std::span<const float> values) override {
    AIT_RETURN_IF_ERROR(CheckValues(slice, values.size()));
    std::ranges::copy(values, static_cast<float*>(slice.parameters.data));
    CopyOut(slice, RangeOf(slice));
    return OkStatus();
  }

  Status GetParameters(const UpdateSlice& slice, std::span<float> values) override {
    AIT_RETURN_IF_ERROR(CheckValues(slice, values.size()));
    std::copy_n(static_cast<const float*>(slice.parameters.data), values.size(), values.begin());
    return OkStatus();
  }

  std::int64_t step() const override { return step_; }

  Status set_step(std::int64_t step) override {
    if (step < 0) {
      return InvalidArgumentError("step of the optimizer is ", step, "; it must not be negative");
    }
    step_ = step;
    begun_ = false;
    return OkStatus();
  }

  std::vector<StateSlice> State() override {
    std::vector<StateSlice> slices;
    for (const ParameterSegment& parameter : parameters_) {
      for (std::size_t i = 0; i < state_.size(); ++i) {
        for (const OwnedRange& owned : owned_) {
          const ElementRange range = Intersection(parameter.range(), owned.range);
          if (range.size() == 0) continue;
          const std::span values(StateAt(i, owned, range.begin),
                                 static_cast<std::size_t>(range.size()));
          slices.push_back({.parameter = parameter.name,
                            .state = state_names_[i],
                            .begin = range.begin - parameter.begin,
                            .bytes = std::as_writable_bytes(values)});
        }
      }
    }
    return slices;
  }

  std::int64_t state_bytes() const override {
    return static_cast<std::int64_t>(state_.size() * sizeof(float)) * state_elements_;
  }

 private:
  // The i-th state of element `element` of the flat buffer, which is in `owned`.
  float* StateAt(std::size_t i, const OwnedRange& owned, std::int64_t element) {
    return state_[i].As<float>().data() + owned.state_begin + (element - owned.range.begin);
  }

  const OwnedRange* Owner(ElementRange range) const {
    auto next = std::upper_bound(
        owned_.begin(), owned_.end(), range.begin,
        [](std::int64_t begin, const OwnedRange& owned) { return begin < owned.range.begin; });
    if (next == owned_.begin()) return nullptr;
    --next;
    return range.end <= next->range.end ? &*next : nullptr;
  }

  static ElementRange RangeOf(const UpdateSlice& slice) {
    return {slice.begin, slice.begin + slice.parameters.count};
  }

  // The owned range of a slice; null if the slice is empty.
  StatusOr<const OwnedRange*> Find(const UpdateSlice& slice) const {
    if (slice.parameters.count == 0) return nullptr;
    if (slice.parameters.dtype != DType::kFloat32) {
      return InvalidArgumentError("parameters are ", Name(slice.parameters.dtype),
                                  "; the optimizer is bound to float32");
    }
    const ElementRange range = RangeOf(slice);
    const OwnedRange* owned = Owner(range);
    if (owned == nullptr) {
      return InvalidArgumentError("slice [", range.begin, ", ", range.end,
                                  ") is not inside one of the ", owned_.size(), " ranges owned");
    }
    return owned;
  }

  Status CheckValues(const UpdateSlice& slice, std::size_t count) const {
    AIT_RETURN_IF_ERROR(Find(slice).status());
    if (static_cast<std::size_t>(slice.parameters.count) == count) return OkStatus();
    return InvalidArgumentError("slice at element ", slice.begin, " has ", slice.parameters.count,
                                " parameters and ", count, " values");
  }

  // Writes the new parameters of a part to the other places.
  static void CopyOut(const UpdateSlice& slice, ElementRange part) {
    const std::int64_t offset = part.begin - slice.begin;
    const float* from = static_cast<const float*>(slice.parameters.data) + offset;
    for (void* const copy : slice.copies) {
      std::copy_n(from, part.size(), static_cast<float*>(copy) + offset);
    }
  }

  void UpdatePart(const UpdateSlice& slice, const OwnedRange& owned, ElementRange part) {
    auto run = std::upper_bound(
        runs_.begin(), runs_.end(), part.begin,
        [](std::int64_t begin, const Run& candidate) { return begin < candidate.range.end; });
    std::vector<float*> state(state_.size());
    for (; run != runs_.end() && run->range.begin < part.end; ++run) {
      const ElementRange range = Intersection(run->range, part);
      for (std::size_t i = 0; i < state.size(); ++i) {
        state[i] = StateAt(i, owned, range.begin);
      }
      const std::int64_t offset = range.begin - slice.begin;
      rule_->Update(run->group, static_cast<float*>(slice.parameters.data) + offset,
                    static_cast<float*>(slice.gradients.data) + offset, state.data(), range.size());
    }
  }

  std::vector<ParameterSegment> parameters_;
  std::vector<std::string> state_names_;
  Executor executor_;
  std::unique_ptr<ElementwiseRule> rule_;
  std::vector<OwnedRange> owned_;
  std::vector<Run> runs_;
  std::int64_t state_elements_ = 0;
  std::vector<HostBuffer> state_;
  std::int64_t step_ = 0;
  bool begun_ = false;
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

StatusOr<std::unique_ptr<BoundOptimizer>> BindElementwise(const ParameterLayout& layout,
                                                          const ParameterGroups& groups,
                                                          BindOptions options,
                                                          std::vector<std::string> state_names,
                                                          std::unique_ptr<ElementwiseRule> rule) {
  AIT_RETURN_IF_ERROR(Validate(layout));
  AIT_RETURN_IF_ERROR(Validate(groups));
  if (options.executor.threads < 1 || (options.executor.threads > 1 && !options.executor.run)) {
    return InvalidArgumentError(
        "executor has ", options.executor.threads, " threads and ",
        options.executor.run ? "a" : "no",
        " run function; it needs at least 1 thread, and the function if more");
  }
  if (options.parameter_dtype != DType::kFloat32) {
    return UnimplementedError("parameters are ", Name(options.parameter_dtype),
                              "; the optimizers update float32 so far");
  }
  MemoryHandle memory = options.memory;
  auto optimizer = std::make_unique<ElementwiseOptimizer>(layout, groups, std::move(options),
                                                          std::move(state_names), std::move(rule));
  AIT_RETURN_IF_ERROR(optimizer->AllocateState(std::move(memory)));
  return std::unique_ptr<BoundOptimizer>(std::move(optimizer));
}

}  // namespace ait::inline v0::internal
