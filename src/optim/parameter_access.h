// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_PARAMETER_ACCESS_H_
#define AIT_OPTIM_PARAMETER_ACCESS_H_

// How an optimizer reads and writes parameters that are not plain fp32: the exact values of a run
// of elements into fp32 scratch, an update of these, and back, rounded, to the parameters and to
// what is kept beside them (`Masters`).
//
//   float* exact = access.InPlace(parameters, beside);        // fp32 parameters, or their masters
//   if (exact == nullptr) access.Read(parameters, beside, exact = scratch, n);
//   …                                                         // new values
//   access.Write(exact, element, parameters, beside, n);
//
// A run is best no longer than kTileElements, so that its scratch stays in the nearest cache.

#include <cstdint>
#include <optional>
#include <string>

#include "ait/optim/optimizer.h"
#include "optim/storage_kernels.h"

namespace ait::inline v0::internal {

/// The key of stochastic rounding in one step for the elements of the model whose number divided by
/// 2^32 is `block`: the halves, the lower one first, of
///   M(M(M(seed) ^ step) ^ block),
/// where M(z) is the finalizer of splitmix64 (Steele et al., OOPSLA 2014):
///   z = (z ^ z >> 30) · 0xbf58476d1ce4e5b9;  z = (z ^ z >> 27) · 0x94d049bb133111eb;  z ^ z >> 31.
StochasticKey StochasticKeyOf(std::uint64_t seed, std::int64_t step, std::uint32_t block);

/// fp32, bf16 or fp16 numbers to fp32. **Errors.** None: another dtype is a defect of the caller,
/// see `CheckReal`.
void ReadReal(const StorageKernels& kernels, DType dtype, const void* from, float* to,
              std::int64_t n);
/// InvalidArgument that names `what` unless the dtype is fp32, bf16 or fp16.
Status CheckReal(DType dtype, std::string_view what);

/// The dtype of parameters and what is kept beside them. A value.
class ParameterAccess {
 public:
  static constexpr std::int64_t kTileElements = 256;

  /// **Errors.** InvalidArgument: a dtype that is none of the three, or masters that it has not.
  static StatusOr<ParameterAccess> Create(const BindOptions& options);
  ParameterAccess() = default;

  DType dtype() const { return dtype_; }
  /// Of fp32 parameters Masters::kNone.
  Masters masters() const { return masters_; }

  /// Name and dtype of the state array that is kept beside, an entry an element: "master" (fp32),
  /// "remainder" (uint16), "compensation" (bf16), or none.
  struct Beside {
    std::string name;
    DType dtype;
  };
  std::optional<Beside> beside() const;

  /// Where the exact values lie as fp32, to be updated in place; null if nowhere.
  float* InPlace(void* parameters, void* beside) const {
    if (dtype_ == DType::kFloat32) return static_cast<float*>(parameters);
    return masters_ == Masters::kFloat32 ? static_cast<float*>(beside) : nullptr;
  }
  /// The exact values of n elements.
  void Read(const void* parameters, const void* beside, float* values, std::int64_t n) const;

  /// The numbers of the next step: which random bits `Write` uses.
  void BeginStep(std::int64_t step) { step_ = step; }
  /// Makes n values the parameters, which begin at element `model_element` of the model. `values`
  /// may be what `InPlace` gave.
  void Write(const float* values, std::int64_t model_element, void* parameters, void* beside,
             std::int64_t n) const;
  /// The same for values that no step has made: stochastic rounding rounds to the nearest.
  void Set(const float* values, void* parameters, void* beside, std::int64_t n) const;

  const StorageKernels& kernels() const { return *kernels_; }

 private:
  void WriteStochastic(const float* values, std::uint64_t element, std::uint16_t* parameters,
                       std::int64_t n) const;

  DType dtype_ = DType::kFloat32;
  Masters masters_ = Masters::kNone;
  std::uint64_t seed_ = 0;
  std::int64_t step_ = 0;
  const StorageKernels* kernels_ = nullptr;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_PARAMETER_ACCESS_H_
