// SPDX-License-Identifier: Apache-2.0
#include "optim/parameter_access.h"

#include <algorithm>
#include <cstring>

namespace ait::inline v0::internal {
namespace {

std::uint64_t Mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

const std::uint16_t* Halves(const void* p) { return static_cast<const std::uint16_t*>(p); }
std::uint16_t* Halves(void* p) { return static_cast<std::uint16_t*>(p); }

void CopyFloats(const float* from, void* to, std::int64_t n) {
  if (from != to) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
}

}  // namespace

StochasticKey StochasticKeyOf(std::uint64_t seed, std::int64_t step, std::uint32_t block) {
  const std::uint64_t key = Mix(Mix(Mix(seed) ^ static_cast<std::uint64_t>(step)) ^ block);
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

void ReadReal(const StorageKernels& kernels, DType dtype, const void* from, float* to,
              std::int64_t n) {
  switch (dtype) {
    case DType::kBFloat16:
      return kernels.widen_bf16(Halves(from), to, n);
    case DType::kFloat16:
      return kernels.widen_fp16(Halves(from), to, n);
    default:
      return CopyFloats(static_cast<const float*>(from), to, n);
  }
}

Status CheckReal(DType dtype, std::string_view what) {
  if (dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16) {
    return OkStatus();
  }
  return InvalidArgumentError(what, " are ", Name(dtype),
                              "; they must be float32, bfloat16 or float16");
}

StatusOr<ParameterAccess> ParameterAccess::Create(const BindOptions& options) {
  AIT_RETURN_IF_ERROR(CheckReal(options.parameter_dtype, "parameters"));
  ParameterAccess access;
  access.dtype_ = options.parameter_dtype;
  access.masters_ = options.parameter_dtype == DType::kFloat32 ? Masters::kNone : options.masters;
  access.seed_ = options.seed;
  access.kernels_ = &StorageKernelsFor(options.max_simd_level);
  if (access.dtype_ == DType::kFloat16 && access.masters_ != Masters::kFloat32 &&
      access.masters_ != Masters::kNone) {
    return InvalidArgumentError("masters ", Name(access.masters_),
                                " are for bfloat16 parameters; float16 has float32 or none");
  }
  return access;
}

std::optional<ParameterAccess::Beside> ParameterAccess::beside() const {
  switch (masters_) {
    case Masters::kFloat32:
      return Beside{"master", DType::kFloat32};
    case Masters::kRemainder:
      return Beside{"remainder", DType::kUInt16};
    case Masters::kKahan:
      return Beside{"compensation", DType::kBFloat16};
    case Masters::kStochastic:
    case Masters::kNone:
      break;
  }
  return std::nullopt;
}

void ParameterAccess::Read(const void* parameters, const void* beside, float* values,
                           std::int64_t n) const {
  switch (masters_) {
    case Masters::kFloat32:
      return CopyFloats(static_cast<const float*>(beside), values, n);
    case Masters::kRemainder:
      return kernels_->join_remainder(Halves(parameters), Halves(beside), values, n);
    case Masters::kKahan:
      return kernels_->join_kahan(Halves(parameters), Halves(beside), values, n);
    case Masters::kStochastic:
    case Masters::kNone:
      return ReadReal(*kernels_, dtype_, parameters, values, n);
  }
}

void ParameterAccess::Write(const float* values, std::int64_t model_element, void* parameters,
                            void* beside, std::int64_t n) const {
  if (masters_ != Masters::kStochastic) return Set(values, parameters, beside, n);
  WriteStochastic(values, static_cast<std::uint64_t>(model_element), Halves(parameters), n);
}

void ParameterAccess::WriteStochastic(const float* values, std::uint64_t element,
                                      std::uint16_t* parameters, std::int64_t n) const {
  while (n > 0) {  // more than once only where element numbers pass a multiple of 2^32
    const auto first = static_cast<std::uint32_t>(element);
    const std::int64_t count = std::min(n, (std::int64_t{1} << 32) - first);
    kernels_->narrow_bf16_stochastic(
        values, parameters, first,
        StochasticKeyOf(seed_, step_, static_cast<std::uint32_t>(element >> 32)), count);
    values += count;
    parameters += count;
    element += static_cast<std::uint64_t>(count);
    n -= count;
  }
}

void ParameterAccess::Set(const float* values, void* parameters, void* beside,
                          std::int64_t n) const {
  if (dtype_ == DType::kFloat32) return CopyFloats(values, parameters, n);
  switch (masters_) {
    case Masters::kFloat32:
      CopyFloats(values, beside, n);
      return dtype_ == DType::kFloat16 ? kernels_->narrow_fp16(values, Halves(parameters), n)
                                       : kernels_->narrow_bf16_away(values, Halves(parameters), n);
    case Masters::kRemainder:
      return kernels_->split_remainder(values, Halves(parameters), Halves(beside), n);
    case Masters::kKahan:
      return kernels_->split_kahan(values, Halves(parameters), Halves(beside), n);
    case Masters::kStochastic:
    case Masters::kNone:
      return dtype_ == DType::kFloat16 ? kernels_->narrow_fp16(values, Halves(parameters), n)
                                       : kernels_->narrow_bf16(values, Halves(parameters), n);
  }
}

}  // namespace ait::inline v0::internal
