// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_SCRATCH_FILE_H_
#define AIT_OPTIM_SCRATCH_FILE_H_

// A file without a name, for what does not fit into memory, and the best way to read and write it:
// io_uring or a thread, with O_DIRECT or through the page cache.
//
//   AIT_ASSIGN_OR_RETURN(ScratchFile file, OpenScratchFile("/nvme", "optimizer state", option));
//   AIT_RETURN_IF_ERROR(ReserveScratch(file, bytes));
//   AIT_ASSIGN_OR_RETURN(ScratchIo io, OpenScratchIo(file, {.depth = 4, .page = buffer}));
//
// It is gone with the process, however that ends.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ait/base/status.h"
#include "base/file_descriptor.h"
#include "optim/file_io.h"

namespace ait::inline v0::internal {

/// Of memory, offset and size of a direct read or write.
inline constexpr std::int64_t kScratchPage = 4096;

struct ScratchFile {
  FileDescriptor fd;
  std::string what;   // "optimizer state"
  std::string place;  // "/nvme (ext4)"
};

/// `what` it holds, and the `option` that named the directory, are for messages.
/// **Errors.** NotFound, PermissionDenied: the directory.
StatusOr<ScratchFile> OpenScratchFile(const std::string& directory, std::string_view what,
                                      std::string_view option);

/// Takes the room for the first `bytes` bytes, so that writing there does not fail for lack of it.
/// **Errors.** ResourceExhausted: bytes needed and free.
Status ReserveScratch(const ScratchFile& file, std::int64_t bytes);

struct ScratchIoOptions {
  int depth = 2;              // requests at a time
  std::byte* page = nullptr;  // kScratchPage bytes, aligned to it, of zeros: the first of the file
  /// For tests: what reads and writes. Empty: the best that there is.
  std::function<std::unique_ptr<FileIo>(int fd)> io;
  /// Through the page cache, as if the file system had no O_DIRECT.
  bool buffered = false;
};

struct ScratchIo {
  std::unique_ptr<FileIo> io;
  bool buffered = false;
  std::string description;  // "/nvme/state (ext4): io_uring, O_DIRECT"; and why not better
};

/// Writes and reads the first page, which was reserved, to see that it works.
StatusOr<ScratchIo> OpenScratchIo(const ScratchFile& file, const ScratchIoOptions& options);

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_SCRATCH_FILE_H_
