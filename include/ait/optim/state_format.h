// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_STATE_FORMAT_H_
#define AIT_OPTIM_STATE_FORMAT_H_

// How an optimizer keeps its moments: fp32, or 8 bits with a scale for each block of 64 elements.
//
//   auto optimizer = ait::AdamW{{.state = ait::StateFormat::kBlockwise8bit}};  // 2.1 bytes, not 8
//
// A block is scaled by its largest magnitude ("absmax"), and each number is rounded to the nearest
// of a dynamic map, as bitsandbytes has it (Dettmers et al., arXiv:2110.02861): fine near 0, coarse
// near absmax. Instead of a table of decimal segments, the map here is a formula: nearly a fourth
// power, and linear in pieces. With I(x) the bits of the float x, taken as an integer,
//
//   signed (first moments), c = −127 … 127:    I(|value|) = I(absmax) − 4 (I(127) − I(|c|))
//   unsigned (second moments), c = 0 … 255:    I(value) = I(absmax) − 4 (I(255) − I(c))
//
// so that value ≈ absmax (c / 127)⁴, from absmax down to 2^−28 of it, or 2^−32. The nearest code has
// an error of at most 1.6 %, or 0.8 %, of absmax, and of about 2 / c, or 1 / c, of small numbers
// relative to themselves. Code 0 is an exact zero and the largest element of a block is exact. A
// second moment that is not zero never becomes zero: it would leave a division by epsilon alone.
// absmax is 0 or at least 2^−90.
//
// Lion's moment moves by a hundredth a step, less than half of the way to the next code, and would
// stay where it is. It is rounded up or down by chance, with the last 10 bits of its mantissa as the
// random ones.
//
// Blocks are counted from the parameter's first element. They have 64 elements, since all slices of
// an engine end at multiples of 64: so the results do not depend on who owns which slice. The scales
// take 1/16 byte an element. Parameters of fewer than 4096 elements stay fp32.

#include <cstdint>

namespace ait::inline v0 {

enum class StateFormat : std::uint8_t {
  kFloat32,        // 4 bytes a moment and element
  kBlockwise8bit,  // 1 + 1/16: arrays of uint8, and "…_absmax" with an fp32 for 64 elements;
                   // parameters begin, and slices end, at multiples of 64 elements
};

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_STATE_FORMAT_H_
