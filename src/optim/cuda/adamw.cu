// SPDX-License-Identifier: Apache-2.0

// AdamW, element by element, as AdamElement of kernels.inc: the same operations in the same order.
// Compiled without contraction (-fmad=false) and without fast mathematics. Kernel names are looked
// up by cuda_adamw.cc, which launches them.

#include <cstdint>

#include "optim/kernels.h"

namespace {

using ait::internal::AdamFactors;

__device__ float FromBf16(std::uint16_t bits) {
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
}

// Halves away from zero, as everywhere where a master is kept.
__device__ std::uint16_t ToBf16Away(float value) {
  if (value != value) return 0x7fc0;
  return static_cast<std::uint16_t>((__float_as_uint(value) + 0x8000u) >> 16);
}

__device__ float Read(float value) { return value; }
__device__ float Read(std::uint16_t bits) { return FromBf16(bits); }

// `copy` gets the new parameters in bf16, unless it is null.
template <typename Gradient>
__device__ void Update(float* parameters, std::uint16_t* copy, Gradient* gradients, float* exp_avg,
                       float* exp_avg_sq, std::int64_t n, const AdamFactors& f, int zero) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    const float gradient = Read(gradients[i]) * f.gradient_scale;
    const float mean = exp_avg[i] + f.one_minus_beta1 * (gradient - exp_avg[i]);
    const float square = f.beta2 * exp_avg_sq[i] + f.one_minus_beta2 * gradient * gradient;
    const float denominator = sqrtf(square) + f.epsilon;
    const float parameter = f.decay * parameters[i] - f.step_size * mean / denominator;
    parameters[i] = parameter;
    exp_avg[i] = mean;
    exp_avg_sq[i] = square;
    if (copy != nullptr) copy[i] = ToBf16Away(parameter);
    if (zero) gradients[i] = Gradient(0);
  }
}

}  // namespace

extern "C" __global__ void AitAdamWFloat32(float* p, std::uint16_t* copy, float* g, float* m,
                                           float* v, std::int64_t n, AdamFactors f, int zero) {
  Update(p, copy, g, m, v, n, f, zero);
}

extern "C" __global__ void AitAdamWBFloat16(float* p, std::uint16_t* copy, std::uint16_t* g,
                                            float* m, float* v, std::int64_t n, AdamFactors f,
                                            int zero) {
  Update(p, copy, g, m, v, n, f, zero);
}
