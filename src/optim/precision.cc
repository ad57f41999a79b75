// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/precision.h"

#include <array>
#include <utility>

namespace ait::inline v0 {
namespace {

constexpr std::array<std::string_view, 5> kMastersNames = {"float32", "remainder", "kahan",
                                                           "stochastic", "none"};

bool IsReal(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

}  // namespace

std::string_view Name(Masters masters) { return kMastersNames[static_cast<std::size_t>(masters)]; }

Status Precision::Validate() const {
  for (const auto& [what, dtype] :
       {std::pair("parameters", parameters), std::pair("gradients", gradients),
        std::pair("reduction", reduction)}) {
    if (!IsReal(dtype)) {
      return InvalidArgumentError("precision: ", what, " is ", Name(dtype),
                                  "; it must be float32, bfloat16 or float16");
    }
  }
  if (parameters == DType::kFloat16 && masters != Masters::kFloat32 && masters != Masters::kNone) {
    return InvalidArgumentError("precision: masters ", Name(masters),
                                " are for bfloat16 parameters; float16 has float32 or none");
  }
  if (gradients != DType::kFloat32 && gradients != parameters) {
    return InvalidArgumentError("precision: gradients are ", Name(gradients), " and parameters ",
                                Name(parameters),
                                "; gradients are float32 or of the dtype of the parameters");
  }
  if (reduction != gradients && gradients != DType::kFloat32) {
    return InvalidArgumentError("precision: gradients are ", Name(gradients), " and the reduction ",
                                Name(reduction),
                                "; only float32 gradients are reduced in another dtype");
  }
  return OkStatus();
}

std::string Precision::Describe() const {
  return StrCat("parameters ", Name(parameters), ", masters ", Name(masters), ", gradients ",
                Name(gradients), ", reduction ", Name(reduction), ", seed ", seed);
}

StatusOr<Precision> PrecisionNamed(std::string_view name) {
  if (name == "fp32") return Precision::Float32();
  if (name == "fp16") return Precision::Fp16();
  if (name == "bf16") return Precision::Bf16();
  if (name == "bf16-remainder") return Precision::Bf16(Masters::kRemainder);
  if (name == "bf16-kahan") return Precision::Bf16(Masters::kKahan);
  if (name == "bf16-stochastic") return Precision::Bf16(Masters::kStochastic);
  if (name == "bf16-pure") return Precision::Bf16(Masters::kNone);
  return InvalidArgumentError("no precision \"", name,
                              "\"; there are fp32, bf16, bf16-remainder, bf16-kahan, "
                              "bf16-stochastic, bf16-pure and fp16");
}

}  // namespace ait::inline v0
