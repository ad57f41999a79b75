// SPDX-License-Identifier: Apache-2.0
// Damage in every place of the cache's files, and waits that do not end.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <condition_variable>
#include <csignal>

#include "data/cache/cache_test_support.h"
#include "data/data_test_support.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using namespace std::chrono_literals;
using ::ait::testing::EntryFiles;
using ::ait::testing::FakeStorage;
using ::ait::testing::RandomText;
using ::ait::testing::ReadBytes;
using ::ait::testing::ReadText;
using ::ait::testing::SharedMemoryDir;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::WriteBytes;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::int64_t kPart = 4096;
constexpr std::int64_t kEntry = 4 * kPart;
constexpr std::size_t kHead = 4096;

class CacheDamageTest : public ::testing::Test {
 protected:
  std::shared_ptr<TieredCache> Make(std::chrono::milliseconds wait = 20s) {
    auto cache = TieredCache::Create(remote_, {.disk_bytes = 1 << 20,
                                               .disk_directory = directory_,
                                               .part_bytes = kPart,
                                               .entry_bytes = kEntry,
                                               .wait = wait,
                                               .lease = 0ms,
                                               .use_interval = 0ms,
                                               .retry_after = 0ms});
    EXPECT_OK(cache);
    return *cache;
  }
  // An entry of three parts, the last of them short.
  std::string MakeEntry() {
    const std::string text = RandomText(2 * kPart + 100, 1);
    remote_->Put("a", text);
    EXPECT_EQ(ReadText(*Make(), "a"), text);
    remote_->reads = 0;
    return text;
  }

  const std::shared_ptr<FakeStorage> remote_ = std::make_shared<FakeStorage>();
  const TempDir temporary_;
  const SharedMemoryDir memory_;
  const std::string directory_ =
      (memory_.path().empty() ? temporary_.path() : memory_.path()) + "/cache";
};

TEST_F(CacheDamageTest, AFlippedBitIsFoundDroppedAndFetchedAgain) {
  const std::string text = MakeEntry();
  const std::string file = EntryFiles(directory_).at(0), good = ReadBytes(file);
  ASSERT_EQ(good.size(), kHead + text.size());
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < 128 + 4 * 16; ++i) places.push_back(i);
  for (std::size_t i = 200; i < good.size(); i += 97) places.push_back(i);
  places.push_back(good.size() - 1);
  for (std::size_t place : places) {
    std::string bad = good;
    bad[place] = static_cast<char>(bad[place] ^ (1 << (place % 8)));
    WriteBytes(file, bad);
    remote_->reads = 0;
    const auto cache = Make();
    ASSERT_EQ(ReadText(*cache, "a"), text) << place;
    const CacheTierStatistics disk = cache->statistics().disk;
    EXPECT_EQ(disk.faults, 0) << place << disk.last_fault;
    // Where a bit means nothing: zeros, the number of the last use, the rest of the head.
    const bool is_header = place < 100, is_data = place >= kHead;
    EXPECT_EQ(disk.verification_failures, is_header || is_data ? 1 : 0) << place;
    if (is_header) {
      EXPECT_EQ(remote_->reads, 3) << place;
    }
    if (is_data) {
      EXPECT_EQ(remote_->reads, 1) << place;
    }
    if (place >= 128 && place < 128 + 48 && (place - 128) % 16 < 12) {
      EXPECT_EQ(remote_->reads, 1) << place;
    }
    // Repaired for good.
    remote_->reads = 0;
    ASSERT_EQ(ReadText(*Make(), "a"), text);
    EXPECT_EQ(remote_->reads, 0) << place;
  }
}

TEST_F(CacheDamageTest, AFileCutShortAnywhereIsMadeWholeAgain) {
  const std::string text = MakeEntry();
  const std::string file = EntryFiles(directory_).at(0), good = ReadBytes(file);
  for (std::size_t size = 0; size < good.size(); size += size < 260 ? 3 : 331) {
    WriteBytes(file, std::string_view(good).substr(0, size));
    ASSERT_EQ(ReadText(*Make(), "a"), text) << size;
    remote_->reads = 0;
    ASSERT_EQ(ReadText(*Make(), "a"), text) << size;
    EXPECT_EQ(remote_->reads, 0) << size;
  }
}

