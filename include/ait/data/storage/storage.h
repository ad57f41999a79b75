// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_STORAGE_H_
#define AIT_DATA_STORAGE_STORAGE_H_

// Where data lies: one interface for files, web servers, object stores and caches of them.
//
// A `Storage` opens objects by URL and lists them; a `StoredObject` is an object that is open for
// reading, at any offset and from any thread. Formats, the cache and the loader know only these
// two, so that each works on each.
//
//   auto storage = LocalStorage::Create({});
//   AIT_ASSIGN_OR_RETURN(auto object, (*storage)->Open("train/shard-00000.tar"));
//   std::vector<std::byte> header(512);
//   AIT_RETURN_IF_ERROR(object->ReadAt(0, header));
//
// An object that changes after it was opened is an error (Aborted), never a mixture of two.
// **Thread-safety.** Every call of both classes may come from any thread, also at the same time; an
// ObjectStream belongs to one thread at a time. **Blocks.** All calls, on the disk or network.
// **Fork.** A child may read objects that were opened before, over connections of its own; a stream
// with `depth` > 0 is the parent's, and FailedPrecondition in it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "ait/base/status.h"
#include "ait/data/byte_view.h"
#include "ait/memory/resource.h"

namespace ait::inline v0 {

/// An object as its storage describes it.
struct ObjectInfo {
  std::string url;              // a path, or scheme://…; opens it again in the same storage
  std::int64_t size_bytes = 0;  // ≥ 0
  /// Differs whenever the contents do: an ETag, or for a file its inode, times of change and size.
  /// Empty if the storage cannot say.
  std::string version;
};

/// One of several reads of an object.
struct ObjectRead {
  std::int64_t offset_bytes = 0;
  std::span<std::byte> out;
  Status status;  // set by ReadMany
};

struct StreamOptions {
  std::int64_t offset_bytes = 0;
  /// Bytes to read; the default is to the end of the object.
  std::int64_t length_bytes = std::numeric_limits<std::int64_t>::max();
  /// Bytes of a block. Engines may round it up to what the device needs.
  std::int64_t block_bytes = std::int64_t{1} << 20;
  /// Blocks read ahead of the one that is with the caller. 0: each is read when it is asked for.
  int depth = 0;
  /// Memory of the blocks; empty: the heap.
  MemoryHandle memory = {};
};

/// The bytes of an object from one place on, block by block.
class ObjectStream {
 public:
  /// Ends reads that are under way, or waits for them where the engine cannot end them (the default
  /// waits for one `ReadAt`); blocks that views still hold live on.
  virtual ~ObjectStream() = default;

  /// The next block, never empty before the end; an empty view at the end. Blocks follow each other
  /// without a gap. A block is used again once no view of it is left: a stream holds depth + 1 of
  /// them, and makes another only while the caller keeps views of all.
  /// **Errors.** As StoredObject::ReadAt. After an error every call returns it again.
  virtual StatusOr<ByteView> Next() = 0;
};

class StoredObject {
 public:
  virtual ~StoredObject() = default;

  /// What was true when it was opened.
  virtual const ObjectInfo& info() const = 0;

  /// Fills `out` from `offset_bytes`. **Errors.** OutOfRange: it lies beyond the size in `info`;
  /// DataLoss: the object has become shorter; Aborted: it has changed; Unavailable: the storage did
  /// not answer, tries included; DeadlineExceeded; else as the system says.
  virtual Status ReadAt(std::int64_t offset_bytes, std::span<std::byte> out) const = 0;

  /// Does several reads, in any order and together where the engine can; each gets its own status.
  /// The default does one after the other.
  virtual void ReadMany(std::span<ObjectRead> reads) const;

  /// Starts to read blocks. The default reads each by ReadAt: `depth` blocks ahead by a thread.
  /// **Ownership.** The object outlives the stream, unless its class says otherwise.
  /// **Errors.** InvalidArgument: an option out of its range; ResourceExhausted.
  virtual StatusOr<std::unique_ptr<ObjectStream>> Stream(const StreamOptions& options) const;
};

class Storage {
 public:
  virtual ~Storage() = default;

  /// For messages, such as "files by io_uring" or "s3://bucket".
  virtual std::string name() const = 0;

  /// Opens an object. **Errors.** NotFound; PermissionDenied; InvalidArgument: not a URL of this
  /// storage, or not a regular file; else as `ReadAt`.
  virtual StatusOr<std::shared_ptr<const StoredObject>> Open(const std::string& url) const = 0;

  /// What `Open` would find, without opening it.
  virtual StatusOr<ObjectInfo> Stat(const std::string& url) const = 0;

  /// Calls `visit` for every object below `prefix` (a directory, or a prefix that ends in '/'), at
  /// any depth, in the order of the bytes of their URLs. Ends at the first error of `visit`.
  /// **Errors.** NotFound; Unimplemented: the storage cannot list; those of `visit`.
  virtual Status List(const std::string& prefix,
                      const std::function<Status(const ObjectInfo&)>& visit) const = 0;
};

/// An object that lies in memory, such as one that was unpacked.
std::shared_ptr<const StoredObject> MemoryObject(std::string url, ByteView bytes,
                                                 std::string version = "");

/// Reads a whole object. **Errors.** InvalidArgument: larger than `limit_bytes`; those of `ReadAt`.
StatusOr<ByteView> ReadWhole(const StoredObject& object,
                             std::int64_t limit_bytes = std::int64_t{1} << 31);

/// An error if [offset, offset + length) does not lie within an object of this size.
Status CheckRange(const ObjectInfo& info, std::int64_t offset_bytes, std::int64_t length_bytes);

}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_STORAGE_H_
