// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_WHOLE_KERNELS_H_
#define AIT_OPTIM_WHOLE_KERNELS_H_

// The inner loops of the optimizers that need whole parameters, one table of functions per SIMD
// level. All tables compute the same bits: sums go over sixteen lanes in double, lane l adding
// elements l, l + 16, …, and then a tree over the lanes.

#include <cstdint>

namespace ait::inline v0 {
enum class SimdLevel;  // no header with inline functions here: see kernels.inc
}

namespace ait::inline v0::internal {

/// Numbers of one LAMB step of one group, rounded to float.
struct LambFactors {
  float gradient_scale;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float inverse_bias1;       // 1 / (1 − β₁ᵗ)
  float inverse_root_bias2;  // 1 / √(1 − β₂ᵗ)
  float epsilon;
  float weight_decay;
};

/// How Adafactor takes a step: u = g · gradient_scale · (1 / √max(v, floor)).
struct AdafactorFactors {
  float gradient_scale;
  float floor;
  float decay;  // 1 − η λ
  float step;   // α / max(1, RMS(u) / d)
  float beta1;  // of the momentum
  float one_minus_beta1;
};

struct WholeKernels {
  /// Sum of squares of n values times `scale`.
  double (*squares)(const float* values, float scale, std::int64_t n);

  /// Moments of n elements; adds to sums[0] the squares of parameters and to sums[1] those of u.
  void (*lamb_moments)(const float* parameters, const float* gradients, float* exp_avg,
                       float* exp_avg_sq, std::int64_t n, const LambFactors& factors, double* sums);
  /// p ← p − step · u, with u as computed by the moments.
  void (*lamb_apply)(float* parameters, const float* exp_avg, const float* exp_avg_sq,
                     std::int64_t n, const LambFactors& factors, float step);

  /// columns[j] += (gradients[j] · scale)² + added; returns the sum of what was added.
  double (*line_squares)(const float* gradients, float scale, double added, std::int64_t n,
                         double* columns);
  /// variance ← variance + weight ((g · scale)² + added − variance).
  void (*variance)(const float* gradients, float scale, float added, float* variance,
                   std::int64_t n, float weight);
  /// Sum of u², where v[j] = row · columns[j] / mean, as torch rounds it.
  double (*update_squares)(const float* gradients, float row, const float* columns, float mean,
                           std::int64_t n, const AdafactorFactors& factors);
  /// p ← decay p − step u; with `exp_avg`, which may be null, that of the momentum of step u.
  void (*update_apply)(float* parameters, const float* gradients, float row, const float* columns,
                       float mean, float* exp_avg, std::int64_t n, const AdafactorFactors& factors);

  /// a ← a + weight (b · scale − a).
  void (*lerp)(float* a, const float* b, float scale, float weight, std::int64_t n);
  /// out = scale · g + weight (buffer − scale · g), or the buffer itself if weight is 1.
  void (*mix)(float* out, const float* gradients, const float* buffer, float scale, float weight,
              std::int64_t n);
  /// out = a · x + b · y.
  void (*combine)(float* out, float a, const float* x, float b, const float* y, std::int64_t n);

  /// Rows and columns of the tile of `product`.
  int tile_rows;
  int tile_columns;
  /// tile[i][j] += Σₖ left[k][i] · right[k][j], k ascending, each a fused multiply-add; left has
  /// tile_rows numbers for each k, right and the rows of the tile have tile_columns.
  void (*product)(const float* left, const float* right, std::int64_t k, float* tile);
};

/// The table of `cap`, or of the best level that the processor supports if that is lower.
const WholeKernels& WholeKernelsFor(SimdLevel cap);

extern const WholeKernels kBaselineWholeKernels;
extern const WholeKernels kAvx2WholeKernels;    // x86-64 only
extern const WholeKernels kAvx512WholeKernels;  // x86-64 only

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_WHOLE_KERNELS_H_
