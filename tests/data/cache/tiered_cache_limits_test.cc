// SPDX-License-Identifier: Apache-2.0
// What the cache leaves to others, in a machine and after a fork, and what warming keeps.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "data/cache/cache_test_support.h"
#include "data/cache/shelf_internal.h"
#include "data/cache/tiered_cache_fixture.h"
#include "support/process.h"
#include "support/status_matchers.h"
#include "topology/fixture.h"

namespace ait {
namespace {

using namespace std::chrono_literals;
using ::ait::testing::FakeStorage;
using ::ait::testing::kEntry;
using ::ait::testing::kEntryFile;
using ::ait::testing::kPart;
using ::ait::testing::RandomText;
using ::ait::testing::ReadText;
using ::ait::testing::SharedMemoryDir;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::TieredCacheFixture;

class TieredCacheLimitsTest : public TieredCacheFixture {};

TEST_F(TieredCacheLimitsTest, WarmingDoesNotEvictWhatItWarmed) {
  Put("x", kPart);
  std::map<std::string, std::string> texts;
  for (int i = 10; i < 60; ++i) texts[StrCat("d/", i)] = Put(StrCat("d/", i), kEntry);
  auto options = Options();
  options.disk_bytes = 50 * kEntryFile;  // all of it; a part of it is less than x takes
  options.use_interval = 1h;
  const auto cache = Make(options);
  ReadText(*cache, "x");
  ASSERT_OK(cache->Warm("d/", {.threads = 2}));
  remote_->reads = 0;
  for (const auto& [url, text] : texts) EXPECT_EQ(ReadText(*cache, url), text);
  EXPECT_EQ(remote_->reads, 0);
}

TEST_F(TieredCacheLimitsTest, WarmingOpensSeveralObjectsAtOnce) {
  for (int i = 0; i < 4; ++i) Put(StrCat("d/", i), 5000);
  ait::testing::Meeting meeting(2);
  std::atomic<int> opened{0};
  remote_->on_open = [&](const std::string&) {
    if (opened++ < 2) {
      EXPECT_TRUE(meeting.Come());
    }
  };
  ASSERT_OK_AND_ASSIGN(const WarmProgress progress, Make()->Warm("d/", {.threads = 3}));
  EXPECT_EQ(progress.objects_done, 4);
  EXPECT_EQ(progress.bytes_done, 20'000);
}

TEST_F(TieredCacheLimitsTest, MemoryOfThisProcessLeavesDescriptorsForOthers) {
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) texts.push_back(Put(StrCat("o", i), 100));
  auto options = Options();
  options.disk_bytes = 0;
  options.memory = CacheMemory::kPrivate;
  options.memory_bytes = 400 * kEntryFile;
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old_limit), 0);
  const rlimit limit = {256, old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  const auto cache = Make(options);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(ReadText(*cache, StrCat("o", i)), texts[i]);
  for (int i = 199; i > 150; --i) EXPECT_EQ(ReadText(*cache, StrCat("o", i)), texts[i]);
  const auto open = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  ::setrlimit(RLIMIT_NOFILE, &old_limit);
  EXPECT_LT(open, 150);
  const CacheTierStatistics memory = cache->statistics().memory;
  EXPECT_EQ(memory.faults, 0) << memory.last_fault;
  EXPECT_GT(memory.evictions, 0);
  EXPECT_GT(memory.hits, 40);
}

TEST_F(TieredCacheLimitsTest, NothingIsReadForAMemoryTierWithoutRoom) {
  const std::int64_t part = 1 << 20;
  const auto bytes_read = [] {
    std::ifstream in("/proc/self/io");
    std::string word;
    std::int64_t value = -1;
    in >> word >> value;
    return word == "rchar:" ? value : -1;
  };
  if (bytes_read() < 0) GTEST_SKIP() << "no /proc/self/io";
  const std::string a = Put("a", part), b = Put("b", part);
  auto options = Options();
  options.part_bytes = options.entry_bytes = part;
  options.disk_bytes = 10 * part;
  options.memory = CacheMemory::kPrivate;
  options.memory_bytes = part + 8192;
  options.lease = 1h;
  const auto cache = Make(options);
  EXPECT_EQ(ReadText(*cache, "a"), a);  // fills the memory
  ASSERT_OK_AND_ASSIGN(const auto object, cache->Open("b"));
  EXPECT_EQ(ReadText(*object, 0, 10), b.substr(0, 10));
  const std::int64_t before = bytes_read();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ReadText(*object, i, 10), b.substr(i, 10));
  EXPECT_LT(bytes_read() - before, part);
  EXPECT_GE(cache->statistics().disk.hits, 10);
  EXPECT_EQ(cache->statistics().promotions, 0);
}

TEST(FreeMemoryTest, IsWhatTheCgroupLeaves) {
  ait::testing::Fixture machine;
  machine.AddProc(Bytes(std::int64_t{1} << 30), "0-3");
  machine.Write("proc/self/cgroup", "0::/job\n");
  machine.Write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  machine.Write("sys/fs/cgroup/job/memory.max", "104857600\n");
  machine.Write("sys/fs/cgroup/job/memory.current", "4857600\n");
  EXPECT_EQ(internal::FreeMemoryBytes(machine.roots()), 100'000'000);
}

TEST_F(TieredCacheLimitsTest, AForkedChildReadsPastTheCache) {
  const std::string a = Put("a", 2 * kEntry);
  const auto cache = Make();
  ASSERT_OK_AND_ASSIGN(const auto object, cache->Open("a"));
  EXPECT_EQ(ReadText(*object, kEntry, kEntry), a.substr(kEntry));
  ait::testing::Meeting stuck(2), go(2);
  remote_->on_read = [&, first = std::make_shared<std::atomic<bool>>(true)](const std::string&,
                                                                            std::int64_t) {
    if (first->exchange(false)) {
      stuck.Come();
      go.Come();
    }
    return OkStatus();
  };
  std::jthread reader([&] { EXPECT_EQ(ReadText(*object, 0, kEntry), a.substr(0, kEntry)); });
  ASSERT_TRUE(stuck.Come());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(10);  // instead of a hang
    const bool is_right = ReadText(*object, 0, 2 * kEntry) == a && ReadText(*cache, "a") == a &&
                          cache->statistics().pass_through_reads == 2 &&
                          cache->Warm("a").status().code() == StatusCode::kFailedPrecondition;
    ::_exit(is_right ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  go.Come();
}

}  // namespace
}  // namespace ait
