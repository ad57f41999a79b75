// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_PRECISION_H_
#define AIT_OPTIM_PRECISION_H_

// `Precision`: in which dtypes a model computes, keeps its parameters, sums its gradients and sends
// them.
//
//   DataParallel::Create(communicator, NamedParameters(*model), {.precision = Precision::Bf16()});
//
// An update adds little to much: bf16 has 8 bits of mantissa, so a change below a 1/256 of a
// parameter would be lost. What a parameter below fp32 lacks is kept beside it:
//
//   Masters        state beside the parameter   bytes   what it gives
//   kFloat32       "master"                     4       updates in fp32
//   kRemainder     "remainder"                  2       the same bits as kFloat32; bf16 only
//   kKahan         "compensation"               2       16 bits of mantissa in all; bf16 only
//   kStochastic    none                         0       right on average; bf16 only
//   kNone          none                         0       rounds to nearest and loses small updates
//
// **Rounding.** Where a master is kept, the parameter is the master rounded to the nearest, and
// halves away from zero for bf16: then master and remainder give the same bits. Elsewhere, and for
// fp16, halves go to even.
//
// **Stochastic rounding** adds 16 random bits below the bf16 and cuts. The bits are a function of
// (seed, step, element of the model), hence the same for any world size, layout, thread or SIMD
// level. (Gupta et al., arXiv:1502.02551.)

#include <cstdint>
#include <string>
#include <string_view>

#include "ait/base/dtype.h"
#include "ait/base/status.h"

namespace ait::inline v0 {

/// What is kept beside a parameter below fp32.
enum class Masters : std::uint8_t { kFloat32, kRemainder, kKahan, kStochastic, kNone };

std::string_view Name(Masters masters);

/// The dtypes of a training run. fp32 parameters become `parameters`; those that the user has made
/// bf16 or fp16 stay so.
struct Precision {
  DType parameters = DType::kFloat32;  // kFloat32, kBFloat16 or kFloat16
  Masters masters = Masters::kFloat32;
  DType gradients =
      DType::kFloat32;  // in which they are added up and kept: fp32, or the parameter's
  DType reduction = DType::kFloat32;  // in which they go to other ranks: `gradients`, or below it
  std::uint64_t seed = 0;             // of Masters::kStochastic

  static Precision Float32() { return {}; }
  static Precision Bf16(Masters masters = Masters::kFloat32, std::uint64_t seed = 0) {
    return {.parameters = DType::kBFloat16, .masters = masters, .seed = seed};
  }
  /// Needs a loss scaler (ait/optim/loss_scaler.h).
  static Precision Fp16() { return {.parameters = DType::kFloat16}; }

  /// **Errors.** InvalidArgument: a dtype that is not one of those named, Masters that the dtype
  /// does not have, a reduction wider than the gradients.
  Status Validate() const;
  /// All of it as text, the same on every rank.
  std::string Describe() const;
  bool operator==(const Precision&) const = default;
};

/// For command lines: "fp32", "bf16", "bf16-remainder", "bf16-kahan", "bf16-stochastic",
/// "bf16-pure" (Masters::kNone), "fp16". **Errors.** InvalidArgument: what is allowed.
StatusOr<Precision> PrecisionNamed(std::string_view name);

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_PRECISION_H_
