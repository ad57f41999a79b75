// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>

#include "ait/data/crc32c.h"
#include "data/text_reader_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::size_t kBufferBytes = 1 << 16;
constexpr int kOnlyGzip = 16 + MAX_WBITS;  // for inflateInit2

}  // namespace

StatusOr<std::unique_ptr<TextReader>> TextReader::Open(const std::string& path) {
  AIT_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  std::unique_ptr<TextReader> reader(new TextReader(std::move(file)));
  AIT_RETURN_IF_ERROR(reader->Refill());
  const auto is = [&](std::size_t at, unsigned byte) {
    return reader->input_[at] == std::byte(byte);
  };
  reader->is_gzip_ = reader->input_.size() >= 2 && is(0, 0x1f) && is(1, 0x8b);
  if (path.ends_with(".gz") && !reader->is_gzip_) {
    return DataLossError(path, " is not a gzip file, although its name says so");
  }
  if (reader->is_gzip_ && inflateInit2(&reader->zlib_, kOnlyGzip) != Z_OK) {
    return ResourceExhaustedError("no memory to unpack ", path);
  }
  return reader;
}

TextReader::TextReader(InputFile file) : file_(std::move(file)), buffer_(kBufferBytes) {}

TextReader::~TextReader() {
  if (is_gzip_) inflateEnd(&zlib_);
}

Status TextReader::Refill() {
  const auto count =
      std::min(static_cast<std::int64_t>(buffer_.size()), file_.size_bytes() - offset_bytes_);
  const auto chunk = std::span(buffer_).first(static_cast<std::size_t>(count));
  AIT_RETURN_IF_ERROR(file_.ReadAt(offset_bytes_, chunk));
  offset_bytes_ += count;
  file_crc32c_ = Crc32c(chunk, file_crc32c_);
  input_ = chunk;
  return OkStatus();
}

StatusOr<std::size_t> TextReader::Read(std::span<std::byte> out) {
  if (is_gzip_) return Unpack(out);
  if (input_.empty()) AIT_RETURN_IF_ERROR(Refill());
  const std::size_t count = std::min(out.size(), input_.size());
  std::memcpy(out.data(), input_.data(), count);
  input_ = input_.subspan(count);
  return count;
}

StatusOr<std::size_t> TextReader::Unpack(std::span<std::byte> out) {
  for (;;) {
    if (is_between_members_) {
      AIT_RETURN_IF_ERROR(SkipToNextMember());
      if (input_.empty()) return std::size_t{0};
      is_between_members_ = false;
    }
    if (input_.empty()) AIT_RETURN_IF_ERROR(Refill());
    if (input_.empty()) return Damaged("is truncated");
    zlib_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(input_.data()));
    zlib_.avail_in = static_cast<uInt>(input_.size());
    zlib_.next_out = reinterpret_cast<Bytef*>(out.data());
    zlib_.avail_out = static_cast<uInt>(std::min<std::size_t>(out.size(), kBufferBytes));
    const uInt room = zlib_.avail_out;
    const int result = inflate(&zlib_, Z_NO_FLUSH);
    input_ = input_.last(zlib_.avail_in);
    if (result == Z_STREAM_END) {
      is_between_members_ = true;
      if (inflateReset(&zlib_) != Z_OK) return Damaged("cannot be unpacked");
    } else if (result == Z_MEM_ERROR) {
      return ResourceExhaustedError("no memory to unpack ", file_.path());
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return Damaged(zlib_.msg != nullptr ? zlib_.msg : "cannot be unpacked");
    }
    if (const std::size_t count = room - zlib_.avail_out; count > 0) return count;
  }
}

// After a member comes the end of the file, another member, or zeros (of tapes and block devices)
// and then the end. Anything else is a damaged member, and to stop there would lose the text in it.
Status TextReader::SkipToNextMember() {
  bool saw_zeros = false;
  for (;;) {
    if (input_.empty()) AIT_RETURN_IF_ERROR(Refill());
    if (input_.empty()) return OkStatus();
    const auto nonzero =
        std::ranges::find_if(input_, [](std::byte byte) { return byte != std::byte{0}; });
    saw_zeros = saw_zeros || nonzero != input_.begin();
    input_ = input_.subspan(static_cast<std::size_t>(nonzero - input_.begin()));
    if (input_.empty()) continue;
    return saw_zeros ? Damaged("has zeros between two members") : OkStatus();
  }
}

Status TextReader::Damaged(const char* what) const {
  return DataLossError("gzip file ", file_.path(), ": ", what, " near byte ",
                       offset_bytes_ - static_cast<std::int64_t>(input_.size()), " of ",
                       file_.size_bytes());
}

}  // namespace internal
}  // namespace ait::inline v0
