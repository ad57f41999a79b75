// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_SAMPLE_SOURCE_H_
#define AIT_DATA_SAMPLE_SOURCE_H_

// A collection of samples with random access, whatever its files look like: what a plan orders and
// a loader reads.
//
// Samples are numbered from 0. Neighbours lie near each other in storage; `block_begins` says where
// one block (a shard) ends and the next begins, so that a plan may shuffle blocks and then within
// a few of them instead of jumping about. "ait/data/format/open_samples.h" opens all known formats;
// a program may bring its own class.
//
//   std::vector<SampleRead> reads = {{.id = 17}, {.id = 4}};
//   source->Read(reads);
//   for (const SampleRead& read : reads) if (read.status.ok()) Use(read.sample);

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/sample.h"

namespace ait::inline v0 {

/// One of several samples to read.
struct SampleRead {
  std::int64_t id = -1;  // 0 ≤ id < sample_count
  Sample sample;         // unspecified unless `status` is ok
  /// Why it could not be read; says file, offset and key. Two kinds that a reader tells apart:
  /// a bad sample (DataLoss, InvalidArgument: these bytes will never be a sample), and anything
  /// else (the storage failed, a file changed or is missing).
  Status status;
};

/// Where a sample lies, for messages and for lists of bad samples.
struct SamplePlace {
  std::string url;
  std::int64_t offset_bytes = 0;
  std::int64_t size_bytes = 0;
};

/// What one sample takes, as nearly as can be found out without reading it.
struct SampleSize {
  std::int64_t bytes = 0;
  std::int64_t fields = 0;  // 0: not known before it is read
};

/// **Thread-safety.** All calls may come from any thread, also at the same time.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// For messages, such as the path it was opened from.
  virtual const std::string& name() const = 0;
  virtual std::int64_t sample_count() const = 0;
  /// Equal for the same samples in the same order; very likely unequal otherwise.
  virtual std::uint64_t digest() const = 0;
  /// As `digest`, but another one also after a file was replaced by one of the same size, where the
  /// storage tells (time, ETag): for what is made of the samples and must be made anew.
  virtual std::uint64_t version() const { return digest(); }
  /// First sample of every block, ascending from 0; empty: the collection is one block.
  virtual std::span<const std::int64_t> block_begins() const { return {}; }

  /// Reads samples, each with its own status. Reads that lie beside each other are done as one.
  /// **Blocks.** On the storage.
  virtual void Read(std::span<SampleRead> reads) const = 0;
  /// Where sample `id` lies; the name of the source if it cannot say more.
  virtual SamplePlace place(std::int64_t id) const { return {.url = StrCat(name(), "#", id)}; }
  /// About how many bytes sample `id` takes when it is read, for budgets; ≥ 0.
  virtual std::int64_t size_bytes(std::int64_t id) const = 0;
  /// The size of sample `id` by the table of its shard, whatever was read before. **Blocks.** Opens
  /// shards; ask in order of the ids. **Errors.** Those of opening the shard.
  virtual StatusOr<SampleSize> FindSize(std::int64_t id) const {
    return SampleSize{.bytes = size_bytes(id)};
  }
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_SAMPLE_SOURCE_H_
