// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_FORMAT_UTIL_INTERNAL_H_
#define AIT_DATA_FORMAT_FORMAT_UTIL_INTERNAL_H_

// What the formats share: names, small reads, numbers of other machines, fields without new memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/format/shard.h"
#include "ait/data/sample.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {
namespace internal {

/// What a file stores its numbers as.
struct NumberType {
  DType dtype = DType::kUInt8;  // as a sample has it
  bool is_big_endian = false;
  /// Unsigned 64 bits, which DType does not have: delivered as int64, a value of 2^63 or more is an
  /// error of its sample.
  bool is_uint64 = false;

  bool operator==(const NumberType&) const = default;
};

/// The dtype of numpy's name ("uint8", "float32", …, "uint64", "bool"); nullopt if not known.
std::optional<NumberType> NumberTypeFromName(std::string_view name);

/// Bytes of an array; −1 if the shape is negative or too large.
std::int64_t ArrayBytes(DType dtype, const std::vector<std::int64_t>& shape);

/// The last component of a URL.
std::string_view BaseName(std::string_view url);
/// The URL up to its last component, with the slash; empty if there is none.
std::string_view DirectoryOf(std::string_view url);
/// A to Z made lower case; other bytes stay.
std::string LowerCase(std::string_view text);
/// Whether a name ends in `extension` (with its dot, in lower case), before ".gz", ".zst", ".zstd" or
/// ".lz4". The case of the name does not matter.
bool HasExtension(std::string_view url, std::string_view extension);

bool BeginsWith(std::span<const std::byte> bytes, std::string_view magic);
bool IsUtf8(std::string_view text);

/// Reads a range of at most `limit_bytes` into memory of its own.
/// **Errors.** DataLoss: it lies beyond the end of the object, or is larger; those of `ReadAt`.
StatusOr<ByteView> ReadRange(const StoredObject& object, std::int64_t offset_bytes,
                             std::int64_t length_bytes, std::int64_t limit_bytes);

/// Where a record lies, as messages say it: "shard.mds, record 3 at byte 4096".
std::string DescribeRecord(const ShardReader& shard, std::int64_t record);

/// Fills a sample whose memory is used again: fields are set one after the other, and `Finish`
/// drops those that the sample had more.
class SampleBuilder {
 public:
  explicit SampleBuilder(Sample& sample) : sample_(sample) {}

  void SetKey(std::string_view key) { sample_.key = key; }
  void SetKey(std::int64_t number);
  void AddBytes(std::string_view name, ByteView value, FieldKind kind = FieldKind::kBytes);
  /// Numbers as the file has them. **Errors.** InvalidArgument: a value that int64 cannot hold. The
  /// caller has checked that the size is that of the shape.
  Status AddArray(std::string_view name, NumberType type, std::span<const std::int64_t> shape,
                  ByteView value);
  /// One number, copied.
  void AddInteger(std::string_view name, std::int64_t value);
  void Finish() { sample_.fields.resize(count_); }

 private:
  SampleField& Next(std::string_view name);

  Sample& sample_;
  std::size_t count_ = 0;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_FORMAT_UTIL_INTERNAL_H_
