// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_DATA_CACHE_TIERED_CACHE_FIXTURE_H_
#define AIT_TESTS_DATA_CACHE_TIERED_CACHE_FIXTURE_H_

// A cache of small entries on top of objects in memory, in a directory that goes with the test.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "ait/data/cache/tiered_cache.h"
#include "data/cache/cache_test_support.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait::testing {

inline constexpr std::int64_t kPart = 4096;
inline constexpr std::int64_t kEntry = 4 * kPart;
inline constexpr std::int64_t kEntryFile = kEntry + 4096;  // with its head

class TieredCacheFixture : public ::testing::Test {
 protected:
  TieredCacheOptions Options() const {
    return {.disk_bytes = 100 * kEntryFile,
            .disk_directory = cache_directory_,
            .part_bytes = kPart,
            .entry_bytes = kEntry,
            .lease = std::chrono::milliseconds(0),
            .use_interval = std::chrono::milliseconds(0),
            .retry_after = std::chrono::milliseconds(0)};
  }
  std::shared_ptr<TieredCache> Make(const TieredCacheOptions& options) {
    auto cache = TieredCache::Create(remote_, options);
    EXPECT_OK(cache);
    return cache.ok() ? *cache : nullptr;
  }
  std::shared_ptr<TieredCache> Make() { return Make(Options()); }
  // The bytes of an object that was put.
  std::string Put(const std::string& url, std::size_t size, const std::string& version = "1") {
    const std::string text = RandomText(size, ++seed_);
    remote_->Put(url, text, version);
    return text;
  }

  const std::shared_ptr<FakeStorage> remote_ = std::make_shared<FakeStorage>();
  const TempDir directory_;
  const SharedMemoryDir memory_;
  // Mostly where nothing waits for a disk; a tmpfs also counts blocks exactly.
  const std::string cache_directory_ =
      (memory_.path().empty() ? directory_.path() : memory_.path()) + "/cache";
  unsigned seed_ = 0;
};

}  // namespace ait::testing

#endif  // AIT_TESTS_DATA_CACHE_TIERED_CACHE_FIXTURE_H_
