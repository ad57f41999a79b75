// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_CHECKPOINT_H_
#define AIT_ACTIVATION_CHECKPOINT_H_

// `Checkpoint`: backward computes a part of the model again instead of keeping what it has saved.
//
// The part, a segment, is a function and its inputs. Forward runs it and keeps the inputs only; the
// first step of backward that needs a tensor of the segment runs it again, up to the last tensor
// that is needed. Losses and gradients are those of the plain run, bit for bit.
//
//   for (int i = 0; i < layers; ++i) {
//     x = Checkpoint([&block = blocks[i]](const at::Tensor& x) { return block->forward(x); }, x);
//     x = Checkpoint({.name = names[i]}, &BlockImpl::forward, blocks[i].ptr(), x);  // std::invoke
//   }
//
// Inputs and results may have any structure (ait/tensor/visit_tensors.h). The function and its
// inputs are copied; what they refer to, such as captures by reference, must be there in backward.
// Tensors that the function finds by other ways, parameters for one, get gradients all the same.
// Segments nest, may be used by several backward passes, on any thread, and with create_graph.
//
// **What the function must do**: the same each time. The state of random generators, autocast and
// grad mode is that of forward; the rest is the function's. It runs again, effects and all, which
// `IsRecomputing` tells it; and not to its end, unless `early_stop` is off. What it reads must not
// have changed in between: inputs and saved tensors that were changed in place are refused.
//
// **Errors.** Model code is written with exceptions: StatusException (ait/base/throw_on_error.h),
// out of backward. FailedPrecondition: the recomputed tensors are not those of forward, or one was
// changed; the text names the segment, the tensor and both values. What the function throws comes
// out as it is. After either, the thread is as before, and backward can be run again.
//
// A segment is recomputed under a lock of its own, so a function may not run a backward of its own
// if its segment has operations on several devices, nor wait for a thread that destroys the graph.
//
// Where Python's engine runs autograd (`SavedTensorScope::Available`), segments fall back to a
// `torch::autograd::Function`: always recomputed whole, first order only, and gradients only for
// the tensors of inputs and for parameters (docs/activation.md).
//
// **Thread-safety.** Calls on several threads do not meet, except in the generator of the CPU, of
// which a process has one: threads that draw from it at the same time give no repeatable sequence.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ait/tensor/visit_tensors.h"

namespace at {
class Tensor;
struct Generator;
}  // namespace at

namespace ait::inline v0 {

/// What recomputed tensors are held against.
enum class Determinism : std::uint8_t {
  kUnchecked,  ///< nothing
  kMetadata,   ///< how many there are; the shape, dtype, device and strides of each
  kValues,     ///< their bits too, at the price of reading each twice: to find what differs
};

/// Of all segments that were given it; may be read at any time.
struct CheckpointCounters {
  std::atomic<std::int64_t> segments = 0;          ///< that forward has run
  std::atomic<std::int64_t> dropped_tensors = 0;   ///< that autograd would have saved
  std::atomic<std::int64_t> kept_bytes = 0;        ///< of results that forward kept (keep.h)
  std::atomic<std::int64_t> recomputes = 0;        ///< times that a segment was run again
  std::atomic<std::int64_t> recomputed_bytes = 0;  ///< of tensors that were given to backward
};

struct CheckpointOptions {
  std::string name = "segment";  ///< in messages
  Determinism determinism = Determinism::kMetadata;
  /// Whether the generators have the state of forward when the segment runs again: those of the
  /// CPU and of all GPUs, and `generators`. Off saves 5 KiB a segment where nothing is drawn.
  bool preserve_random_state = true;
  std::vector<at::Generator> generators;  ///< more of them, which the function draws from
  bool early_stop = true;                 ///< run again up to the last tensor that is needed only
  std::vector<std::string> keep = {};     ///< operators whose results are kept (keep.h)
  std::shared_ptr<CheckpointCounters> counters;
};

/// True while this thread runs a segment again: for what is to happen once, such as the running
/// statistics of a norm.
bool IsRecomputing();

namespace internal {

class Segment;
const CheckpointOptions& DefaultCheckpointOptions();

/// A segment while it is called.
class CheckpointCall {
 public:
  /// Calls the function with `inputs` in the place of those that were taken; gives the tensors of
  /// its result to `results` unless that is null.
  using Function =
      std::function<void(const std::vector<at::Tensor>& inputs, std::vector<at::Tensor>* results)>;
  enum class Way : std::uint8_t { kPlain, kHooks, kFunction };

  explicit CheckpointCall(const CheckpointOptions& options);
  ~CheckpointCall();
  CheckpointCall(const CheckpointCall&) = delete;
  CheckpointCall& operator=(const CheckpointCall&) = delete;

  Way way() const { return way_; }

