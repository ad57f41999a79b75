// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_SEGMENTS_H_
#define AIT_ACTIVATION_SEGMENTS_H_

// `ActivationPlan`: the model runs its parts through it, and it decides for each whether backward
// finds what it needs kept, recomputed or offloaded.
//
//   ActivationPlan plan;
//   for (int i = 0; i < layers; ++i) {
//     x = plan.Run(StrCat("blocks.", i), [&](const at::Tensor& in) { return blocks[i]->forward(in); },
//                  x);
//   }
//   plan.Set("blocks.3", SegmentAction::kRecompute);   // or let MemoryPlanner choose: planner.h
//
// A segment is a name, a function and its inputs; losses and gradients do not depend on the action
// (ait/activation/checkpoint.h says what the function must do to be run again). Segments that no
// action was set for keep everything, and cost nothing.
//
// **Where to cut.** The planner chooses among the segments that there are. One for each block works.
// More are better where cheap operations hold much: a segment that begins behind a matrix product
// and ends with the next one is recomputed without any product, since recomputing stops at the last
// tensor that is needed.
//
// **Thread-safety.** Set and Run belong to the thread that runs the model; `action` may be called by
// any while neither runs.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ait/activation/checkpoint.h"
#include "ait/activation/saved_tensors.h"
#include "ait/activation/schedule.h"
#include "ait/tensor/visit_tensors.h"

namespace ait::inline v0 {

namespace internal {
class SegmentRecorder;
class SegmentCall;
}  // namespace internal

struct ActivationPlanOptions {
  /// Of segments that are recomputed, as in CheckpointOptions.
  Determinism determinism = Determinism::kMetadata;
  bool preserve_random_state = true;
  std::shared_ptr<CheckpointCounters> counters = nullptr;
  std::vector<std::string> keep = {};  // operators whose results are kept (keep.h)
  /// What happens to saved tensors of segments with kOffload: offload or compression. Null: that
  /// action keeps them.
  std::shared_ptr<SavedTensorPolicy> offload = nullptr;
};

class ActivationPlan {
 public:
  explicit ActivationPlan(ActivationPlanOptions options = {});
  ~ActivationPlan();
  ActivationPlan(const ActivationPlan&) = delete;
  ActivationPlan& operator=(const ActivationPlan&) = delete;

  /// From the next call of the segment on.
  void Set(std::string_view name, SegmentAction action);
  /// Every segment keeps again.
  void Clear() { actions_.clear(); }
  SegmentAction action(std::string_view name) const;
  const std::map<std::string, SegmentAction, std::less<>>& actions() const { return actions_; }
  const ActivationPlanOptions& options() const { return options_; }

  /// Calls `function` with `inputs`, as std::invoke, and returns what it returns. Throws as
  /// `Checkpoint` does.
  template <typename Function, typename... Inputs>
  auto Run(std::string_view name, Function&& function, Inputs&&... inputs);

 private:
  friend class MemoryPlanner;
  friend class internal::SegmentCall;

  ActivationPlanOptions options_;
  std::map<std::string, SegmentAction, std::less<>> actions_;
  std::shared_ptr<internal::SegmentRecorder> recorder_;  // null: no step is measured
};

namespace internal {

/// A segment while its function runs.
class SegmentCall {
 public:
  SegmentCall(ActivationPlan& plan, std::string_view name);
  ~SegmentCall();
  SegmentCall(const SegmentCall&) = delete;
  SegmentCall& operator=(const SegmentCall&) = delete;

  bool recomputes() const { return action_ == SegmentAction::kRecompute; }
  bool is_recorded() const { return recorder_ != nullptr; }
  const CheckpointOptions& checkpoint_options() const { return *checkpoint_; }

  void Input(const at::Tensor& tensor);
  void Begin();  // after the inputs
  void End();    // after the function, before the results
  void Result(const at::Tensor& tensor);

 private:
  const ActivationPlan& plan_;
  SegmentAction action_;
  std::shared_ptr<SegmentRecorder> recorder_;
  int segment_ = -1;  // of the recorder
  std::unique_ptr<SavedTensorScope> scope_;
  std::shared_ptr<const CheckpointOptions> checkpoint_;  // null: it is not recomputed
};

}  // namespace internal

template <typename Function, typename... Inputs>
auto ActivationPlan::Run(std::string_view name, Function&& function, Inputs&&... inputs) {
  using Value = std::decay_t<std::invoke_result_t<std::decay_t<Function>&, Inputs...>>;
  using Search = internal::TensorSearch;
  internal::SegmentCall call(*this, name);
  if (call.is_recorded()) {
    [[maybe_unused]] const auto input = [&](const at::Tensor& tensor) { call.Input(tensor); };
    (internal::ForEachTensor<Search::kInputs>(inputs, input), ...);
  }
  call.Begin();
  const auto run = [&]() -> Value {
    if (call.recomputes()) {
      return Checkpoint(call.checkpoint_options(), std::forward<Function>(function),
                        std::forward<Inputs>(inputs)...);
    }
    return static_cast<Value>(
        std::invoke(std::forward<Function>(function), std::forward<Inputs>(inputs)...));
  };
  if constexpr (std::is_void_v<Value>) {
    run();
    call.End();
  } else {
    Value value = run();
    call.End();
    if (call.is_recorded()) {
      internal::ForEachTensor<Search::kResults>(
          value, [&](const at::Tensor& tensor) { call.Result(tensor); });
    }
    return value;
  }
}

}  // namespace ait::inline v0

#endif  // AIT_ACTIVATION_SEGMENTS_H_
