// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_FORMATS_H_
#define AIT_DATA_FORMAT_FORMATS_H_

// Opens files of samples of any known format, and starts new ones.
//
// A shard is one file ("shard.h"); a collection is many of them, or a directory with an index, and
// becomes one `SampleSource`. docs/data-formats.md lists the formats, what of each is read and
// written, and which to choose.
//
//   AIT_ASSIGN_OR_RETURN(auto samples, OpenSamples(storage, "train/"));     // all shards in there
//   AIT_ASSIGN_OR_RETURN(auto writer, CreateShard("out/00000.tar", {.format = "webdataset"}));
//   AIT_RETURN_IF_ERROR(writer->Append(sample));
//   return writer->Commit();

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/format/shard.h"
#include "ait/data/sample_source.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {

/// Opens one file of samples. **Blocks.** Reads its table of records: from the index beside it if
/// `index` is given and fits, else from the file (docs/data-formats.md says how much of it).
/// **Errors.** InvalidArgument: no known format, or a field that makes no sense; DataLoss:
/// truncated or damaged; Unimplemented: a variant that is not read; those of the object.
StatusOr<std::unique_ptr<ShardReader>> OpenShard(
    std::shared_ptr<const StoredObject> object, const ShardOptions& options = {},
    std::shared_ptr<const StoredObject> index = nullptr);

/// What can be opened and started: "webdataset", "tfrecord", "mds", …
struct FormatInfo {
  std::string_view name;
  std::string_view extension;  // of files that are written, such as ".tar"; empty: none are
  bool is_collection = false;  // a directory with an index, not a single file
  std::string_view summary;    // a few words for a table
};
std::vector<FormatInfo> KnownFormats();

/// The format of an object by its first bytes and its name; empty if it is none that is known.
StatusOr<std::string_view> FormatOf(const StoredObject& object);

struct ShardWriterOptions {
  std::string format = "webdataset";
  /// Of WebDataset tars: every file gets this time, so that the same samples give the same bytes.
  std::int64_t modification_time = 0;
  /// Writes the index beside the shard, for formats that have one.
  bool with_index = true;
};

/// Starts a shard. **Errors.** InvalidArgument: no such format; Unimplemented: it is only read;
/// those of DurableFile::Create.
StatusOr<std::unique_ptr<ShardWriter>> CreateShard(const std::string& path,
                                                   const ShardWriterOptions& options = {});

struct SamplesOptions {
  ShardOptions shard;
  /// Threads that open shards at the same time; ≥ 1.
  int open_threads = 8;
};

/// Opens a collection: a file, a directory or prefix of shards (in the order of the bytes of their
/// names; indexes, hidden files and descriptions left out), or a directory with an index of its own (MDS, LitData, Megatron). The
/// storage outlives the source.
/// **Errors.** NotFound: nothing there; InvalidArgument: shards of several formats; those of
/// `OpenShard`, with the shard named.
StatusOr<std::shared_ptr<const SampleSource>> OpenSamples(std::shared_ptr<const Storage> storage,
                                                          const std::string& url,
                                                          const SamplesOptions& options = {});
/// The same of shards that the program lists itself.
StatusOr<std::shared_ptr<const SampleSource>> OpenSamples(std::shared_ptr<const Storage> storage,
                                                          const std::vector<std::string>& urls,
                                                          const SamplesOptions& options = {});

/// All samples of many shards in order, in one pass and one thread: the fast way to read everything
/// once. Needs no index; WebDataset tars and TFRecord files are then read without looking for
/// their records first. `id` counts through all shards. One shard is open at a time, and its blocks
/// are used again when no sample views them: keep one `Sample` and hand it to `Next` each time.
/// `offset_bytes` and `length_bytes` of the stream options are not used.
/// **Errors.** When a shard is opened, those of `OpenShard`; the next call goes on with the next one.
StatusOr<std::unique_ptr<SampleStream>> StreamSamples(std::shared_ptr<const Storage> storage,
                                                      std::vector<std::string> urls,
                                                      const SamplesOptions& options = {},
                                                      const StreamOptions& stream = {});

}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_FORMATS_H_