  /// Takes the next tensor out of the copy of the inputs.
  void Take(at::Tensor& input);
  /// kHooks: what is saved from here on belongs to the segment, until this is destroyed.
  void Begin(Function again);
  /// kFunction: runs `first`, and gives its results in which backward will find `again`.
  std::vector<at::Tensor> Run(const Function& first, Function again);

 private:
  struct Scope;
  Way way_;
  std::shared_ptr<Segment> segment_;
  std::unique_ptr<Scope> scope_;
  std::vector<at::Tensor> inputs_;  // kFunction: as they were given
};

/// How a held copy is given to a function that was called with `Input`: an array has become a
/// pointer.
template <typename Input>
using GivenAgain = std::conditional_t<std::is_array_v<std::remove_reference_t<Input>> ||
                                          std::is_function_v<std::remove_reference_t<Input>>,
                                      std::decay_t<Input>&, Input&&>;

/// A function and copies of its inputs. `Inputs` are as they were given, references or not.
template <typename Function, typename... Inputs>
struct HeldCall {
  Function function;
  std::tuple<std::decay_t<Inputs>...> inputs;

  /// Calls `function` with each tensor that the inputs hold; they are ours to change.
  template <typename Visit>
  void ForEachInput(const Visit& visit) {
    ForEachTensor<TensorSearch::kInputs>(
        inputs, [&](const at::Tensor& input) { visit(const_cast<at::Tensor&>(input)); });
  }

  /// Calls a copy, so that the next call finds the same.
  std::decay_t<std::invoke_result_t<Function&, Inputs...>> Call(
      const std::vector<at::Tensor>& tensors) const {
    HeldCall copy = *this;
    auto next = tensors.begin();
    copy.ForEachInput([&](at::Tensor& input) { input = *next++; });
    return std::apply(
        [&](auto&... held) {
          return std::invoke(copy.function, static_cast<GivenAgain<Inputs>>(held)...);
        },
        copy.inputs);
  }
};

template <typename Result>
void CollectResults(const Result& result, std::vector<at::Tensor>* results) {
  if (results == nullptr) return;
  ForEachTensor<TensorSearch::kResults>(
      result, [&](const at::Tensor& tensor) { results->push_back(tensor); });
}

}  // namespace internal

/// Calls `function` with `inputs`, as std::invoke, and drops what autograd saves of it.
template <typename Function, typename... Inputs>
auto Checkpoint(const CheckpointOptions& options, Function&& function, Inputs&&... inputs) {
  using Result = std::decay_t<std::invoke_result_t<std::decay_t<Function>&, Inputs...>>;
  using Held = internal::HeldCall<std::decay_t<Function>, Inputs...>;
  static_assert((std::is_constructible_v<std::decay_t<Inputs>, const std::decay_t<Inputs>&> && ...),
                "ait: inputs of a checkpoint are copied, for the function runs again; give a "
                "std::shared_ptr to what cannot be copied");
  internal::CheckpointCall call(options);
  if (call.way() == internal::CheckpointCall::Way::kPlain) {
    return static_cast<Result>(
        std::invoke(std::forward<Function>(function), std::forward<Inputs>(inputs)...));
  }
  const auto held = std::make_shared<Held>(
      Held{function, std::tuple<std::decay_t<Inputs>...>(std::as_const(inputs)...)});
  held->ForEachInput([&](at::Tensor& input) { call.Take(input); });
  const auto again = [held](const std::vector<at::Tensor>& tensors,
                            std::vector<at::Tensor>* results) {
    if constexpr (std::is_void_v<Result>) {
      held->Call(tensors);
    } else {
      internal::CollectResults(held->Call(tensors), results);
    }
  };
  if constexpr (!std::is_void_v<Result>) {
    if (call.way() == internal::CheckpointCall::Way::kFunction) {
      std::optional<Result> result;
      const auto first = [&](const std::vector<at::Tensor>& tensors,
                             std::vector<at::Tensor>* results) {
        result.emplace(held->Call(tensors));
        internal::CollectResults(*result, results);
      };
      const std::vector<at::Tensor> results = call.Run(first, again);
      auto next = results.begin();
      internal::ForEachTensor<internal::TensorSearch::kResults>(
          *result, [&](const at::Tensor& tensor) { const_cast<at::Tensor&>(tensor) = *next++; });
      return *std::move(result);
    }
  }
  call.Begin(again);
  return static_cast<Result>(
      std::invoke(std::forward<Function>(function), std::forward<Inputs>(inputs)...));
}

template <typename Function, typename... Inputs>
  requires(!std::is_convertible_v<Function, const CheckpointOptions&>)
auto Checkpoint(Function&& function, Inputs&&... inputs) {
  return Checkpoint(internal::DefaultCheckpointOptions(), std::forward<Function>(function),
                    std::forward<Inputs>(inputs)...);
}

}  // namespace ait::inline v0

#endif  // AIT_ACTIVATION_CHECKPOINT_H_
