// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_LOCAL_STORAGE_H_
#define AIT_DATA_STORAGE_LOCAL_STORAGE_H_

// Files of this host and of file systems of the network, read by the engine that fits.
//
//   AIT_ASSIGN_OR_RETURN(auto files, LocalStorage::Create({}));
//   AIT_ASSIGN_OR_RETURN(auto shard, files->Open("train/shard-00000.tar"));
//   AIT_ASSIGN_OR_RETURN(auto stream, shard->Stream({.block_bytes = 1 << 20, .depth = 8}));
//   AIT_ASSIGN_OR_RETURN(EngineChoice choice, files->Explain("train/shard-00000.tar"));
//   std::puts(ToString(choice).c_str());            // "streams by io_uring: 0 % of 2.0 GiB cached…"
//
// A URL is a path, or file:// and an absolute path. Which engine reads is a matter of speed alone:
// all give the same bytes and the same errors, and one that does not work here (a container that
// forbids io_uring, a file system without O_DIRECT) gives way to pread, once with a warning in the
// log. docs/data-engines.md has the measurements behind the choice.
//
// A file that is written to, or replaced by another of its name, while it is open is an error: see
// `check_interval`. A file that is only deleted is read to its end. **Thread-safety.** As Storage.
// **Fork.** A child may read objects; its parent's streams are errors in it.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {

enum class LocalEngine {
  kAutomatic,  // by what is known of the file: `EngineChoice`
  kPread,      // through the page cache; streams by several threads
  kUring,      // streams past the page cache, by io_uring and O_DIRECT: large files that are read
               // from a disk; other reads as kPread
  kMapped,     // many small reads of cached data with one call: the kernel copies them out of a
               // mapping, so a file that is cut is an error and not a signal; streams as kPread
  kNetwork,    // never mapped, attributes asked for as rarely as can be, large reads in flight
};

/// "automatic", "pread", "io_uring", "mapped" or "network".
std::string_view Name(LocalEngine engine);

/// The engine of such a name. **Errors.** InvalidArgument.
StatusOr<LocalEngine> LocalEngineFromName(std::string_view name);

struct LocalStorageOptions {
  LocalEngine engine = LocalEngine::kAutomatic;
  /// Threads that read for streams and for many reads at once; started when needed. 1 to 256.
  int threads = 8;
  /// Bytes of all that is read again and again, for the choice: what fits into memory goes through
  /// the page cache also when it is cold. 0: unknown, so a cold file is thought to be read once.
  std::int64_t data_bytes = 0;
  /// Reads of 64 KiB and more, and the end of a file or stream, check that the file is as it was; of
  /// smaller reads, one in this time. Of a network's files all, and no more often than every 3 s.
  /// 0: every read.
  std::chrono::milliseconds check_interval{100};
  LogSink* log = nullptr;  // hears which engine was chosen, and why; outlives the storage
};

/// What is known of a file, and the engines that follow from it.
struct EngineChoice {
  LocalEngine streams = LocalEngine::kPread;  // kPread, kUring or kNetwork
  LocalEngine reads = LocalEngine::kPread;    // of ReadMany: kPread, kMapped or kNetwork
  std::string streams_reason;
  std::string reads_reason;

  std::string file_system;  // "ext4", "nfs", …; or its number
  std::int64_t size_bytes = 0;
  double cached = -1;                 // part of it in the page cache, by a sample; -1: unknown
  std::int64_t memory_bytes = 0;      // that the page cache might still take; 0: unknown
  std::int64_t direct_alignment = 0;  // of O_DIRECT; 0: not possible
  std::string uring_refusal;          // why io_uring is not; empty: it read a block of the file
  double pread_seconds = 0;           // of one small read of cached data; 0: not measured
  double mapped_seconds = 0;          // the same by the mapping
};

/// One paragraph for people.
std::string ToString(const EngineChoice& choice);

class LocalStorage final : public Storage {
 public:
  /// **Errors.** InvalidArgument: an option out of its range.
  static StatusOr<std::unique_ptr<LocalStorage>> Create(const LocalStorageOptions& options = {});
  /// Objects and streams live on.
  ~LocalStorage() override;

  std::string name() const override;
  StatusOr<std::shared_ptr<const StoredObject>> Open(const std::string& url) const override;
  StatusOr<ObjectInfo> Stat(const std::string& url) const override;
  /// Links are followed; a link to a directory above itself, one to nowhere, and what is neither a
  /// file nor a directory are left out.
  Status List(const std::string& prefix,
              const std::function<Status(const ObjectInfo&)>& visit) const override;

  /// How a file would be read now, with these options. Reads a few blocks of it.
  StatusOr<EngineChoice> Explain(const std::string& url) const;

 private:
  class Impl;
  explicit LocalStorage(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_LOCAL_STORAGE_H_
