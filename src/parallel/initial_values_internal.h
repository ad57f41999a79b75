// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_INITIAL_VALUES_INTERNAL_H_
#define AIT_PARALLEL_INITIAL_VALUES_INTERNAL_H_

// The fp32 values that parameters had before they became bf16 or fp16: what the first masters are.
// Kept from the creation of the engine until there is an optimizer. Functions of libtorch may
// throw, so callers go through CatchAsStatus.

#include <functional>
#include <span>
#include <vector>

#include "ait/base/status.h"
#include "ait/comm/buffer.h"
#include "ait/parallel/flat_layout.h"
#include "ait/parallel/named_tensor.h"

namespace ait::inline v0::internal {

class InitialValues {
 public:
  /// Before the parameters move: takes the values of every bucket below fp32 that has fp32 tensors,
  /// one after the other. `agree` may change them, to those of rank 0 say; then the tensors have
  /// them too. `owned(b)` is what is kept of bucket b.
  static StatusOr<InitialValues> Take(const NamedTensors& parameters, const FlatLayout& layout,
                                      const std::function<ElementRange(int bucket)>& owned,
                                      const std::function<Status(const Buffer&)>& agree);

  /// The values kept of bucket `b`; nothing if it had none.
  std::span<float> of(int b) {
    return values_.empty() ? std::span<float>() : std::span(values_[static_cast<std::size_t>(b)]);
  }
  bool empty() const { return values_.empty(); }
  std::int64_t bytes() const;
  /// Gives the memory back.
  void Clear() { values_ = {}; }

 private:
  std::vector<std::vector<float>> values_;  // by bucket
};

/// The fp32 values of `parameters`, bf16 or fp16: `kept`, but where those do not round to what the
/// parameter is now, since the user has changed it, the parameter itself.
void KeepWhatRounds(const ConstBuffer& parameters, std::span<float> kept);

/// The fp32 values of bf16 or fp16 elements.
std::vector<float> WidenedValues(const ConstBuffer& parameters);

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_INITIAL_VALUES_INTERNAL_H_
