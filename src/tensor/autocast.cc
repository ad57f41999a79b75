// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/autocast.h"

// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <ATen/autocast_mode.h>
// clang-format on

#include <array>

#include "ait/tensor/dtype.h"

namespace ait::inline v0 {
namespace {

constexpr std::size_t kBf16 = 0, kFp16 = 1, kOthers = 2;

std::size_t KindOf(DType dtype) {
  return dtype == DType::kBFloat16 ? kBf16 : dtype == DType::kFloat16 ? kFp16 : kOthers;
}

thread_local std::array<std::int64_t, 3> opened_scopes{};

c10::DeviceType ToTorch(Autocast::Device device) {
  return device == Autocast::Device::kCpu ? c10::DeviceType::CPU : c10::DeviceType::CUDA;
}

}  // namespace

Autocast::Autocast(DType dtype, Device device, Cache cache)
    : device_(device),
      enabled_(at::autocast::is_autocast_enabled(ToTorch(device)) ? Was::kOn : Was::kOff),
      cache_(at::autocast::is_autocast_cache_enabled() ? Was::kOn : Was::kOff),
      dtype_(static_cast<std::int8_t>(at::autocast::get_autocast_dtype(ToTorch(device)))) {
  const std::size_t kind = KindOf(dtype);
  ++opened_scopes[kind];
  at::autocast::increment_nesting();
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(ToTorch(device), kind != kOthers);
  if (kind != kOthers) {
    at::autocast::set_autocast_dtype(ToTorch(device), ::ait::ToTorch(dtype));
  }
  at::autocast::set_autocast_cache_enabled(cache == Cache::kOn);
}

Autocast::~Autocast() {
  at::autocast::clear_cache();
  at::autocast::decrement_nesting();
  at::autocast::set_autocast_cache_enabled(cache_ == Was::kOn);
  at::autocast::set_autocast_dtype(ToTorch(device_), static_cast<c10::ScalarType>(dtype_));
  at::autocast::set_autocast_enabled(ToTorch(device_), enabled_ == Was::kOn);
}

void Autocast::ClearCache() { at::autocast::clear_cache(); }

DType Autocast::Current(Device device) {
  if (!at::autocast::is_autocast_enabled(ToTorch(device))) return DType::kFloat32;
  return FromTorch(at::autocast::get_autocast_dtype(ToTorch(device))).value_or(DType::kFloat32);
}

std::int64_t Autocast::opened(DType dtype) { return opened_scopes[KindOf(dtype)]; }

bool Autocast::Bf16IsFastHere() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

}  // namespace ait::inline v0
