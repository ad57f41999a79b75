// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_AUTOCAST_H_
#define AIT_TENSOR_AUTOCAST_H_

// `Autocast`: matrix products of libtorch in bf16 or fp16, for as long as the scope lives.
//
// libtorch chooses by operator: products and convolutions run in the lower dtype, sums, norms and
// losses in fp32. Parameters stay as they are; libtorch casts them where they are used and keeps
// the casts, so that a weight used twice in a forward is cast once. A kept cast does not follow its
// weight: that is why one scope is one forward.
//
//   auto step = trainer.Step(*batch, [&](const TokenBatch& b) {
//     const Autocast bf16(DType::kBFloat16);        // ends with the forward; backward needs none
//     const at::Tensor logits = model->forward(Inputs(b));
//     return LossSum{SumOfCrossEntropy(logits, Targets(b)), b.token_count()};
//   });
//
// What it promises, whatever was set before and however the scope is left:
//
//   - the state of the thread (enabled, dtype, cache) is as it was before;
//   - every scope, nested ones too, begins and ends without casts: weights that were changed since,
//     by a step or a swap, are seen; and a cast made under NoGradGuard, which has no graph and
//     would cut its weight off, is not used by a scope with gradients. What changes weights or grad
//     mode inside of a scope opens a scope of its own for that, or calls `ClearCache`.
//
// fp16 needs a loss scaler (ait/optim/loss_scaler.h), bf16 none.
// **Thread-safety.** Of the thread that makes it; ends on the same. Scopes end in reverse order.

#include <cstdint>

#include "ait/base/dtype.h"

namespace ait::inline v0 {

class Autocast {
 public:
  enum class Device : std::uint8_t { kCpu, kCuda };
  /// Whether casts of weights are kept within the scope.
  enum class Cache : std::uint8_t { kOn, kOff };

  /// kBFloat16 or kFloat16; kFloat32 switches autocast off within the scope. Any other dtype does
  /// that too.
  explicit Autocast(DType dtype, Device device = Device::kCpu, Cache cache = Cache::kOn);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  /// Forgets the casts of this thread: after weights were changed inside of a scope.
  static void ClearCache();

  /// The dtype that products on `device` have on this thread now; kFloat32 if autocast is off.
  static DType Current(Device device = Device::kCpu);

  /// How many scopes of this dtype the thread has opened so far.
  static std::int64_t opened(DType dtype);

  /// True if this processor multiplies bf16 faster than fp32.
  static bool Bf16IsFastHere();

 private:
  enum class Was : std::uint8_t { kOff, kOn };

  Device device_;
  Was enabled_;
  Was cache_;
  std::int8_t dtype_;  // of libtorch
};

}  // namespace ait::inline v0

#endif  // AIT_TENSOR_AUTOCAST_H_
