// SPDX-License-Identifier: Apache-2.0
// The measurements take any storage, not only that of files.
#include "cli/io_bench_data.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "support/status_matchers.h"

namespace ait::cli {
namespace {

class Memory final : public Storage {
 public:
  std::string name() const override { return "memory"; }
  StatusOr<std::shared_ptr<const StoredObject>> Open(const std::string& url) const override {
    if (url == "gone") return NotFoundError("no object gone");
    return MemoryObject(url, ByteView::Copy(std::string(100'000, 'x')));
  }
  StatusOr<ObjectInfo> Stat(const std::string&) const override { return UnimplementedError(""); }
  Status List(const std::string&, const std::function<Status(const ObjectInfo&)>&) const override {
    return UnimplementedError("");
  }
};

TEST(IoBenchData, MeasuresAnyStorage) {
  const Memory storage;
  ASSERT_OK_AND_ASSIGN(IoBenchRow row,
                       MeasureSequential(storage, "a", {.block_bytes = 30'000, .depth = 2}));
  EXPECT_EQ(row.bytes, 100'000);
  EXPECT_EQ(row.reads, 4);
  EXPECT_EQ(row.engine, "memory");
  ASSERT_OK_AND_ASSIGN(
      row, MeasureRandom(storage, "a", {.block_bytes = 1'000, .depth = 8, .most_reads = 80}));
  EXPECT_EQ(row.bytes, 80'000);
  EXPECT_EQ(row.reads, 80);
  ASSERT_OK_AND_ASSIGN(row, MeasureFiles(storage, {"a", "b"}, {}));
  EXPECT_EQ(row.bytes, 200'000);
  EXPECT_EQ(row.reads, 2);
  EXPECT_EQ(MeasureFiles(storage, {"a", "gone"}, {}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MeasureRandom(storage, "a", {.block_bytes = 200'000}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(IoBenchData, RatiosAreToThePlainRowOfTheSameKind) {
  const auto row = [](const char* cache, const char* engine, std::int64_t block, double seconds) {
    return IoBenchRow{.pattern = "sequential",
                      .cache = cache,
                      .engine = engine,
                      .block_bytes = block,
                      .bytes = 1'000,
                      .seconds = seconds};
  };
  std::vector<IoBenchRow> rows = {row("warm", "plain", 1, 2), row("cold", "plain", 1, 8),
                                  row("warm", "pread", 1, 1), row("cold", "pread", 1, 2),
                                  row("warm", "pread", 2, 1)};
  SetRatios(rows);
  EXPECT_FALSE(rows[0].ratio);
  EXPECT_EQ(rows[2].ratio, 2);
  EXPECT_EQ(rows[3].ratio, 4);
  EXPECT_FALSE(rows[4].ratio);
}

}  // namespace
}  // namespace ait::cli
