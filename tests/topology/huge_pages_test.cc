// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/huge_pages.h"

#include <gtest/gtest.h>

#include "support/status_matchers.h"
#include "topology/fixture.h"

namespace ait {
namespace {

using ::ait::testing::Fixture;
using ::testing::IsEmpty;

TEST(HugePages, ReadsThePoolsOfEachNode) {
  Fixture fixture;
  fixture.Write("sys/devices/system/node/online", "0,4\n");
  const auto pool = [&](int node, const char* size, const char* total, const char* free) {
    const std::string folder =
        StrCat("sys/devices/system/node/node", node, "/hugepages/hugepages-", size, "kB");
    fixture.Write(folder + "/nr_hugepages", total);
    fixture.Write(folder + "/free_hugepages", free);
  };
  pool(0, "2048", "512\n", "500\n");
  pool(0, "1048576", "0\n", "0\n");
  pool(4, "2048", "16\n", "0\n");
  pool(7, "2048", "1\n", "1\n");  // offline
  fixture.Write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  const HugePageState state = ReadHugePages(fixture.roots());
  ASSERT_EQ(state.pools.size(), 3u);
  EXPECT_EQ(state.pools[0].page, MiB(2));
  EXPECT_EQ(state.pools[0].total, 512);
  EXPECT_EQ(state.pools[0].free, 500);
  EXPECT_EQ(state.pools[1].page, GiB(1));
  EXPECT_EQ(state.pools[2].node, 4);
  EXPECT_EQ(state.pools[2].total, 16);
  EXPECT_EQ(state.pools[2].free, 0);
  EXPECT_EQ(state.transparent, "madvise");
}

TEST(HugePages, OfNothingKnowNothing) {
  Fixture fixture;
  EXPECT_THAT(ReadHugePages(fixture.roots()).pools, IsEmpty());
  EXPECT_EQ(ReadHugePages(fixture.roots()).transparent, "");
  fixture.Write("sys/kernel/mm/transparent_hugepage/enabled", "]odd[");
  EXPECT_EQ(ReadHugePages(fixture.roots()).transparent, "");
}

TEST(HugePages, OfThisMachineAreConsistent) {
  for (const HugePagePool& pool : ReadHugePages().pools) {
    EXPECT_GE(pool.free, 0);
    EXPECT_LE(pool.free, pool.total);
    EXPECT_GE(pool.page, KiB(64));
  }
}

}  // namespace
}  // namespace ait
