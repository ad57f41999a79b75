// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/process_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/process.h"

namespace ait {
namespace {

ProcessMemory ReadStatus(const std::string& text) {
  const testing::TempDir proc;
  std::filesystem::create_directory(proc / "self");
  std::ofstream(proc / "self/status") << text;
  return ReadProcessMemory(proc.path());
}

TEST(ProcessMemory, ReadsTheTwoLinesOfTheKernel) {
  const ProcessMemory memory = ReadStatus(
      "Name:\tgpt\nVmPeak:\t 9 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t1\n");
  EXPECT_EQ(memory.resident, MiB(1));
  EXPECT_EQ(memory.peak_resident, MiB(2));
}

TEST(ProcessMemory, WhatIsMissingOrOddIsUnknown) {
  for (const char* text :
       {"", "Name:\tgpt\n", "VmRSS:\n", "VmRSS:\t12\n", "VmRSS:\t12 MB\n", "VmRSS:\tmany kB\n"}) {
    EXPECT_FALSE(ReadStatus(text).resident.has_value()) << text;
  }
  EXPECT_FALSE(ReadProcessMemory("/nowhere").resident.has_value());
}

TEST(ProcessMemory, ThisProcessUsesMoreThanAMebibyte) {
  const ProcessMemory memory = ReadProcessMemory();
  ASSERT_TRUE(memory.resident.has_value());
  EXPECT_GT(*memory.resident, MiB(1));
}

}  // namespace
}  // namespace ait
