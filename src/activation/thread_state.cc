// SPDX-License-Identifier: Apache-2.0
#include "activation/thread_state_internal.h"

// Keep the order.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <mutex>

namespace ait::inline v0::internal {
namespace {

at::Tensor StateOf(at::Generator generator) {
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

std::int64_t CurrentGpu() {
  if (!at::globalContext().hasCUDA()) return -1;
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice().index();
}

void UseGpu(std::int64_t gpu) {
  if (gpu < 0) return;
  c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA)
      .uncheckedSetDevice({c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(gpu)});
}

}  // namespace

RandomState RandomState::Take(const std::vector<at::Generator>& more) {
  RandomState taken;
  const auto take = [&](const at::Generator& generator) {
    taken.states_.emplace_back(generator, StateOf(generator));
  };
  take(at::detail::getDefaultCPUGenerator());
  if (at::globalContext().hasCUDA()) {
    const auto& hooks = at::detail::getCUDAHooks();
    for (int gpu = 0; gpu < hooks.deviceCount(); ++gpu) {
      take(hooks.getDefaultGenerator(static_cast<c10::DeviceIndex>(gpu)));
    }
  }
  for (const at::Generator& generator : more) take(generator);
  return taken;
}

RandomState RandomState::Now() const {
  RandomState now;
  for (const auto& [generator, state] : states_) {
    now.states_.emplace_back(generator, StateOf(generator));
  }
  return now;
}

void RandomState::Set() const {
  for (const auto& [generator, state] : states_) {
    at::Generator target = generator;
    const std::scoped_lock lock(target.mutex());
    target.set_state(state);
  }
}

ThreadState::ThreadState()
    : keys_(c10::impl::tls_local_dispatch_key_set()),
      autograd_(c10::AutogradState::get_tls_state()),
      cache_(at::autocast::is_autocast_cache_enabled()),
      device_(CurrentGpu()) {
  for (std::size_t i = 0; i < dtypes_.size(); ++i) {
    dtypes_[i] = at::autocast::get_autocast_dtype(at::autocast::_AUTOCAST_SUPPORTED_DEVICES[i]);
  }
}

void ThreadState::Set() const {
  c10::impl::_force_tls_local_dispatch_key_set(keys_);
  c10::AutogradState::set_tls_state(autograd_);
  for (std::size_t i = 0; i < dtypes_.size(); ++i) {
    at::autocast::set_autocast_dtype(at::autocast::_AUTOCAST_SUPPORTED_DEVICES[i], dtypes_[i]);
  }
  at::autocast::set_autocast_cache_enabled(cache_);
  UseGpu(device_);
}

// A cast that was made before belongs to another graph, and one made here to one that is dropped.
// The cache is one for all threads, of which others may be in forward: it is left alone.
ThreadStateGuard::ThreadStateGuard(const ThreadState& state) {
  at::autocast::increment_nesting();
  state.Set();
  at::autocast::set_autocast_cache_enabled(false);
}

ThreadStateGuard::~ThreadStateGuard() {
  before_.Set();
  at::autocast::decrement_nesting();
}

}  // namespace ait::inline v0::internal
