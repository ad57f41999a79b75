// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_TOKEN_ARRAY_INTERNAL_H_
#define AIT_DATA_TOKEN_ARRAY_INTERNAL_H_

// Tokens of one integer dtype in a file, widened to int64 and checked as they are read.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "ait/base/dtype.h"
#include "ait/data/storage/storage.h"
#include "ait/data/token_source.h"
#include "data/input_file_internal.h"

namespace ait::inline v0 {
namespace internal {

/// One more than the largest token that `dtype` can hold, at most int64 max.
constexpr std::int64_t TokenLimit(DType dtype) {
  const bool is_unsigned =
      dtype == DType::kUInt8 || dtype == DType::kUInt16 || dtype == DType::kUInt32;
  const int value_bits = 8 * SizeOf(dtype) - (is_unsigned ? 0 : 1);
  return value_bits == 63 ? std::numeric_limits<std::int64_t>::max()
                          : std::int64_t{1} << value_bits;
}

/// **Thread-safety.** Reads may come from any thread.
class TokenArray {
 public:
  /// `count` tokens from `offset_bytes` of `file`, which is large enough.
  TokenArray(InputFile file, std::int64_t offset_bytes, std::int64_t count, DType dtype)
      : file_(std::move(file)), offset_bytes_(offset_bytes), count_(count), dtype_(dtype) {}

  /// The file it was made of; not after `Attach`.
  const InputFile& file() const { return *file_; }
  std::int64_t count() const { return count_; }
  DType dtype() const { return dtype_; }

  /// From now on reads the same file through a storage. **Errors.** Those of Open; Aborted: another
  /// file lies there now.
  Status Attach(const Storage& storage);

  /// Does reads of positions within the array, which the caller has checked to be there, together.
  /// `scratch` holds at least 8 bytes; reads go together as far as it holds what they read. After
  /// `Attach`. **Errors.** Of each read: DataLoss: a token
  /// outside of 0 … vocabulary_size-1, or a file that shrank; Aborted: a file that changed.
  void ReadMany(std::span<TokenRead* const> reads, std::int64_t vocabulary_size,
                std::span<std::byte> scratch) const;

  /// CRC-32C of all tokens as they lie in the file. Before `Attach`.
  StatusOr<std::uint32_t> Crc32c() const {
    return Crc32cOfFile(*file_, offset_bytes_, count_ * SizeOf(dtype_));
  }

 private:
  Status Widen(std::span<const std::byte> narrow, std::int64_t first, std::span<std::int64_t> out,
               std::int64_t vocabulary_size) const;
  void ReadLong(TokenRead& read, std::int64_t vocabulary_size, std::span<std::byte> scratch) const;

  std::optional<InputFile> file_;
  std::shared_ptr<const StoredObject> object_;
  std::int64_t offset_bytes_;
  std::int64_t count_;
  DType dtype_;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_TOKEN_ARRAY_INTERNAL_H_
