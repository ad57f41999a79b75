// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_SIGNAL_RELAY_H_
#define AIT_CLI_SIGNAL_RELAY_H_

#include <signal.h>

#include <array>

#include "ait/launch/launcher.h"

namespace ait::cli {

/// For as long as it lives, INT, TERM, HUP and QUIT that come to this process stop the launch;
/// those that were ignored stay ignored (nohup). Then they do what they did before. One at a time.
class SignalRelay {
 public:
  explicit SignalRelay(Launcher& launcher);
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;
  ~SignalRelay();

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace ait::cli

#endif  // AIT_CLI_SIGNAL_RELAY_H_
