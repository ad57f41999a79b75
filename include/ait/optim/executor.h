// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_EXECUTOR_H_
#define AIT_OPTIM_EXECUTOR_H_

// How the caller lends threads to a pass over a large buffer.
//
// Nothing in optim starts a thread. A pass is cut into `threads` contiguous parts of nearly equal
// size, a function of the buffer and `threads` alone, and `run` is asked to call a function once
// for each part. If part i is always run by the same thread, each page of the optimizer's state is
// first touched and later used by one thread, hence stays on its NUMA node. The results do not
// depend on `threads`: bit for bit the same.
//
//   ait::Executor executor{.threads = pool.size()};  // or ait::TorchExecutor()
//   executor.run = [&](int parts, const std::function<void(int)>& part) {
//     for (int i = 1; i < parts; ++i) pool.Start(i, part);  // part i always on thread i
//     part(0);
//     pool.Wait();
//   };

#include <functional>

namespace ait::inline v0 {

/// Threads lent by the caller; by default the calling thread alone. A value.
struct Executor {
  /// Parts that a pass is cut into, at least 1.
  int threads = 1;

  /// Calls part(0), …, part(parts - 1), each once, on any threads and in any order, and returns
  /// when all of them have. Not called, and may be empty, if `threads` is 1. The parts do not
  /// throw.
  std::function<void(int parts, const std::function<void(int)>& part)> run;
};

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_EXECUTOR_H_
