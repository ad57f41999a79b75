// SPDX-License-Identifier: Apache-2.0
#include "data/format/shard_check_internal.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ait/data/format/formats.h"
#include "ait/data/storage/local_storage.h"
#include "data/data_test_support.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::ReadBytes;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::WriteBytes;
using internal::CheckShard;
using internal::ShardContents;

SampleField Numbers(std::string name, std::vector<std::int64_t> values) {
  return ArrayField(std::move(name), DType::kInt64, {std::ssize(values)},
                    std::as_bytes(std::span(values)));
}

// Arrays where the format has them.
std::vector<Sample> Samples(const std::string& format) {
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < 4; ++i) {
    Sample& sample = samples.emplace_back(Sample{.key = StrCat("s", i)});
    if (format == "npy") {
      sample.Set(Numbers("data", {i, 2 * i, 3}));
      continue;
    }
    sample.Set({.name = "a", .value = ByteView::Copy(StrCat("first ", i))});
    sample.Set({.name = "b", .value = ByteView::Copy(StrCat("other ", i))});
    if (format != "webdataset") sample.Set(Numbers("c", {i, 2 * i, 3}));
  }
  return samples;
}

class ShardCheckTest : public ::testing::TestWithParam<std::string> {
 protected:
  const TempDir directory_;
  const std::string path_ = directory_.path() + "/shard";
  ShardContents Written() {
    ShardContents contents(GetParam());
    const auto writer = CreateShard(path_, {.format = GetParam()}).value();
    for (const Sample& sample : Samples(GetParam())) {
      EXPECT_OK(writer->Append(sample));
      contents.Add(sample);
    }
    EXPECT_OK(writer->Commit());
    return contents;
  }
  Status Check(const ShardContents& contents) const {
    return CheckShard(*storage_, path_, contents);
  }

 private:
  const std::shared_ptr<const Storage> storage_ = LocalStorage::Create({}).value();
};

TEST_P(ShardCheckTest, WhatWasWrittenPasses) { EXPECT_OK(Check(Written())); }

TEST_P(ShardCheckTest, AFlippedByteIsFound) {
  const ShardContents contents = Written();
  const std::string whole = ReadBytes(path_);
  int missed = 0;
  for (std::size_t at = 0; at < whole.size(); at += 13) {
    std::string bytes = whole;
    bytes[at] ^= 0x10;
    WriteBytes(path_, bytes);
    missed += Check(contents).ok() ? 1 : 0;
  }
  // What says nothing of a sample: the end of a tar, the notes of an MDS shard, spaces of npy.
  EXPECT_LT(missed, GetParam() == "webdataset" ? 600 : GetParam() == "tfrecord" ? 1 : 20);
}

TEST_P(ShardCheckTest, AnythingElseDoesNotPass) {
  Written();
  const std::vector<Sample> samples = Samples(GetParam());
  const auto with = [&](auto change) {
    std::vector<Sample> other = samples;
    change(other);
    ShardContents contents(GetParam());
    for (const Sample& sample : other) contents.Add(sample);
    return Check(contents);
  };
  const auto lost = StatusIs(StatusCode::kDataLoss);
  EXPECT_THAT(with([](auto& s) { s.pop_back(); }), lost);
  EXPECT_THAT(with([](auto& s) { s.push_back(s[0]); }), lost);
  EXPECT_THAT(with([](auto& s) { std::swap(s[0], s[1]); }), lost);
  EXPECT_THAT(with([](auto& s) { s[1].fields.pop_back(); }), lost);
  if (GetParam() != "tfrecord" && GetParam() != "webdataset") {
    EXPECT_THAT(with([](auto& s) { s[2].fields.back().shape = {1, 3}; }), lost);
    EXPECT_THAT(with([](auto& s) { s[2].fields.back().dtype = DType::kFloat64; }), lost);
  }
  if (GetParam() == "npy") return;
  EXPECT_THAT(with([](auto& s) { s[0].key = "other"; }), lost);
  EXPECT_THAT(with([](auto& s) { s[3].fields[0].name = "x"; }), lost);
  EXPECT_THAT(with([](auto& s) { std::swap(s[3].fields[0].value, s[3].fields[1].value); }), lost);
}

TEST_P(ShardCheckTest, ADamagedIndexIsFound) {
  const ShardContents contents = Written();
  const std::string index = path_ + ".aitidx";
  if (!std::filesystem::exists(index)) GTEST_SKIP() << "the format has none";
  std::string bytes = ReadBytes(index);
  bytes[bytes.size() - 3] ^= 1;
  WriteBytes(index, bytes);
  EXPECT_THAT(Check(contents), StatusIs(StatusCode::kDataLoss));
}

INSTANTIATE_TEST_SUITE_P(Formats, ShardCheckTest,
                         ::testing::Values("webdataset", "tfrecord", "mds", "npy"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace ait
