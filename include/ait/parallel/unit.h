// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_UNIT_H_
#define AIT_PARALLEL_UNIT_H_

// `DataParallel::Unit`: a part of the model, called while its parameters are whole (ZeRO-3).
//
// With ZeroStage::kParameters a rank keeps a slice of the parameters of each unit. A call gathers
// them, runs the function and releases them; backward of what the function has computed gathers
// them again, before the first step through it, and releases them after the last. With the other
// stages a call only runs the function, so one model serves all.
//
//   auto engine = DataParallel::Create(communicator, NamedParameters(*model),
//       {.zero_stage = ZeroStage::kParameters, .units = UnitsUnder("blocks", parameters)});
//   …
//   for (int i = 0; i < layers; ++i) {
//     x = engine->Unit(names[i], [&] { return blocks[i]->forward(x); });
//     x = engine->Unit(names[i], &Block::forward, blocks[i], x);       // the same, as std::invoke
//   }
//
// Units may be called several times, inside each other, in any order, on some ranks only where the
// ranks reach each other's memory (inside a host), and again inside of backward, as activation
// checkpointing does (ait/activation/checkpoint.h). The order of one micro-step is expected of the
// next: `DataParallelOptions::prefetch` units are gathered ahead.
//
// **What the function returns** is searched for tensors (ait/tensor/visit_tensors.h), whose backward
// is followed into the call: a tensor, or any nesting of containers, pointers and types of your own.
// A tensor that leaves the call another way, by a reference for instance, is fine as long as its
// backward goes through one that was returned.
//
// **Errors.** A parameter that is read while it is not whole throws, and names its unit. Model code
// is written with exceptions, so the call itself throws StatusException (ait/base/throw_on_error.h)
// where it fails, as do `Checkpoint` and its kin. `Trainer::Step` and `DataParallel::Backward` turn
// it into the Status that it was.

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ait/parallel/data_parallel.h"
#include "ait/tensor/visit_tensors.h"

namespace at {
class Tensor;
}

namespace ait::inline v0 {
namespace internal {

struct UnitTarget;

/// A call of a unit, between gather and release.
class UnitCall {
 public:
  /// Throws StatusException.
  UnitCall(DataParallel& engine, std::string_view name);
  ~UnitCall();
  UnitCall(const UnitCall&) = delete;
  UnitCall& operator=(const UnitCall&) = delete;

  /// Finds the tensors of a result.
  template <typename T>
  void Visit(const T& value);

  /// The function has returned, and all its results were visited.
  void Watch();

 private:
  struct Results;
  void Add(const at::Tensor& result);

  std::shared_ptr<UnitTarget> target_;  // null: there is nothing to gather
  std::int64_t epoch_ = 0;              // of the use
  int unit_ = -1;
  std::unique_ptr<Results> results_;  // null: no backward will come
};

template <typename T>
void UnitCall::Visit(const T& value) {
  ForEachTensor<TensorSearch::kResults>(value, [this](const at::Tensor& result) { Add(result); });
}

}  // namespace internal

template <typename Function, typename... Arguments>
std::invoke_result_t<Function, Arguments...> DataParallel::Unit(std::string_view name,
                                                                Function&& function,
                                                                Arguments&&... arguments) {
  using Result = std::invoke_result_t<Function, Arguments...>;
  internal::UnitCall call(*this, name);
  if constexpr (std::is_void_v<Result>) {
    std::invoke(std::forward<Function>(function), std::forward<Arguments>(arguments)...);
  } else {
    Result result =
        std::invoke(std::forward<Function>(function), std::forward<Arguments>(arguments)...);
    call.Visit(result);
    call.Watch();
    return std::forward<Result>(result);
  }
}

}  // namespace ait::inline v0

#endif  // AIT_PARALLEL_UNIT_H_
