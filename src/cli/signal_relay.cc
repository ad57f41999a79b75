// SPDX-License-Identifier: Apache-2.0
#include "cli/signal_relay.h"

#include <atomic>

namespace ait::cli {
namespace {

// What the handler stops: it has no argument of ours.
std::atomic<Launcher*> current_launcher = nullptr;
static_assert(std::atomic<Launcher*>::is_always_lock_free, "else it is not for signal handlers");

void PassOn(int signal) {
  if (Launcher* launcher = current_launcher) launcher->Stop(signal);
}

}  // namespace

SignalRelay::SignalRelay(Launcher& launcher) {
  current_launcher = &launcher;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = PassOn;
    action.sa_flags = SA_RESTART;
    sigaction(kSignals[i], &action, nullptr);
  }
}

SignalRelay::~SignalRelay() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  current_launcher = nullptr;
}

}  // namespace ait::cli
