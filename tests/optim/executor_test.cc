// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/executor.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "optim/optim_fixtures.h"
#include "optim/partition.h"

namespace ait {
namespace {

using ::ait::testing::ThreadsOf;

TEST(Executor, PartsCoverARangeOnceWithoutOverlap) {
  for (std::int64_t size : {0, 1, 63, 64, 65, 8192, 8193, 100'000, 1 << 20}) {
    for (int threads : {1, 2, 3, 7}) {
      std::mutex mutex;
      std::set<std::pair<std::int64_t, std::int64_t>> parts;
      internal::ForEachPart(ThreadsOf(threads), {5, 5 + size}, [&](ElementRange part) {
        const std::lock_guard lock(mutex);
        parts.insert({part.begin, part.end});
      });
      std::int64_t end = 5;
      for (const auto& [part_begin, part_end] : parts) {
        EXPECT_EQ(part_begin, end);
        EXPECT_TRUE(part_begin == 5 || part_begin % 64 == 0)
            << "a part shares a block with its neighbour";
        end = part_end;
      }
      EXPECT_EQ(end, 5 + size);
      EXPECT_LE(parts.size(), static_cast<std::size_t>(threads));
    }
  }
}

TEST(Executor, IsNotAskedForARangeThatIsNotWorthAThread) {
  int calls = 0;
  const Executor counting{.threads = 4,
                          .run = [&](int, const std::function<void(int)>&) { ++calls; }};
  bool done = false;
  internal::ForEachPart(counting, {0, 1000},
                        [&](ElementRange part) { done = part.size() == 1000; });
  EXPECT_TRUE(done);
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace ait
