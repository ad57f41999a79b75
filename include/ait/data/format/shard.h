// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_SHARD_H_
#define AIT_DATA_FORMAT_SHARD_H_

// One file of samples, of whatever format: where each record lies, and how its bytes become a
// sample.
//
// Every format here has the same shape. A record is a run of bytes of the object (the members of a
// WebDataset sample, a TFRecord, a row of an npy file), and `Decode` turns that run into a
// `Sample` whose fields are views of it. So reading ahead, joining neighbouring reads, caches and
// budgets are written once for all of them, and a new format is a table of records and a decoder.
//
//   AIT_ASSIGN_OR_RETURN(auto shard, OpenShard(object, {}));        // finds out the format
//   for (std::int64_t i = 0; i < shard->record_count(); ++i) {
//     AIT_ASSIGN_OR_RETURN(Sample sample, shard->ReadRecord(i));
//   }
//   AIT_ASSIGN_OR_RETURN(auto stream, shard->Stream({.depth = 4})); // the fast way through all
//   Sample sample;
//   while (*stream->Next(sample)) Use(sample);
//
// Readers are strict: every length is checked against what is there before it is used, and a shard
// that ends too early is an error, not a short dataset.
// **Thread-safety.** Shards: all calls from any thread. Streams and writers: one thread at a time.

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/sample.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {

/// The bytes of one record within its object.
struct RecordExtent {
  std::int64_t offset_bytes = 0;
  std::int64_t length_bytes = 0;
};

/// The samples of a shard one after the other.
class SampleStream {
 public:
  virtual ~SampleStream() = default;
  /// Reads the next sample into `sample`, whose memory it uses again. False at the end.
  /// **Errors.** DataLoss or InvalidArgument: a bad record; the text says file, offset and key. The
  /// next call goes on after it where the format permits, else returns the same error.
  virtual StatusOr<bool> Next(Sample& sample) = 0;
};

class ShardReader {
 public:
  virtual ~ShardReader() = default;

  /// "webdataset", "tfrecord", "mds", …
  virtual std::string_view format() const = 0;
  virtual const StoredObject& object() const = 0;
  virtual std::int64_t record_count() const = 0;
  /// Of record 0 ≤ `record` < record_count.
  virtual RecordExtent extent(std::int64_t record) const = 0;
  /// Larger records are bad, and no memory is made for them.
  virtual std::int64_t max_record_bytes() const { return std::numeric_limits<std::int64_t>::max(); }
  /// InvalidArgument if the record is larger. To be asked before memory for it is made.
  Status CheckRecordSize(std::int64_t record) const;
  /// Turns the bytes of record `record` into a sample whose fields are views of `bytes`.
  /// **Errors.** DataLoss or InvalidArgument: a bad record, with file, offset and key.
  virtual Status Decode(std::int64_t record, const ByteView& bytes, Sample& sample) const = 0;

  /// Reads and decodes one record.
  StatusOr<Sample> ReadRecord(std::int64_t record) const;
  /// All records in order, the object read in large blocks. `offset_bytes` and `length_bytes` of
  /// the options are not used.
  virtual StatusOr<std::unique_ptr<SampleStream>> Stream(const StreamOptions& options) const;
};

/// How much of a shard is checked.
enum class ShardCheck {
  kStructure,  // headers, lengths, and the checksums that belong to the format
  kContents,   // also those of the index beside the shard (index.h), record by record
};

/// Where the key of a WebDataset sample ends and the name of its field begins.
enum class KeyRule {
  kFirstDot,  // "a/b.c.jpg" is field "c.jpg" of "a/b", as WebDataset and Energon have it
  kLastDot,   // field "jpg" of "a/b.c", for names with dots in them
};

/// What the records of a TFRecord file are.
enum class TfrecordPayload {
  kBytes,    // one field "data"; the key is the number of the record
  kExample,  // tf.train.Example: a field for every feature; "__key__", if there is one, is the key
};

struct ShardOptions {
  /// The format; empty: by the first bytes, then by the name.
  std::string format;
  ShardCheck check = ShardCheck::kStructure;
  /// Largest record that is believed; larger ones are bad.
  std::int64_t max_record_bytes = std::int64_t{1} << 30;
  /// Most bytes that a file compressed as a whole (.gz, .zst, .lz4) may have when it is unpacked,
  /// which is done in memory.
  std::int64_t max_unpacked_bytes = std::int64_t{4} << 30;
  /// Of WebDataset tars.
  KeyRule key_rule = KeyRule::kFirstDot;
  TfrecordPayload tfrecord_payload = TfrecordPayload::kBytes;
  /// Of lines of CSV: the first line names the columns.
  bool csv_header = true;
};

/// Writes one shard. Nothing has its name before `Commit`, which makes it durable.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;

  /// Adds a sample. **Errors.** InvalidArgument: the format cannot hold it (the text says why), and
  /// nothing is added; ResourceExhausted: the disk is full.
  virtual Status Append(const Sample& sample) = 0;
  /// Bytes that the shard would have if `Commit` were called now.
  virtual std::int64_t size_bytes() const = 0;
  /// Samples so far.
  virtual std::int64_t record_count() const = 0;
  /// Ends the shard, and writes the index beside it where the format has one. The last call.
  virtual Status Commit() = 0;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_SHARD_H_
