// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_SIGNAL_MASK_H_
#define AIT_BASE_SIGNAL_MASK_H_

// Signals of the process are for the threads of the application: a thread of the library is started
// while they are blocked, and inherits that. Not a public header.
//
//   const BlockedSignals blocked;
//   thread_ = std::thread([this] { Run(); });       // may throw: the mask is put back

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace ait::inline v0::internal {

/// Blocks the signals of the calling thread until it goes out of scope, on the same thread. Those
/// that a thread raises by a fault of its own stay: blocked, they would end the process without a
/// handler of the application.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      sigdelset(&blocked, fault);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_BASE_SIGNAL_MASK_H_
