// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_THREAD_STATE_INTERNAL_H_
#define AIT_ACTIVATION_THREAD_STATE_INTERNAL_H_

// What a thread computes with besides its inputs: random generators, autocast, grad mode, dispatch
// keys, the GPU in use. Taken on one thread and given to another for a while. Who observes a thread,
// a profiler for one, goes on to do so.

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "tensor/torch_internal.h"
// Keep the order.
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace ait::inline v0::internal {

/// States of generators.
class RandomState {
 public:
  RandomState() = default;
  /// Of the generators of the CPU and of all GPUs, and of `more`.
  static RandomState Take(const std::vector<at::Generator>& more);
  /// The same generators, as they are now.
  RandomState Now() const;
  void Set() const;

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

class ThreadState {
 public:
  /// Of this thread, without its generators.
  ThreadState();
  void Set() const;

 private:
  c10::impl::LocalDispatchKeySet keys_;  // tell where autocast is on, too
  c10::AutogradState autograd_;
  std::array<at::ScalarType, at::autocast::_AUTOCAST_SUPPORTED_DEVICES.size()> dtypes_{};
  bool cache_;           // of autocast
  std::int64_t device_;  // the GPU in use; -1: there is none
};

/// This thread has `state`, without the cache of autocast; at the end, what it had.
class [[nodiscard]] ThreadStateGuard {
 public:
  explicit ThreadStateGuard(const ThreadState& state);
  ~ThreadStateGuard();
  ThreadStateGuard(const ThreadStateGuard&) = delete;
  ThreadStateGuard& operator=(const ThreadStateGuard&) = delete;

 private:
  ThreadState before_;
};

/// The generators of `state` have it; at the end, what they had.
class [[nodiscard]] RandomGuard {
 public:
  explicit RandomGuard(const RandomState& state) : before_(state.Now()) { state.Set(); }
  ~RandomGuard() { before_.Set(); }
  RandomGuard(const RandomGuard&) = delete;
  RandomGuard& operator=(const RandomGuard&) = delete;

 private:
  RandomState before_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_THREAD_STATE_INTERNAL_H_
