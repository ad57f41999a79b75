// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_SHARD_CHECK_INTERNAL_H_
#define AIT_DATA_FORMAT_SHARD_CHECK_INTERNAL_H_

// Compares a shard that has been written with what was put into it, sample by sample: keys, names,
// kinds and values of the fields, and shapes and dtypes where the format keeps them.

#include <cstdint>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/sample.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {
namespace internal {

/// What a shard must hold, in 24 bytes a sample.
class ShardContents {
 public:
  explicit ShardContents(std::string format) : format_(std::move(format)) {}

  void Add(const Sample& sample);
  const std::string& format() const { return format_; }
  std::int64_t sample_count() const { return std::ssize(samples_); }
  /// Whether a sample has any field but one of bytes called "data".
  bool has_fields() const { return has_fields_; }
  /// Of all samples.
  std::uint64_t digest() const;
  /// Whether sample number `i` of the shard is `sample`.
  bool Matches(std::int64_t i, const Sample& sample) const;

 private:
  struct Digest {
    std::uint64_t key = 0;
    std::uint64_t fields = 0;
    bool has_key = false;
  };
  Digest DigestOf(const Sample& sample) const;

  std::string format_;
  bool has_fields_ = false;
  std::vector<Digest> samples_;
};

/// Reads the shard, by its index where the format has one. **Errors.** DataLoss: it is not what was
/// put into it, or damaged.
Status CheckShard(const Storage& storage, const std::string& path, const ShardContents& contents);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_SHARD_CHECK_INTERNAL_H_
