// SPDX-License-Identifier: Apache-2.0
// npy, npz, idx and safetensors: arrays whose rows are samples. The files are numpy's, safetensors'
// and, of idx, put together from the description (testdata/generate.py).
#include <gtest/gtest.h>

#include "data/format/format_entry_internal.h"
#include "data/format/shard_test_support.h"

namespace ait {
namespace {

using ::ait::testing::DirectoryStorage;
using ::ait::testing::Numbers;
using ::ait::testing::ObjectOf;
using ::ait::testing::OpenTestShard;
using ::ait::testing::ReadAll;
using ::ait::testing::ReadBytes;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::TestDamage;
using ::ait::testing::TestData;
using ::ait::testing::TestDataPath;
using ::testing::HasSubstr;

using Floats = std::vector<float>;
using Integers = std::vector<std::int64_t>;

TEST(NpyTest, ARowIsASample) {
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenTestShard("f4_2d.npy"));
  EXPECT_EQ(shard->format(), "npy");
  const std::vector<Sample> rows = ReadAll(*shard);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2].key, "2");
  EXPECT_EQ(rows[2].Find("data")->shape, Integers({2}));
  EXPECT_EQ(Numbers<float>(rows[2].Find("data")), Floats({4, 5}));
}

TEST(NpyTest, ReadsEveryVersionShapeAndOrder) {
  for (const char* name : {"version1.npy", "version2.npy", "version3.npy"}) {
    ASSERT_OK_AND_ASSIGN(const auto shard, OpenTestShard(name));
    const std::vector<Sample> rows = ReadAll(*shard);
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_TRUE(rows[1].Find("data")->shape.empty());
    EXPECT_EQ(Numbers<std::int32_t>(rows[1].Find("data")), std::vector<std::int32_t>({1}));
  }
  ASSERT_OK_AND_ASSIGN(const auto big, OpenTestShard("i2_big.npy"));
  EXPECT_EQ(Numbers<std::int16_t>(ReadAll(*big)[1].Find("data")),
            std::vector<std::int16_t>({300, -400}));
  ASSERT_OK_AND_ASSIGN(const auto scalar, OpenTestShard("scalar.npy"));
  ASSERT_EQ(scalar->record_count(), 1);
  EXPECT_EQ(Numbers<double>(ReadAll(*scalar)[0].Find("data")), std::vector<double>({2.5}));
  ASSERT_OK_AND_ASSIGN(const auto empty, OpenTestShard("empty.npy"));
  EXPECT_EQ(ReadAll(*empty).size(), 0u);
  ASSERT_OK_AND_ASSIGN(const auto half, OpenTestShard("f2_3d.npy"));
  EXPECT_EQ(ReadAll(*half)[1].Find("data")->shape, Integers({2, 2}));
  ASSERT_OK_AND_ASSIGN(const auto boolean, OpenTestShard("bool.npy"));
  EXPECT_EQ(ReadAll(*boolean)[2].Find("data")->dtype, DType::kBool);
}

TEST(NpyTest, UnsignedNumbersOf64BitsBecomeInt64OrAnError) {
  ASSERT_OK_AND_ASSIGN(const auto fits, OpenTestShard("u8_1d.npy"));
  EXPECT_EQ(Numbers<std::int64_t>(ReadAll(*fits)[2].Find("data")), Integers({INT64_MAX}));
  ASSERT_OK_AND_ASSIGN(const auto large, OpenTestShard("u8_large.npy"));
  ASSERT_OK(large->ReadRecord(0));
  EXPECT_THAT(large->ReadRecord(1), StatusIs(StatusCode::kInvalidArgument, HasSubstr("record 1")));
}

TEST(NpyTest, WhatIsNotNumbersInRowsIsRefused) {
  for (const char* name : {"fortran.npy", "object.npy", "text.npy", "structure.npy"}) {
    EXPECT_THAT(OpenTestShard(name), StatusIs(StatusCode::kUnimplemented, HasSubstr(name)));
  }
}

TEST(NpyTest, DamageIsAnError) {
  for (const char* name : {"f4_2d.npy", "version3.npy", "floats.idx", "rows.safetensors"}) {
    TestDamage(name);
  }
}

// A header with that dictionary and these numbers.
std::string Npy(std::string dictionary, std::string_view numbers = "") {
  dictionary += '\n';
  return std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(dictionary.size()) + '\0' +
         dictionary + std::string(numbers);
}

