// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_SHARDED_SAMPLES_INTERNAL_H_
#define AIT_DATA_FORMAT_SHARDED_SAMPLES_INTERNAL_H_

// Many shards as one source of samples.
//
// A shard with an index costs one small read when the collection is opened; its table is read when
// its first sample is. At most kMaxOpenShards are open at a time, so that neither file descriptors
// nor memory grow with the dataset.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ait/data/format/formats.h"

namespace ait::inline v0 {
namespace internal {

/// A shard, and the index beside it if `index.url` is not empty.
struct ShardFile {
  ObjectInfo shard;
  ObjectInfo index;
};

class ShardedSamples final : public SampleSource {
 public:
  static constexpr std::size_t kMaxOpenShards = 128;
  /// Of shards that are compressed as a whole, for they lie unpacked in memory; and their bytes, if
  /// it is more than one.
  static constexpr std::size_t kMaxUnpackedShards = 4;
  static constexpr std::int64_t kMaxUnpackedBytes = std::int64_t{4} << 30;

  static StatusOr<std::shared_ptr<const SampleSource>> Create(
      std::shared_ptr<const Storage> storage, std::string name, std::vector<ShardFile> files,
      const SamplesOptions& options);

  const std::string& name() const override { return name_; }
  std::int64_t sample_count() const override { return begins_.back(); }
  std::uint64_t digest() const override { return digest_; }
  std::uint64_t version() const override { return version_; }
  std::span<const std::int64_t> block_begins() const override {
    return std::span(begins_).first(begins_.size() - 1);
  }
  void Read(std::span<SampleRead> reads) const override;
  SamplePlace place(std::int64_t id) const override;
  std::int64_t size_bytes(std::int64_t id) const override;
  StatusOr<SampleSize> FindSize(std::int64_t id) const override;

 private:
  // What is known of a shard at all times.
  struct Entry {
    ShardFile file;
    std::int64_t count = 0;
    std::uint64_t digest = 0;
    std::string format;
    // What is read is not the object of the storage but one in memory, of so many bytes.
    bool is_unpacked = false;
    std::int64_t unpacked_bytes = 0;
    // The table of a shard without an index beside it, in the form of one; costly to find again.
    std::shared_ptr<const StoredObject> table;
  };
  struct Slot {
    std::shared_ptr<const ShardReader> shard;
    std::uint64_t used = 0;
    std::mutex unpacking;  // held while the shard is unpacked, so that it is once
  };

  ShardedSamples(std::shared_ptr<const Storage> storage, std::string name,
                 const SamplesOptions& options)
      : storage_(std::move(storage)), name_(std::move(name)), options_(options) {}

  Status OpenAll(std::vector<ShardFile> files);
  Status OpenEntry(Entry& entry) const;
  // An open shard, and whether it lies in memory.
  struct OpenedFile {
    std::shared_ptr<const ShardReader> shard;
    bool is_unpacked = false;
  };
  StatusOr<OpenedFile> OpenFile(const Entry& entry) const;
  StatusOr<std::shared_ptr<const ShardReader>> Acquire(std::size_t shard) const;
  // With the lock: the shard if it is open, and marks it as used.
  std::shared_ptr<const ShardReader> Find(std::size_t shard) const;
  // With the lock: closes what was longest unused until there is room for `entry`.
  std::vector<std::shared_ptr<const ShardReader>> CloseFor(const Entry& entry) const;
  std::size_t ShardOf(std::int64_t id) const;
  // Reads samples of one shard; `wanted` are indices of `reads`, in the order of their ids.
  void ReadShard(std::size_t shard, std::span<const std::size_t> wanted,
                 std::span<SampleRead> reads) const;

  const std::shared_ptr<const Storage> storage_;
  const std::string name_;
  const SamplesOptions options_;
  std::vector<Entry> entries_;
  std::vector<std::int64_t> begins_ = {0};  // first sample of every shard, and the end
  std::uint64_t digest_ = 0;
  std::uint64_t version_ = 0;

  mutable std::mutex mutex_;  // of what follows
  mutable std::vector<Slot> slots_;
  mutable std::vector<std::size_t> open_;   // slots that hold a shard
  mutable std::size_t unpacked_count_ = 0;  // of these, in memory
  mutable std::int64_t unpacked_bytes_ = 0;
  mutable std::uint64_t clock_ = 0;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_SHARDED_SAMPLES_INTERNAL_H_
