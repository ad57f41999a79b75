// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_STATE_FILE_H_
#define AIT_OPTIM_STATE_FILE_H_

// A file of chunks of equal size, of which a few are in memory at a time: what optimizer state
// lives in that is not kept in memory.
//
//   AIT_ASSIGN_OR_RETURN(auto file, StateFile::Create({.offload = offload, .count = 1000}));
//   for (std::int64_t i = 0; i < 1000; ++i) {
//     AIT_RETURN_IF_ERROR(file->Use(i, StateAccess::kReadWrite,
//                                   [&](std::byte* chunk) { return Update(i, chunk); }));
//   }
//
// While a chunk is used, those behind it are being read and the one before it is being written; the
// one behind the last is the first, so that the next round finds its begin in memory. Any other
// order is right too, and slower. The file has no name, and is gone with the process.
//
// Where the file system has O_DIRECT, chunks do not pass through the page cache.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/optim/offload.h"
#include "ait/optim/optimizer.h"
#include "optim/file_io.h"
#include "optim/scratch_file.h"

namespace ait::inline v0::internal {

struct StateFileOptions {
  StateOffload offload;
  std::int64_t count = 0;  // chunks of offload.chunk bytes each, rounded up to 4096
  /// For tests: what reads and writes. Empty: the best that there is.
  std::function<std::unique_ptr<FileIo>(int fd)> io;
  /// For tests: as if the file system had no O_DIRECT.
  bool buffered = false;
};

/// **Thread-safety.** None: one thread at a time. It need not always be the same.
/// **Errors.** After an error of the file every later call returns it: what was being written may
/// be lost. It names the file system, the offset and the bytes.
class StateFile {
 public:
  /// Chunks are all zeros at first. The room for all of them is taken now.
  /// **Errors.** InvalidArgument: what of the options is not allowed. NotFound, PermissionDenied:
  /// the directory. ResourceExhausted: bytes needed and free.
  static StatusOr<std::unique_ptr<StateFile>> Create(const StateFileOptions& options);
  /// **Blocks.** Until nothing is being read or written.
  ~StateFile();
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  /// **Blocks.** Calls `body` with chunk `index`, aligned to 4096 bytes, valid during the call
  /// alone. What is written to it with kReadWrite is kept, also if `body` fails, whose error is
  /// returned.
  Status Use(std::int64_t index, StateAccess access, const std::function<Status(std::byte*)>& body);

  /// **Blocks.** Until all that was changed is in the file; tells errors that would be met later.
  Status Flush();

  std::int64_t chunk_bytes() const { return chunk_bytes_; }
  std::int64_t file_bytes() const { return chunk_bytes_ * count_; }
  /// Of the chunks in memory.
  std::int64_t memory_bytes() const;
  /// How it reads and writes, and why not better: "/nvme/state (ext4): io_uring, O_DIRECT".
  const std::string& description() const { return description_; }

 private:
  enum class Condition : std::uint8_t { kEmpty, kReading, kClean, kDirty, kWriting };
  struct Slot {
    std::byte* data = nullptr;
    std::int64_t chunk = -1;
    Condition condition = Condition::kEmpty;
    std::int64_t last_use = 0;
    FileRequest request;
  };

  StateFile() = default;
  Status Open(const StateFileOptions& options);
  Status OpenIo(const StateFileOptions& options);
  Status MakeSlots(int count);

  Status Fetch(std::int64_t index, Slot*& slot);
  Status Start(Slot& slot, FileRequest::Kind kind);
  Status ReadAhead(std::int64_t index);
  Status WriteOthers(const Slot* used);
  Status Collect(bool wait);
  Slot* Find(std::int64_t chunk);
  Slot* FindFree(std::int64_t first_kept, std::int64_t kept);

  ScratchFile file_;
  std::string directory_;
  std::string description_;
  std::int64_t chunk_bytes_ = 0;
  std::int64_t count_ = 0;
  std::byte* memory_ = nullptr;
  std::vector<Slot> slots_;
  std::unique_ptr<FileIo> io_;
  std::int64_t uses_ = 0;
  Status status_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_STATE_FILE_H_
