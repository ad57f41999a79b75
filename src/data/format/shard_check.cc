// SPDX-License-Identifier: Apache-2.0
#include "data/format/shard_check_internal.h"

#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "ait/data/crc32c.h"
#include "ait/data/format/formats.h"
#include "ait/data/format/index.h"
#include "data/mix_internal.h"

namespace ait::inline v0::internal {
namespace {

std::uint64_t DigestOfBytes(std::span<const std::byte> bytes) {
  return Fold(Crc32c(bytes), bytes.size());
}
std::uint64_t DigestOfText(std::string_view text) {
  return DigestOfBytes(std::as_bytes(std::span(text)));
}

template <typename T>
std::uint64_t DigestOfIntegers(std::span<const std::byte> bytes) {
  std::uint64_t digest = 0;
  for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    digest = Fold(digest, static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
  }
  return Fold(digest, bytes.size() / sizeof(T));
}

// A list of numbers, whatever integers they are stored as.
std::uint64_t DigestOfList(const SampleField& field) {
  const std::span<const std::byte> bytes = field.value.bytes();
  switch (field.dtype) {
    case DType::kInt64:
      return DigestOfIntegers<std::int64_t>(bytes);
    case DType::kInt32:
      return DigestOfIntegers<std::int32_t>(bytes);
    case DType::kUInt8:
      return DigestOfIntegers<std::uint8_t>(bytes);
    default:
      return Fold(DigestOfBytes(bytes), static_cast<std::uint64_t>(field.dtype));
  }
}

std::uint64_t DigestOfArray(const SampleField& field) {
  std::uint64_t digest = Fold(DigestOfBytes(field.value.bytes()),  //
                              static_cast<std::uint64_t>(field.dtype));
  for (const std::int64_t size : field.shape) {
    digest = Fold(digest, static_cast<std::uint64_t>(size));
  }
  return Fold(digest, field.shape.size());
}

}  // namespace

ShardContents::Digest ShardContents::DigestOf(const Sample& sample) const {
  const bool is_tfrecord = format_ == "tfrecord";  // all its arrays are lists of int64 or float
  Digest digest = {.key = DigestOfText(sample.key), .has_key = !sample.key.empty()};
  for (const SampleField& field : sample.fields) {  // in any order
    const bool is_array = field.kind == FieldKind::kArray;
    const std::uint64_t value = !is_array     ? DigestOfBytes(field.value.bytes())
                                : is_tfrecord ? DigestOfList(field)
                                              : DigestOfArray(field);
    // An npy file has no names.
    const std::uint64_t name = format_ == "npy" ? 0 : DigestOfText(field.name);
    digest.fields += Mix(Fold(Fold(name, is_array ? 1 : 0), value));
  }
  return digest;
}

void ShardContents::Add(const Sample& sample) {
  has_fields_ = has_fields_ || sample.fields.size() != 1 || sample.fields[0].name != "data" ||
                sample.fields[0].kind == FieldKind::kArray;
  samples_.push_back(DigestOf(sample));
}

std::uint64_t ShardContents::digest() const {
  std::uint64_t all = 0;
  for (const Digest& sample : samples_) all = Fold(Fold(all, sample.key), sample.fields);
  return all;
}

bool ShardContents::Matches(std::int64_t i, const Sample& sample) const {
  const Digest& written = samples_[static_cast<std::size_t>(i)];
  const Digest read = DigestOf(sample);
  const bool keeps_keys = format_ != "npy" && (format_ != "tfrecord" || has_fields_);
  if (keeps_keys && written.has_key && read.key != written.key) return false;
  return read.fields == written.fields;
}

Status CheckShard(const Storage& storage, const std::string& path, const ShardContents& contents) {
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<const StoredObject> object, storage.Open(path));
  std::shared_ptr<const StoredObject> index;
  if (contents.format() == "webdataset" || contents.format() == "tfrecord") {
    AIT_ASSIGN_OR_RETURN(index, storage.Open(IndexPath(path)));
  }
  AIT_ASSIGN_OR_RETURN(
      const std::unique_ptr<ShardReader> shard,
      OpenShard(std::move(object),
                {.format = contents.format(),
                 .check = ShardCheck::kContents,
                 .max_record_bytes = std::int64_t{1} << 40,
                 .tfrecord_payload =
                     contents.has_fields() ? TfrecordPayload::kExample : TfrecordPayload::kBytes},
                std::move(index)));
  AIT_ASSIGN_OR_RETURN(const std::unique_ptr<SampleStream> stream, shard->Stream({}));
  Sample sample;
  for (std::int64_t i = 0;; ++i) {
    AIT_ASSIGN_OR_RETURN(const bool is_there, stream->Next(sample));
    if (!is_there && i == contents.sample_count()) return OkStatus();
    if (!is_there || i == contents.sample_count()) {
      return DataLossError(path, " reads back as ", is_there ? "more than " : "", i, " samples, ",
                           contents.sample_count(), " were written: is the disk sound?");
    }
    if (!contents.Matches(i, sample)) {
      return DataLossError(path, ": sample ", i, " (key '", sample.key,
                           "') does not read back as what was written: is the disk sound?");
    }
  }
}

}  // namespace ait::inline v0::internal
