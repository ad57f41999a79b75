// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/compress.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "data/decode/compress_internal.h"

namespace ait::inline v0 {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

class ZlibDecompressor final : public Decompressor {
 public:
  explicit ZlibDecompressor(Compression compression) : is_gzip_(compression == Compression::kGzip) {
    is_usable_ = inflateInit2(&zlib_, is_gzip_ ? 16 + MAX_WBITS : MAX_WBITS) == Z_OK;
  }
  ~ZlibDecompressor() override { inflateEnd(&zlib_); }
  ZlibDecompressor(const ZlibDecompressor&) = delete;
  ZlibDecompressor& operator=(const ZlibDecompressor&) = delete;

  bool is_complete() const override { return is_usable_ && is_between_; }

  StatusOr<DecompressStep> Run(std::span<const std::byte> input,
                               std::span<std::byte> output) override {
    if (!is_usable_) return ResourceExhaustedError(name(), ": no memory, or already damaged");
    DecompressStep step;
    while (step.produced < output.size() && (step.consumed < input.size() || may_hold_output_)) {
      if (is_between_ && step.consumed < input.size()) {
        if (is_started_ && !is_gzip_) return Fail("bytes follow its end");
        if (is_started_) inflateReset(&zlib_);
        is_started_ = true;
        is_between_ = false;
      }
      const auto in = Clamp(input.size() - step.consumed);
      const auto out = Clamp(output.size() - step.produced);
      zlib_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input.data())) +
                      step.consumed;  // zlib does not write to it
      zlib_.avail_in = in;
      zlib_.next_out = reinterpret_cast<Bytef*>(output.data()) + step.produced;
      zlib_.avail_out = out;
      const int result = inflate(&zlib_, Z_NO_FLUSH);
      step.consumed += in - zlib_.avail_in;
      step.produced += out - zlib_.avail_out;
      may_hold_output_ = zlib_.avail_out == 0;
      if (result == Z_STREAM_END) {
        is_between_ = true;
        may_hold_output_ = false;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return Fail(zlib_.msg != nullptr ? zlib_.msg : "no memory, or a dictionary is needed");
      }
    }
    return step;
  }

 private:
  std::string_view name() const { return is_gzip_ ? "gzip" : "zlib"; }
  static uInt Clamp(std::size_t size) {
    return static_cast<uInt>(std::min<std::size_t>(size, std::numeric_limits<uInt>::max()));
  }
  Status Fail(std::string_view why) {
    is_usable_ = false;
    return DataLossError("damaged ", name(), " data: ", why);
  }

  z_stream zlib_ = {};
  const bool is_gzip_;
  bool is_usable_ = false;
  bool is_started_ = false;
  bool is_between_ = true;  // of two members, or before the first
  bool may_hold_output_ = false;
};

Status TooLarge(Bytes limit) {
  return ResourceExhaustedError("it unpacks to more than the ", limit.value(),
                                " bytes that are allowed");
}

/// Collects what is unpacked, in memory that grows with it: a stated size is not believed.
class Collector {
 public:
  Collector(Decompressor& decompressor, Bytes limit)
      : decompressor_(decompressor), limit_(static_cast<std::size_t>(limit.value())) {}

  Status Add(std::span<const std::byte> input) {
    while (true) {
      if (filled_ == bytes_.size()) {
        // One byte beyond the limit, so that reaching it is told from passing it.
        const std::size_t larger = std::max(kPieceBytes, bytes_.size() + bytes_.size() / 2);
        bytes_.resize(std::min(larger, limit_ + 1));
      }
      const std::span<std::byte> output = std::span(bytes_).subspan(filled_);
      AIT_ASSIGN_OR_RETURN(const DecompressStep step, decompressor_.Run(input, output));
      filled_ += step.produced;
      if (filled_ > limit_) return TooLarge(Bytes(static_cast<std::int64_t>(limit_)));
      input = input.subspan(step.consumed);
      if (step.produced < output.size()) return OkStatus();
    }
  }

  StatusOr<ByteView> Finish() {
    if (!decompressor_.is_complete()) {
      return DataLossError("it is cut short: its compressed data goes on after ", filled_,
                           " unpacked bytes");
    }
    bytes_.resize(filled_);
    auto owner = std::make_shared<std::vector<std::byte>>(std::move(bytes_));
    const std::span<const std::byte> view(*owner);
    return ByteView(view, std::move(owner));
  }

 private:
  Decompressor& decompressor_;
  const std::size_t limit_;
  std::vector<std::byte> bytes_;
  std::size_t filled_ = 0;
};

}  // namespace

std::string_view Name(Compression compression) {
  constexpr std::array<std::string_view, 5> kNames = {"none", "gzip", "zlib", "zstd", "lz4"};
  return kNames[static_cast<std::size_t>(compression)];
}

Compression CompressionOf(std::span<const std::byte> head) {
  const auto begins = [&](std::string_view magic) {
    return head.size() >= magic.size() && std::memcmp(head.data(), magic.data(), magic.size()) == 0;
  };
  if (begins("\x1f\x8b\x08")) return Compression::kGzip;
  if (begins("\x28\xb5\x2f\xfd")) return Compression::kZstd;
  if (begins("\x04\x22\x4d\x18")) return Compression::kLz4;
  return Compression::kNone;
}

bool IsAvailable(Compression compression) {
  if (compression == Compression::kZstd) return internal::HasZstd();
  if (compression == Compression::kLz4) return internal::HasLz4();
  return true;
}

std::string_view WithoutCompressionSuffix(std::string_view name) {
  for (const std::string_view suffix : {".gz", ".zst", ".zstd", ".lz4"}) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

StatusOr<std::unique_ptr<Decompressor>> Decompressor::Create(Compression compression) {
  switch (compression) {
    case Compression::kGzip:
    case Compression::kZlib:
      return std::make_unique<ZlibDecompressor>(compression);
    case Compression::kZstd:
      return internal::NewZstdDecompressor();
    case Compression::kLz4:
      return internal::NewLz4Decompressor();
    case Compression::kNone:
      break;
  }
  return InvalidArgumentError("there is nothing to unpack: the compression is none");
}

StatusOr<ByteView> Decompress(Compression compression, std::span<const std::byte> packed,
                              Bytes limit) {
  AIT_ASSIGN_OR_RETURN(const auto decompressor, Decompressor::Create(compression));
  Collector collector(*decompressor, limit);
  AIT_RETURN_IF_ERROR(collector.Add(packed));
  return collector.Finish();
}

StatusOr<std::shared_ptr<const StoredObject>> Unpack(const StoredObject& packed,
                                                     Compression compression, Bytes limit) {
  AIT_ASSIGN_OR_RETURN(const auto decompressor, Decompressor::Create(compression));
  AIT_ASSIGN_OR_RETURN(const auto blocks, packed.Stream({}));
  Collector collector(*decompressor, limit);
  while (true) {
    AIT_ASSIGN_OR_RETURN(const ByteView block, blocks->Next());
    if (block.is_empty()) break;
    const Status status = collector.Add(block.bytes());
    if (!status.ok()) return Annotate(status, packed.info().url);
  }
  StatusOr<ByteView> bytes = collector.Finish();
  if (!bytes.ok()) return Annotate(bytes.status(), packed.info().url);
  return MemoryObject(packed.info().url, *std::move(bytes), packed.info().version);
}

}  // namespace ait::inline v0
