// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/process_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

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

TEST(ProcessMemory, ReadsTheParts) {
  const ProcessMemory memory = ReadStatus(
      "VmSize:\t  900 kB\nVmRSS:\t  60 kB\nRssAnon:\t  30 kB\nRssFile:\t  20 kB\n"
      "RssShmem:\t  10 kB\nVmData:\t  70 kB\nVmSwap:\t  5 kB\n");
  EXPECT_EQ(memory.anonymous, KiB(30));
  EXPECT_EQ(memory.file, KiB(20));
  EXPECT_EQ(memory.shared, KiB(10));
  EXPECT_EQ(memory.swapped, KiB(5));
  EXPECT_EQ(memory.address_space, KiB(900));
  EXPECT_EQ(memory.data, KiB(70));
}

TEST(ProcessMemory, IsSplitByWhoHasIt) {
  const ProcessMemory memory{
      .resident = KiB(60), .anonymous = KiB(30), .file = KiB(20), .shared = KiB(10)};
  const ResidentSplit split = Split(memory, KiB(12).value());
  EXPECT_EQ(split.live, KiB(12));
  EXPECT_EQ(split.held, KiB(18));
  EXPECT_EQ(split.file, KiB(20));
  EXPECT_EQ(split.shared, KiB(10));
  // More than is resident was allocated and not touched.
  EXPECT_EQ(Split(memory, KiB(40).value()).held, Bytes(0));
  // Nobody counted.
  EXPECT_FALSE(Split(memory, std::nullopt).live || Split(memory, std::nullopt).held);
  EXPECT_FALSE(Split(ProcessMemory(), 12).held.has_value());
}

TEST(ProcessMemory, ThePartsOfThisProcessMakeTheWhole) {
  const ProcessMemory memory = ReadProcessMemory();
  if (!memory.anonymous) GTEST_SKIP() << "this kernel has no RssAnon";
  EXPECT_EQ(memory.anonymous->value() + memory.file->value() + memory.shared->value(),
            memory.resident->value());
}

TEST(ProcessMemory, AProportionalShareIsLessThanAllOfIt) {
  const auto proportional = ReadProportionalMemory();
  if (!proportional) GTEST_SKIP() << "this kernel has no smaps_rollup";
  EXPECT_GT(*proportional, Bytes(0));
  EXPECT_LE(*proportional, ReadProcessMemory().peak_resident);
  EXPECT_FALSE(ReadProportionalMemory("/nowhere").has_value());
}

TEST(ProcessMemory, MallocTellsWhatIsInUseAndWhatItHolds) {
  const auto before = ReadMallocMemory();
  if (!before) GTEST_SKIP() << "this malloc does not tell";
  std::vector<std::string> blocks(100, std::string(10'000, 'x'));
  const auto during = ReadMallocMemory();
  EXPECT_GE(during->in_use.value() - before->in_use.value(), 1'000'000);
  const std::string barrier(1000, 'y');  // above them, so that the heap cannot shrink
  blocks.clear();
  const auto after = ReadMallocMemory();
  EXPECT_LT(after->in_use, during->in_use);
  EXPECT_GT(after->held, during->held);
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
