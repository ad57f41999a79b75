// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "data/storage/read_stream_internal.h"
#include "data/storage/uri_internal.h"

namespace ait::inline v0 {
namespace {

class InMemory final : public StoredObject {
 public:
  InMemory(ObjectInfo info, ByteView bytes) : info_(std::move(info)), bytes_(std::move(bytes)) {}

  const ObjectInfo& info() const override { return info_; }

  Status ReadAt(std::int64_t offset_bytes, std::span<std::byte> out) const override {
    AIT_RETURN_IF_ERROR(CheckRange(info_, offset_bytes, static_cast<std::int64_t>(out.size())));
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset_bytes, out.size());
    return OkStatus();
  }

 private:
  const ObjectInfo info_;
  const ByteView bytes_;
};

}  // namespace

Status CheckRange(const ObjectInfo& info, std::int64_t offset_bytes, std::int64_t length_bytes) {
  if (offset_bytes >= 0 && length_bytes >= 0 && offset_bytes <= info.size_bytes &&
      length_bytes <= info.size_bytes - offset_bytes) {
    return OkStatus();
  }
  const bool is_path = internal::SchemeOf(info.url).empty();
  return OutOfRangeError(is_path ? info.url : internal::WithoutSecrets(info.url), ": ",
                         length_bytes, " bytes from byte ", offset_bytes,
                         " lie beyond its end, at ", info.size_bytes);
}

void StoredObject::ReadMany(std::span<ObjectRead> reads) const {
  for (ObjectRead& read : reads) read.status = ReadAt(read.offset_bytes, read.out);
}

StatusOr<std::unique_ptr<ObjectStream>> StoredObject::Stream(const StreamOptions& options) const {
  return internal::StreamByReads(*this, options);
}

std::shared_ptr<const StoredObject> MemoryObject(std::string url, ByteView bytes,
                                                 std::string version) {
  const auto size = static_cast<std::int64_t>(bytes.size_bytes());
  return std::make_shared<InMemory>(ObjectInfo{std::move(url), size, std::move(version)},
                                    std::move(bytes));
}

StatusOr<ByteView> ReadWhole(const StoredObject& object, std::int64_t limit_bytes) {
  const ObjectInfo& info = object.info();
  if (info.size_bytes > limit_bytes) {
    return InvalidArgumentError(info.url, " has ", info.size_bytes, " bytes, at most ", limit_bytes,
                                " are read at once");
  }
  const auto size = static_cast<std::size_t>(info.size_bytes);
  auto bytes = std::make_shared_for_overwrite<std::byte[]>(size);
  const std::span<std::byte> out(bytes.get(), size);
  AIT_RETURN_IF_ERROR(object.ReadAt(0, out));
  return ByteView(out, std::move(bytes));
}

}  // namespace ait::inline v0
