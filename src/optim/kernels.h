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
  float epsilon;    // ε √(1 − β₂ᵗ)
  float step_size;  // η √(1 − β₂ᵗ) / (1 − β₁ᵗ)
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

/// Numbers of one Lion step of one group, rounded to float.
struct LionFactors {
  float gradient_scale;
  float decay;  // 1 − η λ
  float learning_rate;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
};

/// A moment in 8 bits, see ait/optim/state_format.h: one absmax for 64 codes.
struct Moment8bit {
  std::uint8_t* codes;
  float* absmax;
};

struct Kernels {
  /// Updates n elements; the arrays do not overlap and have any alignment. `max_exp_avg_sq` is null
  /// unless AMSGrad is wanted.
  void (*adam)(float* parameters, float* gradients, float* exp_avg, float* exp_avg_sq,
               float* max_exp_avg_sq, std::int64_t n, const AdamFactors& factors,
               bool zero_gradients);
  /// As above; `buffer` is not used by the plain form.
  void (*sgd)(float* parameters, float* gradients, float* buffer, std::int64_t n,
              const SgdFactors& factors, SgdForm form, bool zero_gradients);
  void (*lion)(float* parameters, float* gradients, float* exp_avg, std::int64_t n,
               const LionFactors& factors, bool zero_gradients);
  /// The same with moments in 8 bits; the first element is the first of a block.
  void (*adam_8bit)(float* parameters, float* gradients, Moment8bit exp_avg, Moment8bit exp_avg_sq,
                    std::int64_t n, const AdamFactors& factors, bool zero_gradients);
  void (*lion_8bit)(float* parameters, float* gradients, Moment8bit exp_avg, std::int64_t n,
                    const LionFactors& factors, bool zero_gradients);
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
