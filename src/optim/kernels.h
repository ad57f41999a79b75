// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_KERNELS_H_
#define AIT_OPTIM_KERNELS_H_

// The inner loops of optim, one table of functions per SIMD level. All tables compute the same
// bits.

#include <cstdint>

namespace ait::inline v0 {
enum class SimdLevel;  // no header with inline functions here: see kernels.inc
}

namespace ait::inline v0::internal {

/// Numbers of one Adam step of one group, rounded to float.
struct AdamFactors {
  float gradient_scale;
  float l2;               // added to the gradient times the parameter; 0 for AdamW
  float decay;            // 1 − η λ for AdamW, 1 for Adam
  float one_minus_beta1;  // weight of the new gradient in exp_avg
  float beta2;
  float one_minus_beta2;
  float inverse_root_bias2;  // 1 / √(1 − β₂ᵗ)
  float epsilon;
  float step_size;  // η / (1 − β₁ᵗ)
};

/// Numbers of one SGD step of one group, rounded to float.
struct SgdFactors {
  float gradient_scale;
  float l2;
  float learning_rate;
  float momentum;      // weight of the old buffer; 0 in the first step
  float new_gradient;  // weight of the gradient in the buffer: 1 in the first step, else 1 − τ
  float nesterov;      // weight of the buffer added to the gradient, where nesterov is used
};

enum class SgdForm { kPlain, kClassical, kNesterov };

struct Kernels {
  /// Updates n elements; the four arrays do not overlap and have any alignment.
  void (*adam)(float* parameters, float* gradients, float* exp_avg, float* exp_avg_sq,
               std::int64_t n, const AdamFactors& factors, bool zero_gradients);
  /// As above; `buffer` is not used by the plain form.
  void (*sgd)(float* parameters, float* gradients, float* buffer, std::int64_t n,
              const SgdFactors& factors, SgdForm form, bool zero_gradients);
  /// sums[i] is the sum of squares of the 64 values of block i.
  void (*sum_of_squares)(const float* values, std::int64_t blocks, double* sums);
};

/// The table of `cap`, or of the best level that the processor supports if that is lower.
const Kernels& KernelsFor(SimdLevel cap);

extern const Kernels kBaselineKernels;
extern const Kernels kAvx2Kernels;    // x86-64 only
extern const Kernels kAvx512Kernels;  // x86-64 only

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_KERNELS_H_
