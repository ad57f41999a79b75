// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_BLOCK_INT8_H_
#define AIT_OPTIM_BLOCK_INT8_H_

// A block of numbers as int8 with one scale: of gradients on the wire, of saved tensors. The same
// bits on every processor.

#include <cstdint>
#include <span>

namespace ait::inline v0::internal {

/// Largest magnitude; NaN if there is one, else infinity if there is one.
float LargestMagnitude(std::span<const float> values);

/// One block as int8: codes[i] = round(values[i] / scale), scale = largest magnitude / 127, which
/// is returned. error[i] = values[i] - codes[i] * scale. A block that is too small to scale becomes
/// zeros; one that is not finite gets a scale of NaN, codes of zero and no error. `error` may be
/// `values`, or empty.
float Quantise(std::span<const float> values, std::span<std::int8_t> codes, std::span<float> error);
/// to[i] = codes[i] * scale, or to[i] += it.
void Dequantise(std::span<const std::int8_t> codes, float scale, std::span<float> to);
void AddDequantised(std::span<const std::int8_t> codes, float scale, std::span<float> to);

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_BLOCK_INT8_H_
