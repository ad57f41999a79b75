// SPDX-License-Identifier: Apache-2.0
#include "ait/checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using namespace std::string_view_literals;
using ::ait::testing::Process;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::testing::HasSubstr;

// A file with one tensor of each dtype, a scalar, an empty tensor and a name with everything, as
// written by safetensors.serialize of the reference library, version 0.8.0.
constexpr std::string_view kReference =
    "\x60\x03\x00\x00\x00\x00\x00\x00"
    R"({"__metadata__":{"format":"pt"},)"
    R"("step":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
    R"("d":{"dtype":"F64","shape":[1],"data_offsets":[8,16]},)"
    "\"bias\\\"\xC3\xA9\\n\\\\/\":"
    R"({"dtype":"F32","shape":[1],"data_offsets":[16,20]},)"
    R"("embedding.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[20,44]},)"
    R"("u32":{"dtype":"U32","shape":[1],"data_offsets":[44,48]},)"
    R"("i32":{"dtype":"I32","shape":[1],"data_offsets":[48,52]},)"
    R"("w.bf16":{"dtype":"BF16","shape":[2],"data_offsets":[52,56]},)"
    R"("empty":{"dtype":"F16","shape":[0,4],"data_offsets":[56,56]},)"
    R"("half":{"dtype":"F16","shape":[1],"data_offsets":[56,58]},)"
    R"("u16":{"dtype":"U16","shape":[1],"data_offsets":[58,60]},)"
    R"("i16":{"dtype":"I16","shape":[1],"data_offsets":[60,62]},)"
    R"("i8":{"dtype":"I8","shape":[1],"data_offsets":[62,63]},)"
    R"("u8":{"dtype":"U8","shape":[1],"data_offsets":[63,64]},)"
    R"("flag":{"dtype":"BOOL","shape":[3],"data_offsets":[64,67]}}       )"
    "\x07\x00\x00\x00\x00\x00\x00\x00"                  // step
    "\x9A\x99\x99\x99\x99\x99\xB9\x3F"                  // d
    "\x00\x00\xC0\xBF"                                  // bias
    "\x00\x00\x00\x00\x00\x00\x80\x3F\x00\x00\x00\x40"  // embedding.weight
    "\x00\x00\x40\x40\x00\x00\x80\x40\x00\x00\xA0\x40"
    "\x00\x28\x6B\xEE"  // u32
    "\xFD\xFF\xFF\xFF"  // i32
    "\x80\x3F\x00\x40"  // w.bf16
    "\x00\x38"          // half
    "\xFF\xFF"          // u16
    "\xFE\xFF"          // i16
    "\xC8"              // i8
    "\xC8"              // u8
    "\x01\x00\x01"sv;   // flag
