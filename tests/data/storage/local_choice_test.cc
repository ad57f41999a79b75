// SPDX-License-Identifier: Apache-2.0
#include "data/storage/local_choice_internal.h"

#include <gtest/gtest.h>

#include <string>

#include "support/status_matchers.h"

namespace ait::internal {
namespace {

using enum LocalEngine;

// A cold file of 10 GiB on a disk that can do everything.
EngineChoice Cold() {
  EngineChoice choice;
  choice.file_system = "ext4";
  choice.size_bytes = std::int64_t{10} << 30;
  choice.cached = 0;
  choice.memory_bytes = std::int64_t{64} << 30;
  choice.direct_alignment = 4096;
  return choice;
}

LocalEngine Streams(EngineChoice choice, LocalStorageOptions options = {}, FileSystem system = {},
                    int depth = 8) {
  ChooseForStreams(options, system, {choice.size_bytes, depth}, choice);
  EXPECT_FALSE(choice.streams_reason.empty());
  return choice.streams;
}

TEST(LocalChoice, AColdLargeFileIsStreamedPastThePageCache) {
  EXPECT_EQ(Streams(Cold()), kUring);
  EngineChoice warm = Cold();
  warm.cached = 0.9;
  EXPECT_EQ(Streams(warm), kPread);
  warm.cached = -1;
  EXPECT_EQ(Streams(warm), kPread);
  EngineChoice small = Cold();
  small.size_bytes = 1 << 20;
  EXPECT_EQ(Streams(small), kPread);
  EXPECT_EQ(Streams(Cold(), {}, {}, /*depth=*/0), kPread);
}

TEST(LocalChoice, DataThatFitsIntoMemoryGoesThroughThePageCache) {
  EXPECT_EQ(Streams(Cold(), {.data_bytes = std::int64_t{30} << 30}), kPread);
  EXPECT_EQ(Streams(Cold(), {.data_bytes = std::int64_t{40} << 30}), kUring);
}

TEST(LocalChoice, WhatDoesNotWorkIsNotChosen) {
  EngineChoice refused = Cold();
  refused.uring_refusal = "io_uring_setup: Operation not permitted";
  EXPECT_EQ(Streams(refused), kPread);
  EXPECT_EQ(Streams(refused, {.engine = kUring}), kPread);
  EngineChoice no_direct = Cold();
  no_direct.direct_alignment = 0;
  EXPECT_EQ(Streams(no_direct), kPread);
  EXPECT_EQ(Streams(no_direct, {.engine = kUring}), kPread);
}

TEST(LocalChoice, FilesOfANetworkAndOfMemoryHaveTheirOwn) {
  EXPECT_EQ(Streams(Cold(), {}, {.name = "nfs", .is_network = true}), kNetwork);
  EXPECT_EQ(Streams(Cold(), {}, {.name = "tmpfs", .is_memory = true}), kPread);
}

TEST(LocalChoice, WhatIsAskedForIsTaken) {
  EngineChoice warm = Cold();
  warm.cached = 1;
  EXPECT_EQ(Streams(warm, {.engine = kUring}), kUring);
  EXPECT_EQ(Streams(Cold(), {.engine = kPread}), kPread);
  EXPECT_EQ(Streams(Cold(), {.engine = kMapped}), kPread);
  EXPECT_EQ(Streams(Cold(), {.engine = kNetwork}), kNetwork);
}

LocalEngine Reads(double pread, double mapped, LocalStorageOptions options = {},
                  FileSystem system = {}) {
  EngineChoice choice = Cold();
  choice.pread_seconds = pread;
  choice.mapped_seconds = mapped;
  ChooseForReads(options, system, choice);
  EXPECT_FALSE(choice.reads_reason.empty());
  return choice.reads;
}

TEST(LocalChoice, SmallReadsGoByWhatWasMeasuredFaster) {
  EXPECT_EQ(Reads(1e-6, 2e-6), kPread);
  EXPECT_EQ(Reads(1e-6, 0.95e-6), kPread);
  EXPECT_EQ(Reads(1e-6, 0.7e-6), kPread);
  EXPECT_EQ(Reads(2e-6, 1e-6), kMapped);
  EXPECT_EQ(Reads(0, 0), kPread);
  EXPECT_EQ(Reads(2e-6, 1e-6, {}, {.name = "nfs", .is_network = true}), kNetwork);
  EXPECT_EQ(Reads(2e-6, 1e-6, {.engine = kPread}), kPread);
  EXPECT_EQ(Reads(1e-6, 2e-6, {.engine = kMapped}), kMapped);
}

}  // namespace
}  // namespace ait::internal