TEST_F(CacheDamageTest, BytesOfAnotherPartOrEntryDoNotPass) {
  const std::string a = MakeEntry();
  const std::string file = EntryFiles(directory_).at(0);
  std::string swapped = ReadBytes(file);
  std::swap_ranges(swapped.begin() + 128, swapped.begin() + 144, swapped.begin() + 144);
  WriteBytes(file, swapped);
  EXPECT_EQ(ReadText(*Make(), "a"), a);
  EXPECT_EQ(remote_->reads, 2);
  // The whole file of another object under this name.
  const std::string b = RandomText(a.size(), 2);
  remote_->Put("b", b);
  EXPECT_EQ(ReadText(*Make(), "b"), b);
  auto files = EntryFiles(directory_);
  ASSERT_THAT(files, SizeIs(2));
  WriteBytes(file, ReadBytes(files[0] == file ? files[1] : files[0]));
  EXPECT_EQ(ReadText(*Make(), "a"), a);
  EXPECT_EQ(ReadText(*Make(), "b"), b);
}

TEST_F(CacheDamageTest, ADamagedControlFileIsCountedAnew) {
  const std::string text = MakeEntry();
  for (const std::string& control :
       {std::string(), std::string(7, 'x'), std::string(100, '\0'), std::string(32, '\xff')}) {
    WriteBytes(directory_ + "/control", control);
    const auto cache = Make();
    EXPECT_EQ(ReadText(*cache, "a"), text);
    WriteBytes(directory_ + "/control", control);  // while it is used
    EXPECT_EQ(ReadText(*cache, "a"), text);
    const std::string url = StrCat("b", control.size());
    remote_->Put(url, text);
    EXPECT_EQ(ReadText(*cache, url), text);
    EXPECT_EQ(cache->statistics().disk.faults, 0);
  }
}

TEST_F(CacheDamageTest, AFileThatVanishesOrShrinksWhileItIsReadIsNoError) {
  const std::string text = MakeEntry();
  const auto cache = Make();
  ASSERT_OK_AND_ASSIGN(const auto object, cache->Open("a"));
  EXPECT_EQ(ReadText(*object, 0, 5000), text.substr(0, 5000));
  ASSERT_EQ(::truncate(EntryFiles(directory_).at(0).c_str(), 4100), 0);
  EXPECT_EQ(ReadText(*object, 0, 8192 + 100), text);
  ASSERT_EQ(::truncate(EntryFiles(directory_).at(0).c_str(), 0), 0);
  EXPECT_EQ(ReadText(*object, 0, 8192 + 100), text);
  std::filesystem::remove_all(directory_ + "/objects");
  EXPECT_EQ(ReadText(*object, 0, 8192 + 100), text);
  EXPECT_EQ(ReadText(*cache, "a"), text);
  remote_->Put("b", text);
  EXPECT_EQ(ReadText(*cache, "b"), text);
}

TEST_F(CacheDamageTest, AHoleOfAFileThatWasCutIsNeverGivenForBytes) {
  const std::string text = MakeEntry();
  for (const int size : {0, 4096, 8192}) {
    // Two that have compared all parts, and one that comes later.
    const auto mine = Make(), others = Make();
    ASSERT_OK_AND_ASSIGN(const auto a, mine->Open("a"));
    ASSERT_OK_AND_ASSIGN(const auto b, others->Open("a"));
    EXPECT_EQ(ReadText(*a, 0, 8192 + 100), text);
    EXPECT_EQ(ReadText(*b, 0, 8192 + 100), text);
    ASSERT_EQ(::truncate(EntryFiles(directory_).at(0).c_str(), size), 0);
    EXPECT_EQ(ReadText(*a, 8192, 100), text.substr(8192));
    EXPECT_EQ(ReadText(*a, 0, 4096), text.substr(0, 4096)) << size;
    EXPECT_EQ(ReadText(*b, 4096, 4096), text.substr(4096, 4096)) << size;
    EXPECT_EQ(ReadText(*b, 0, 4096), text.substr(0, 4096)) << size;
    EXPECT_EQ(ReadText(*Make(), "a"), text) << size;
    EXPECT_EQ(mine->statistics().disk.faults, 0) << mine->statistics().disk.last_fault;
    EXPECT_EQ(others->statistics().disk.faults, 0) << others->statistics().disk.last_fault;
    ASSERT_THAT(EntryFiles(directory_), SizeIs(1));
    EXPECT_EQ(std::filesystem::file_size(EntryFiles(directory_)[0]), kHead + text.size());
  }
}

