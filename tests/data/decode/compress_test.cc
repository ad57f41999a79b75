// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/compress.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

// "hello\n" by gzip -n, zlib.compress, zstd (with its checksum) and lz4 (with both checksums).
const std::string kGzip(
    "\037\213\010\000\000\000\000\000\000\003\313\110\315\311\311\347\002\000\040\060\072\066\006"
    "\000\000\000",
    26);
const std::string kZlib("\170\234\313\110\315\311\311\347\002\000\010\113\002\037", 14);
const std::string kZstd(
    "\050\265\057\375\004\130\061\000\000\150\145\154\154\157\012\123\210\275\221", 19);
const std::string kLz4(
    "\004\042\115\030\164\100\275\006\000\000\200\150\145\154\154\157\012\371\133\153\224\000\000"
    "\000\000\371\133\153\224",
    29);

struct Packed {
  Compression compression;
  std::string bytes;
};

std::vector<Packed> All() {
  std::vector<Packed> all = {{Compression::kGzip, kGzip}, {Compression::kZlib, kZlib}};
  if (IsAvailable(Compression::kZstd)) all.push_back({Compression::kZstd, kZstd});
  if (IsAvailable(Compression::kLz4)) all.push_back({Compression::kLz4, kLz4});
  return all;
}

std::span<const std::byte> Bytes_(std::string_view text) { return std::as_bytes(std::span(text)); }

StatusOr<ByteView> Unpacked(Compression compression, std::string_view bytes,
                            std::int64_t limit = 1 << 20) {
  return Decompress(compression, Bytes_(bytes), Bytes(limit));
}

TEST(CompressTest, UnpacksWhatTheProgramsPacked) {
  for (const auto& [compression, bytes] : All()) {
    ASSERT_OK_AND_ASSIGN(const ByteView text, Unpacked(compression, bytes));
    EXPECT_EQ(text.text(), "hello\n") << Name(compression);
  }
}

TEST(CompressTest, KnowsItsMagicNumbersAndSuffixes) {
  EXPECT_EQ(CompressionOf(Bytes_(kGzip)), Compression::kGzip);
  EXPECT_EQ(CompressionOf(Bytes_(kZstd)), Compression::kZstd);
  EXPECT_EQ(CompressionOf(Bytes_(kLz4)), Compression::kLz4);
  EXPECT_EQ(CompressionOf(Bytes_(kZlib)), Compression::kNone);
  EXPECT_EQ(CompressionOf({}), Compression::kNone);
  EXPECT_EQ(WithoutCompressionSuffix("a.tar.gz"), "a.tar");
  EXPECT_EQ(WithoutCompressionSuffix("a.zstd"), "a");
  EXPECT_EQ(WithoutCompressionSuffix("a.tar"), "a.tar");
}

TEST(CompressTest, PartsOneAfterTheOtherAreOneFile) {
  for (const auto& [compression, bytes] : All()) {
    if (compression == Compression::kZlib) {
      EXPECT_THAT(Unpacked(compression, bytes + bytes), StatusIs(StatusCode::kDataLoss));
      continue;
    }
    ASSERT_OK_AND_ASSIGN(const ByteView text, Unpacked(compression, bytes + bytes));
    EXPECT_EQ(text.text(), "hello\nhello\n") << Name(compression);
  }
}

TEST(CompressTest, AFileCutShortOrFollowedByOtherBytesIsAnError) {
  for (const auto& [compression, bytes] : All()) {
    for (std::size_t size = 1; size < bytes.size(); ++size) {
      EXPECT_THAT(Unpacked(compression, bytes.substr(0, size)), StatusIs(StatusCode::kDataLoss))
          << Name(compression) << " cut to " << size;
    }
    EXPECT_THAT(Unpacked(compression, bytes + "x"), StatusIs(StatusCode::kDataLoss))
        << Name(compression);
  }
}

TEST(CompressTest, AFlippedBitOfTheContentsIsFound) {
  for (const auto& [compression, bytes] : All()) {
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string flipped = bytes;
        flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
        const auto text = Unpacked(compression, flipped);
        // A header may say other things of the same text.
        if (text.ok()) {
          EXPECT_TRUE(text->text() == "hello\n") << Name(compression) << " " << at;
        }
      }
    }
  }
}

TEST(CompressTest, TheLimitHolds) {
  for (const auto& [compression, bytes] : All()) {
    ASSERT_OK(Unpacked(compression, bytes, 6));
    EXPECT_THAT(Unpacked(compression, bytes, 5), StatusIs(StatusCode::kResourceExhausted));
    EXPECT_THAT(Unpacked(compression, bytes, 0), StatusIs(StatusCode::kResourceExhausted));
  }
}

TEST(CompressTest, UnpacksInPiecesOfAnySize) {
  for (const auto& [compression, bytes] : All()) {
    for (std::size_t in = 1; in <= bytes.size(); ++in) {
      for (std::size_t out = 1; out < 8; ++out) {
        ASSERT_OK_AND_ASSIGN(const auto unpacker, Decompressor::Create(compression));
        std::string text;
        std::size_t at = 0;
        for (int i = 0; i < 1000; ++i) {
          const auto input = Bytes_(bytes).subspan(at, std::min(in, bytes.size() - at));
          std::vector<std::byte> output(out);
          ASSERT_OK_AND_ASSIGN(const DecompressStep step, unpacker->Run(input, output));
          text.append(reinterpret_cast<const char*>(output.data()), step.produced);
          at += step.consumed;
          if (at == bytes.size() && step.produced < out) break;
        }
        EXPECT_EQ(text, "hello\n") << Name(compression);
        EXPECT_TRUE(unpacker->is_complete());
      }
    }
  }
}

TEST(CompressTest, AnObjectIsUnpackedWithItsNameInErrors) {
  const auto packed = MemoryObject("a.gz", ByteView::Copy(kGzip), "v1");
  ASSERT_OK_AND_ASSIGN(const auto object, Unpack(*packed, Compression::kGzip, Bytes(100)));
  EXPECT_EQ(object->info().url, "a.gz");
  EXPECT_EQ(object->info().size_bytes, 6);
  EXPECT_EQ(object->info().version, "v1");
  const auto cut = MemoryObject("a.gz", ByteView::Copy(kGzip.substr(0, 20)));
  EXPECT_THAT(Unpack(*cut, Compression::kGzip, Bytes(100)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("a.gz")));
}

TEST(CompressTest, NothingToUnpackIsAnError) {
  EXPECT_THAT(Decompressor::Create(Compression::kNone), StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace ait
