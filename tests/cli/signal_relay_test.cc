// SPDX-License-Identifier: Apache-2.0
#include "cli/signal_relay.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "support/status_matchers.h"

namespace ait::cli {
namespace {

void (*HandlerOf(int signal))(int) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

// Otherwise a signal that comes late reaches a launcher that is gone.
TEST(SignalRelay, LetsGoOfTheSignalsBeforeTheLauncherIsGone) {
  signal(SIGHUP, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
  {
    ASSERT_OK_AND_ASSIGN(Launcher launcher, Launcher::Create({.command = {"true"}}));
    const SignalRelay relay(launcher);
    EXPECT_NE(HandlerOf(SIGTERM), SIG_DFL);
    EXPECT_NE(HandlerOf(SIGINT), SIG_DFL);
    EXPECT_EQ(HandlerOf(SIGHUP), SIG_IGN);
    raise(SIGTERM);  // stops what is not yet started
    const auto result = launcher.Run();
    ASSERT_OK(result);
  }
  EXPECT_EQ(HandlerOf(SIGTERM), SIG_DFL);
  EXPECT_EQ(HandlerOf(SIGINT), SIG_DFL);
  EXPECT_EQ(HandlerOf(SIGHUP), SIG_IGN);
}

}  // namespace
}  // namespace ait::cli