TEST_F(CacheDamageTest, APartThatCannotBeWrittenStaysGoodForWhoHasComparedIt) {
  const std::string text = MakeEntry();
  const auto cache = Make();
  ASSERT_OK_AND_ASSIGN(const auto object, cache->Open("a"));
  EXPECT_EQ(ReadText(*object, 0, 8192), text.substr(0, 8192));
  const std::string file = EntryFiles(directory_).at(0);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(128).write("?", 1);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit limit = {4096, old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto other = Make();
  EXPECT_EQ(ReadText(*other, "a"), text);
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  ::signal(SIGXFSZ, old_handler);
  EXPECT_GT(other->statistics().disk.faults, 0);
  EXPECT_EQ(ReadText(*object, 0, 8192), text.substr(0, 8192));
}

TEST_F(CacheDamageTest, TheBudgetHoldsThoughTheControlFileIsDamagedWhileThereIsNoRoom) {
  const std::string text = RandomText(kEntry, 1);
  for (const char* url : {"a", "b", "c", "d"}) remote_->Put(url, text);
  TieredCacheOptions options = {.disk_bytes = kEntry + kHead,
                                .disk_directory = directory_,
                                .part_bytes = kPart,
                                .entry_bytes = kEntry,
                                .lease = 1h,
                                .use_interval = 0ms,
                                .retry_after = 0ms};
  ASSERT_OK_AND_ASSIGN(const auto cache, TieredCache::Create(remote_, options));
  ASSERT_OK_AND_ASSIGN(const auto other, TieredCache::Create(remote_, options));
  EXPECT_EQ(ReadText(*cache, "a"), text);
  EXPECT_EQ(ReadText(*cache, "b"), text);  // finds that there is none
  WriteBytes(directory_ + "/control", "damaged");
  EXPECT_EQ(ReadText(*cache, "c"), text);
  EXPECT_EQ(ReadText(*other, "d"), text);
  EXPECT_THAT(EntryFiles(directory_), SizeIs(1));
  EXPECT_LE(ait::testing::AllocatedBytes(directory_), options.disk_bytes + kHead);
}

TEST_F(CacheDamageTest, FilesThatCannotBeOpenedCountToo) {
  const std::string text = RandomText(kEntry, 1);
  for (const char* url : {"a", "b"}) remote_->Put(url, text);
  TieredCacheOptions options = {.disk_bytes = kEntry + kHead,
                                .disk_directory = directory_,
                                .part_bytes = kPart,
                                .entry_bytes = kEntry,
                                .lease = 1h,
                                .use_interval = 0ms,
                                .retry_after = 0ms};
  ASSERT_OK_AND_ASSIGN(const auto cache, TieredCache::Create(remote_, options));
  EXPECT_EQ(ReadText(*cache, "a"), text);
  WriteBytes(directory_ + "/control", "damaged");
  // Two descriptors are left: enough to list the directories, not to open a file as well.
  std::vector<int> taken;
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old_limit), 0);
  const rlimit limit = {64, old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  for (int fd = 0; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken.push_back(fd);
  ASSERT_GE(taken.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    ::close(taken.back());
    taken.pop_back();
  }
  EXPECT_EQ(ReadText(*cache, "b"), text);
  for (const int fd : taken) ::close(fd);
  ::setrlimit(RLIMIT_NOFILE, &old_limit);
  EXPECT_THAT(EntryFiles(directory_), SizeIs(1));
  EXPECT_LE(ait::testing::AllocatedBytes(directory_), options.disk_bytes + kHead);
}

TEST_F(CacheDamageTest, AnEntryThatNamesAFolderIsPassedBy) {
  const std::string text = MakeEntry();
  const std::string file = EntryFiles(directory_).at(0);
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  const auto cache = Make();
  EXPECT_EQ(ReadText(*cache, "a"), text);
  EXPECT_GT(cache->statistics().disk.faults, 0);
}

TEST_F(CacheDamageTest, ADownloadThatDoesNotEndIsNotWaitedForLongerThanAsked) {
  const std::string text = RandomText(100, 1);
  remote_->Put("a", text);
  std::mutex mutex;
  std::condition_variable changed;
  bool is_stuck = false, may_go = false;
  remote_->on_read = [&](const std::string&, std::int64_t) {
    std::unique_lock lock(mutex);
    if (is_stuck) return OkStatus();
    is_stuck = true;
    changed.notify_all();
    changed.wait(lock, [&] { return may_go; });
    return OkStatus();
  };
  const auto cache = Make(50ms), other = Make(50ms);
  std::jthread stuck([&] { EXPECT_EQ(ReadText(*cache, "a"), text); });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_stuck; });
  }
  for (const auto& who : {cache, other}) {  // another thread of the process, and another opener
    EXPECT_EQ(ReadText(*who, "a"), text);
    EXPECT_EQ(who->statistics().expired_waits, 1);
    EXPECT_EQ(who->statistics().pass_through_reads, 1);
  }
  EXPECT_THAT(other->Warm("a"), StatusIs(StatusCode::kUnavailable, HasSubstr("does not go on")));
  const std::lock_guard lock(mutex);
  may_go = true;
  changed.notify_all();
}

}  // namespace
}  // namespace ait
