// SPDX-License-Identifier: Apache-2.0
#include "base/signal_mask.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace ait::internal {
namespace {

bool IsBlocked(int signal) {
  sigset_t now;
  pthread_sigmask(SIG_BLOCK, nullptr, &now);
  return sigismember(&now, signal) == 1;
}

TEST(BlockedSignalsTest, AThreadStartedInTheScopeGetsNone) {
  bool terminate = false, user = false, fault = true;
  {
    const BlockedSignals blocked;
    std::thread([&] {
      terminate = IsBlocked(SIGTERM);
      user = IsBlocked(SIGUSR1);
      fault = IsBlocked(SIGSEGV);
    }).join();
  }
  EXPECT_TRUE(terminate);
  EXPECT_TRUE(user);
  EXPECT_FALSE(fault) << "a fault of the thread itself reaches the handler of the application";
  EXPECT_FALSE(IsBlocked(SIGTERM));
}

TEST(BlockedSignalsTest, WhatWasBlockedBeforeStaysSo) {
  sigset_t one, before;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &one, &before);
  {
    const BlockedSignals blocked;
  }
  EXPECT_TRUE(IsBlocked(SIGUSR2));
  EXPECT_FALSE(IsBlocked(SIGTERM));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(BlockedSignalsTest, AnExceptionPutsThemBack) {
  EXPECT_THROW(
      {
        const BlockedSignals blocked;
        throw std::runtime_error("no thread");
      },
      std::runtime_error);
  EXPECT_FALSE(IsBlocked(SIGTERM));
}

}  // namespace
}  // namespace ait::internal
