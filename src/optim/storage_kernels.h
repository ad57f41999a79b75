// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_STORAGE_KERNELS_H_
#define AIT_OPTIM_STORAGE_KERNELS_H_

// How fp32 numbers are kept in 16-bit floats: conversions, and those that keep beside a bf16 what
// it lacks. One table of functions per SIMD level; all tables compute the same bits.
//
// bf16 and fp16 are given as their bits. Arrays of a call do not overlap and have any alignment.
// The conversion instructions of AVX512-BF16 are not used: they flush subnormal numbers.

#include <cstdint>

namespace ait::inline v0 {
enum class SimdLevel;
}

namespace ait::inline v0::internal {

/// Of stochastic rounding: see `StochasticKeyOf`.
struct StochasticKey {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};

struct StorageKernels {
  void (*widen_bf16)(const std::uint16_t* from, float* to, std::int64_t n);
  void (*widen_fp16)(const std::uint16_t* from, float* to, std::int64_t n);

  /// To the nearest, halves to even.
  void (*narrow_bf16)(const float* from, std::uint16_t* to, std::int64_t n);
  void (*narrow_fp16)(const float* from, std::uint16_t* to, std::int64_t n);
  /// To the nearest, halves away from zero.
  void (*narrow_bf16_away)(const float* from, std::uint16_t* to, std::int64_t n);
  /// Up or down by chance: (bits + r) >> 16 with r of element `first`, `first` + 1, …, which is,
  /// modulo 2^32, with multiplications modulo 2^32:
  ///   x = element ^ key.first;    x = (x ^ x >> 16) · 0x7feb352d
  ///   x = x ^ key.second;         x = (x ^ x >> 15) · 0x846ca68b;    r = x >> 16
  void (*narrow_bf16_stochastic)(const float* from, std::uint16_t* to, std::uint32_t first,
                                 StochasticKey key, std::int64_t n);

  /// high = bf16 of the value, halves away from zero; low = the lower 16 bits of the value. Then
  /// the bits of the value are (high << 16) + low, where low is a signed number.
  void (*split_remainder)(const float* from, std::uint16_t* high, std::uint16_t* low,
                          std::int64_t n);
  void (*join_remainder)(const std::uint16_t* high, const std::uint16_t* low, float* to,
                         std::int64_t n);

  /// value = bf16(x) to even; compensation = bf16(x − value) to even, 0 if value is not finite.
  /// Joined, they are the fp32 sum of both.
  void (*split_kahan)(const float* from, std::uint16_t* value, std::uint16_t* compensation,
                      std::int64_t n);
  void (*join_kahan)(const std::uint16_t* value, const std::uint16_t* compensation, float* to,
                     std::int64_t n);
};

/// The table of `cap`, or of the best level that the processor supports if that is lower.
const StorageKernels& StorageKernelsFor(SimdLevel cap);

extern const StorageKernels kBaselineStorageKernels;
extern const StorageKernels kAvx2StorageKernels;    // x86-64 only
extern const StorageKernels kAvx512StorageKernels;  // x86-64 only

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_STORAGE_KERNELS_H_