TEST(NpyTest, TheGrammarOfTheHeaderIsStrict) {
  const std::string one(1, 'x');
  const auto code = [&](const std::string& dictionary) {
    return OpenShard(ObjectOf("a.npy", Npy(dictionary, one))).status().code();
  };
  EXPECT_EQ(code("{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}"), StatusCode::kOk);
  EXPECT_EQ(code("{\"shape\":(1L,),'fortran_order':True,'descr':'u1'}"),
            StatusCode::kUnimplemented);  // a dtype without its order
  EXPECT_EQ(code("{'shape':(1L,),'fortran_order':True,'descr':'|u1'}  "), StatusCode::kOk);
  for (const char* bad : {
           "",
           "{",
           "{}",
           "{'descr': '|u1', 'fortran_order': False}",
           "{'descr': '|u1', 'fortran_order': False, 'shape': (1)}",
           "{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}",
           "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), 'x': 1}",
           "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (1,)}",
           "{'descr': '|u1', 'fortran_order': 0, 'shape': (1,)}",
           "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)} x",
           "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}",
           "{'descr': '|u1', 'fortran_order': False, 'shape': (9223372036854775807, 3)}",
           "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,)}",
           "__import__('os')",
       }) {
    EXPECT_EQ(code(bad), StatusCode::kDataLoss) << bad;
  }
}

TEST(NpyTest, WritesTheBytesOfNumpy) {
  for (const char* name : {"f4_2d.npy", "f2_3d.npy", "bool.npy", "version1.npy"}) {
    const TempDir directory;
    const std::string path = directory.path() + "/copy.npy";
    ASSERT_OK_AND_ASSIGN(const auto shard, OpenTestShard(name));
    ASSERT_OK_AND_ASSIGN(const auto writer, CreateShard(path, {.format = "npy"}));
    for (const Sample& sample : ReadAll(*shard)) ASSERT_OK(writer->Append(sample));
    EXPECT_EQ(writer->size_bytes(), static_cast<std::int64_t>(TestData(name).size()));
    ASSERT_OK(writer->Commit());
    EXPECT_EQ(ReadBytes(path), TestData(name)) << name;
  }
}

TEST(NpyTest, TheWriterRefusesRowsThatDiffer) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto writer,
                       CreateShard(directory.path() + "/a.npy", {.format = "npy"}));
  const std::vector<std::byte> bytes(8);
  Sample row;
  row.Set(ArrayField("x", DType::kInt32, {2}, bytes));
  ASSERT_OK(writer->Append(row));
  Sample other;
  other.Set(ArrayField("x", DType::kInt64, {1}, bytes));
  EXPECT_THAT(writer->Append(other), StatusIs(StatusCode::kInvalidArgument));
  row.Set({.name = "text", .value = ByteView::Copy("a")});
  EXPECT_THAT(writer->Append(row), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(writer->record_count(), 1);
}

TEST(IdxTest, ReadsOneFileAndAPair) {
  ASSERT_OK_AND_ASSIGN(const auto floats, OpenTestShard("floats.idx"));
  EXPECT_EQ(Numbers<float>(ReadAll(*floats)[0].Find("data")), Floats({1.5, -2}));
  ASSERT_OK_AND_ASSIGN(const auto images, OpenTestShard("mnist/train-images-idx3-ubyte.gz"));
  EXPECT_EQ(images->format(), "idx");
  EXPECT_EQ(ReadAll(*images).size(), 3u);

  const auto storage = std::make_shared<DirectoryStorage>();
  const std::vector<ObjectInfo> objects = DirectoryStorage::Objects(TestDataPath("mnist"));
  for (const internal::CollectionFormat* format : internal::CollectionFormats()) {
    if (format->name != "idx-pair") continue;
    EXPECT_TRUE(format->match(objects));
    ASSERT_OK_AND_ASSIGN(const auto source, format->open(storage, "mnist", objects, {}));
    const std::vector<Sample> samples = ReadAll(*source);
    ASSERT_EQ(samples.size(), 3u);
    EXPECT_EQ(Numbers<std::uint8_t>(samples[1].Find("image")),
              std::vector<std::uint8_t>({4, 5, 6, 7}));
    EXPECT_EQ(Numbers<std::uint8_t>(samples[1].Find("label")), std::vector<std::uint8_t>({8}));
  }
}

}  // namespace
}  // namespace ait
