// SPDX-License-Identifier: Apache-2.0
#include "ait/base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ait/base/status.h"

namespace ait {
namespace {

struct Memory final : LogSink {
  void Write(Severity severity, std::string_view component, std::string_view message) override {
    lines.push_back(StrCat(Name(severity), " ", component, ": ", message));
  }
  std::vector<std::string> lines;
};

TEST(Log, GoesToTheSink) {
  Memory sink;
  Log(&sink, Severity::kWarning, "comm", "rank 1 left");
  EXPECT_EQ(sink.lines, std::vector<std::string>{"warning comm: rank 1 left"});
}

TEST(Log, WithoutSinkGoesNowhere) {
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  Log(nullptr, Severity::kError, "comm", "lost");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

}  // namespace
}  // namespace ait