constexpr std::size_t kReferenceHeaderEnd = 8 + 0x360;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Write(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

template <typename T>
std::span<const std::byte> AsBytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

/// The values of kReference, in an order that is not the file's.
struct ReferenceTensors {
  std::vector<float> embedding = {0, 1, 2, 3, 4, 5}, bias = {-1.5f};
  std::vector<std::int64_t> step = {7};
  std::vector<double> d = {0.1};
  std::vector<std::uint16_t> bf16 = {0x3F80, 0x4000}, half = {0x3800}, u16 = {65535};
  std::vector<std::uint8_t> flag = {1, 0, 1}, u8 = {200};
  std::vector<std::int8_t> i8 = {-56};
  std::vector<std::int16_t> i16 = {-2};
  std::vector<std::int32_t> i32 = {-3};
  std::vector<std::uint32_t> u32 = {4000000000};
  std::vector<TensorBytes> all = {
      {"w.bf16", DType::kBFloat16, {2}, AsBytes(bf16)},
      {"embedding.weight", DType::kFloat32, {2, 3}, AsBytes(embedding)},
      {"bias\"\xC3\xA9\n\\/", DType::kFloat32, {1}, AsBytes(bias)},
      {"flag", DType::kBool, {3}, AsBytes(flag)},
      {"step", DType::kInt64, {}, AsBytes(step)},
      {"empty", DType::kFloat16, {0, 4}, {}},
      {"half", DType::kFloat16, {1}, AsBytes(half)},
      {"d", DType::kFloat64, {1}, AsBytes(d)},
      {"u8", DType::kUInt8, {1}, AsBytes(u8)},
      {"i8", DType::kInt8, {1}, AsBytes(i8)},
      {"i16", DType::kInt16, {1}, AsBytes(i16)},
      {"u16", DType::kUInt16, {1}, AsBytes(u16)},
      {"i32", DType::kInt32, {1}, AsBytes(i32)},
      {"u32", DType::kUInt32, {1}, AsBytes(u32)},
  };
};

TEST(WriteSafetensors, GivesTheBytesOfTheReferenceLibrary) {
  const TempDir dir;
  const ReferenceTensors reference;
  ASSERT_EQ(kReference.size(), 939u);
  ASSERT_OK(WriteSafetensors(dir / "f", reference.all, {{"format", "pt"}}));
  EXPECT_EQ(Contents(dir / "f"), kReference);
  ASSERT_OK(WriteSafetensors(dir / "f", {}));
  EXPECT_EQ(Contents(dir / "f"), "\x08\0\0\0\0\0\0\0{}      "sv);
  ASSERT_OK(WriteSafetensors(dir / "f", {}, {{"format", "pt"}}));
  EXPECT_EQ(Contents(dir / "f"), "\x20\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"}}"sv);
}

