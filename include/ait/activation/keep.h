// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_KEEP_H_
#define AIT_ACTIVATION_KEEP_H_

// `Keep`: operations of a checkpointed segment whose results are saved instead of computed again.
//
// A product or an attention costs far more to compute again, for each byte of its result, than what
// stands around it. Inside of `Checkpoint`, what is marked runs once: forward keeps its results, and
// when the segment runs again they are taken in its place. Gradients are the same to the bit.
//
//   x = Checkpoint([&](const at::Tensor& x) {
//     const at::Tensor h = at::gelu(Keep([&] { return at::linear(norm(x), up); }));
//     return x + dropout(at::linear(h, down));
//   }, x);
//
//   {
//     const KeepScope keep;                       // the same as a scope
//     y = at::scaled_dot_product_attention(q, k, v);
//   }
//
//   x = Checkpoint({.keep = MatrixProducts()}, block, x);     // by operator, wherever it is used
//
// What is kept are results of operators of libtorch, of each operator in the scope: mark single
// expensive ones, not whole blocks, of which more would be kept than autograd saves. Views, casts,
// copies and fresh memory run again in any case. What changes a result in place, a bias that is
// added, is kept along with it as long as nothing has read the result before; then the result is
// computed again. One that is changed outside of the scope is refused by backward.
//
// Outside of a segment a scope does nothing; in an inner one it keeps for the inner one. Where
// segments fall back to a Function (ait/activation/checkpoint.h), nothing is kept.
//
// **Errors.** StatusException, FailedPrecondition: another library has taken the dispatch key of
// libtorch that this works by ("Fake"); or, out of backward, the operators are not those of forward.
// **Thread-safety.** A scope is of the thread that makes it, and ends on it in reverse order.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ait::inline v0 {

class [[nodiscard]] KeepScope {
 public:
  KeepScope();
  ~KeepScope();
  KeepScope(const KeepScope&) = delete;
  KeepScope& operator=(const KeepScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;  // null: there is no segment
};

/// Calls `function` in a scope.
template <typename Function, typename... Inputs>
std::invoke_result_t<Function, Inputs...> Keep(Function&& function, Inputs&&... inputs) {
  const KeepScope scope;
  return std::invoke(std::forward<Function>(function), std::forward<Inputs>(inputs)...);
}

/// Names of operators, for `CheckpointOptions::keep`: products and convolutions.
std::vector<std::string> MatrixProducts();
/// Of scaled dot-product attention, in all its implementations.
std::vector<std::string> AttentionOperators();

}  // namespace ait::inline v0

#endif  // AIT_ACTIVATION_KEEP_H_
