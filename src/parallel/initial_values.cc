// SPDX-License-Identifier: Apache-2.0
#include "parallel/initial_values_internal.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <bit>

#include "ait/base/float16.h"
#include "parallel/flat_tensor_internal.h"
#include "parallel/gradient_convert_internal.h"

namespace ait::inline v0::internal {
namespace {

// Halves go to even as libtorch has it, or away from zero, as masters have it.
bool RoundsTo(float value, BFloat16 parameter) {
  const auto away =
      static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + 0x8000u) >> 16);
  return BFloat16(value).bits == parameter.bits || away == parameter.bits;
}
bool RoundsTo(float value, Float16 parameter) { return Float16(value).bits == parameter.bits; }

template <typename Half>
void Keep(const Half* parameters, std::span<float> kept) {
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!RoundsTo(kept[i], parameters[i])) kept[i] = static_cast<float>(parameters[i]);
  }
}

}  // namespace

StatusOr<InitialValues> InitialValues::Take(const NamedTensors& parameters,
                                            const FlatLayout& layout,
                                            const std::function<ElementRange(int bucket)>& owned,
                                            const std::function<Status(const Buffer&)>& agree) {
  const c10::NoGradGuard no_grad;
  InitialValues initial;
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    const FlatBucket& bucket = layout.buckets()[b];
    const DType dtype = layout.groups()[static_cast<std::size_t>(bucket.group)].dtype;
    if (dtype != DType::kBFloat16 && dtype != DType::kFloat16) continue;
    const auto tensor = [&](int parameter) {
      return parameters.tensor(static_cast<std::size_t>(parameter));
    };
    if (std::ranges::none_of(bucket.parameters,
                             [&](int p) { return tensor(p).scalar_type() == at::kFloat; })) {
      continue;
    }
    const at::Tensor flat = at::zeros({bucket.count}, at::TensorOptions(at::kFloat));
    const auto view = [&](int p) {
      FlatSlot slot = *layout.slot(p);
      slot.offset -= bucket.begin;
      return ViewOf(flat, layout.parameters()[static_cast<std::size_t>(p)], slot);
    };
    for (const int p : bucket.parameters) view(p).copy_(tensor(p));
    if (agree != nullptr) {
      AIT_RETURN_IF_ERROR(agree(BufferOf(flat, DType::kFloat32)));
      for (const int p : bucket.parameters) tensor(p).copy_(view(p));
    }
    const auto [begin, end] = owned(static_cast<int>(b));
    const float* values = flat.const_data_ptr<float>();
    initial.values_.resize(layout.buckets().size());
    initial.values_[b].assign(values + (begin - bucket.begin), values + (end - bucket.begin));
  }
  return initial;
}

std::int64_t InitialValues::bytes() const {
  std::int64_t bytes = 0;
  for (const std::vector<float>& values : values_) {
    bytes += static_cast<std::int64_t>(values.size() * sizeof(float));
  }
  return bytes;
}

void KeepWhatRounds(const ConstBuffer& parameters, std::span<float> kept) {
  if (parameters.dtype == DType::kBFloat16) {
    Keep(static_cast<const BFloat16*>(parameters.data), kept);
  } else {
    Keep(static_cast<const Float16*>(parameters.data), kept);
  }
}

std::vector<float> WidenedValues(const ConstBuffer& parameters) {
  std::vector<float> values(static_cast<std::size_t>(parameters.count));
  Widen(parameters, View(values));
  return values;
}

}  // namespace ait::inline v0::internal