TEST(SafetensorsFile, ReadsTheBytesOfTheReferenceLibrary) {
  const TempDir dir;
  Write(dir / "f", kReference);
  const ReferenceTensors reference;
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(dir / "f"));
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  ASSERT_EQ(file.tensors().size(), reference.all.size());
  for (const TensorBytes& wanted : reference.all) {
    const TensorInfo* info = file.Find(wanted.name);
    ASSERT_NE(info, nullptr) << wanted.name;
    EXPECT_EQ(info->dtype, wanted.dtype);
    EXPECT_EQ(info->shape, wanted.shape);
    std::vector<std::byte> bytes(wanted.bytes.size());
    ASSERT_OK(file.Read(*info, bytes));
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), wanted.bytes.begin())) << wanted.name;
  }
  EXPECT_EQ(file.Find("embedding"), nullptr);
  EXPECT_EQ(file.Find("zzz"), nullptr);
  EXPECT_TRUE(std::is_sorted(file.tensors().begin(), file.tensors().end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  std::vector<std::byte> wrong(3);
  EXPECT_THAT(file.Read(*file.Find("step"), wrong), StatusIs(StatusCode::kInvalidArgument));
}

TEST(SafetensorsFile, EveryTruncationIsNoticed) {
  const TempDir dir;
  for (std::size_t length = 0; length < kReference.size(); ++length) {
    Write(dir / "f", kReference.substr(0, length));
    ASSERT_THAT(SafetensorsFile::Open(dir / "f"), StatusIs(StatusCode::kDataLoss, HasSubstr("/f")))
        << length;
  }
  Write(dir / "f", std::string(kReference) + "x");
  EXPECT_THAT(SafetensorsFile::Open(dir / "f"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("after its last tensor")));
}

TEST(SafetensorsFile, ImpossibleHeaderLengthsAreRefusedWithoutReadingThem) {
  const TempDir dir;
  for (const std::string_view length : {"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"sv,
                                        "\x01\xE1\xF5\x05\0\0\0\0"sv, "\0\0\0\0\0\0\0\x80"sv}) {
    Write(dir / "f", std::string(length) + "{}");
    EXPECT_THAT(SafetensorsFile::Open(dir / "f"),
                StatusIs(StatusCode::kDataLoss, HasSubstr("allowed are 100000000")));
  }
  Write(dir / "f", "\x03\0\0\0\0\0\0\0{}"sv);
  EXPECT_THAT(SafetensorsFile::Open(dir / "f"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("header ends at byte 11, the file at 10")));
}

TEST(SafetensorsFile, FlippedHeaderBitsNeverReadOutsideTheFile) {
  const TempDir dir;
  for (std::size_t at = 0; at < kReferenceHeaderEnd; ++at) {
    std::string bytes(kReference);
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    Write(dir / "f", bytes);
    const auto file = SafetensorsFile::Open(dir / "f");
    if (!file.ok()) continue;
    for (const TensorInfo& info : file->tensors()) {
      std::vector<std::byte> output(static_cast<std::size_t>(info.bytes().value()));
      ASSERT_OK(file->Read(info, output));
    }
  }
}

TEST(SafetensorsFile, WhatIsNoFileIsNamed) {
  const TempDir dir;
  EXPECT_THAT(SafetensorsFile::Open(dir / "gone"),
              StatusIs(StatusCode::kNotFound, HasSubstr("gone")));
  EXPECT_THAT(SafetensorsFile::Open(dir.path()), StatusIs(StatusCode::kInvalidArgument));
}

TEST(SafetensorsFile, AFileThatShrinksWhileOpenIsAnError) {
  const TempDir dir;
  Write(dir / "f", kReference);
  ASSERT_OK_AND_ASSIGN(SafetensorsFile opened, SafetensorsFile::Open(dir / "f"));
  const SafetensorsFile file = std::move(opened);
  std::filesystem::resize_file(dir / "f", 900);
  std::vector<std::byte> output(3);
  EXPECT_THAT(file.Read(*file.Find("flag"), output),
              StatusIs(StatusCode::kDataLoss, HasSubstr("changed meanwhile")));
}

TEST(WriteSafetensors, RefusesWrongInput) {
  const TempDir dir;
  const std::vector<float> values(6);
  const auto write = [&](std::vector<TensorBytes> tensors) {
    return WriteSafetensors(dir / "f", tensors);
  };
  EXPECT_THAT(write({{"a", DType::kFloat32, {2, 4}, AsBytes(values)}}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("\"a\" (F32 [2, 4]) has 32 bytes, given are 24")));
  EXPECT_THAT(write({{"a", DType::kFloat32, {6}, AsBytes(values)},
                     {"a", DType::kFloat32, {6}, AsBytes(values)}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("twice")));
  EXPECT_FALSE(std::filesystem::exists(dir / "f"));
  EXPECT_THAT(WriteSafetensors(dir / "gone/f", {}), StatusIs(StatusCode::kNotFound));
}

TEST(WriteSafetensors, AFullDiskLeavesTheOldFile) {
  const TempDir dir;
  Write(dir / "f", kReference);
  Process::Spawn({.program = AIT_TEST_SAVER, .args = {"once", dir / "f", "200000"}})
      .ExpectExit(1, "bytes are needed");
  EXPECT_EQ(Contents(dir / "f"), kReference);
  EXPECT_FALSE(std::filesystem::exists(dir / "f.partial"));
  Process::Spawn({.program = AIT_TEST_SAVER, .args = {"once", dir / "f", "50000"}}).ExpectExit(0);
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(dir / "f"));
  EXPECT_EQ(file.Find("x")->bytes(), Bytes(50000));
}

TEST(WriteSafetensors, KilledAtAnyMomentLeavesAWholeFile) {
  const TempDir dir;
  constexpr std::size_t kBytes = 3'000'000;
  for (int round = 0; round < 5; ++round) {
    auto saver = Process::Spawn(
        {.program = AIT_TEST_SAVER, .args = {"loop", dir / "f", std::to_string(kBytes)}});
    saver.ReadUntil("three");
    usleep(static_cast<useconds_t>(1700 * round));
    saver.Signal(SIGKILL);
    saver.Wait();
    ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(dir / "f"));
    std::vector<std::byte> bytes(kBytes);
    ASSERT_OK(file.Read(*file.Find("x"), bytes));
    ASSERT_EQ(std::memcmp(bytes.data(), bytes.data() + 1, kBytes - 1), 0);  // all of one save
  }
}

}  // namespace
}  // namespace ait
