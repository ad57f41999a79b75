// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_FILE_IO_H_
#define AIT_OPTIM_FILE_IO_H_

// Reads and writes of one file that go on while the caller computes: by io_uring where the kernel
// has it and permits it, else by a thread with pread and pwrite.
//
//   FileRequest request{.kind = FileRequest::Kind::kRead, .data = buffer, .bytes = n};
//   AIT_RETURN_IF_ERROR(io->Start(request));
//   …
//   while (!request.done) AIT_RETURN_IF_ERROR(io->WaitForAny());
//   if (request.error != 0) return ErrnoError(request.error, …);

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "ait/base/status.h"

namespace ait::inline v0::internal {

/// A read or write of `bytes` > 0 bytes. Belongs to the FileIo between Start and `done`.
struct FileRequest {
  enum class Kind : std::uint8_t { kRead, kWrite };
  /// Value of `error`, beside those of errno: the file ends before the bytes do.
  static constexpr int kFileEnds = -1;

  Kind kind = Kind::kRead;
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;

  std::int64_t moved = 0;  // bytes so far
  int repeats = 0;         // calls in a row that were interrupted before a byte moved
  int error = 0;           // errno, or kFileEnds; 0 if all bytes were moved
  bool done = true;
};

/// Takes in what a system call said for the rest of a request: bytes moved, or −errno. Returns true
/// if there still is a rest to ask for (a short count, an interruption); else `error` is set.
bool Advance(FileRequest& request, std::int64_t result);

/// **Thread-safety.** None: one thread at a time.
class FileIo {
 public:
  /// **Blocks.** Until everything started is done.
  virtual ~FileIo() = default;

  /// Starts a request; at most the `depth` of creation are under way at a time.
  virtual Status Start(FileRequest& request) = 0;
  /// Sets `done` of the requests that have ended.
  virtual Status Poll() = 0;
  /// **Blocks.** Until one that was not known to be done is; returns at once if none is under way.
  virtual Status WaitForAny() = 0;
  /// "io_uring" or "thread".
  virtual std::string_view name() const = 0;
};

/// **Errors.** Those of the kernel, and Unimplemented where ait was built without liburing: use a
/// thread then.
StatusOr<std::unique_ptr<FileIo>> OpenUring(int fd, int depth);

/// pread and pwrite, so that tests can put others in their place.
class FileCalls {
 public:
  virtual ~FileCalls() = default;
  /// As of pread and pwrite, with −errno for an error.
  virtual std::int64_t Read(int fd, void* data, std::int64_t bytes, std::int64_t offset);
  virtual std::int64_t Write(int fd, const void* data, std::int64_t bytes, std::int64_t offset);
};

/// Requests are worked off in order. `fd` stays open as long as the FileIo lives.
std::unique_ptr<FileIo> OpenFileThread(int fd, std::unique_ptr<FileCalls> calls = nullptr);

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_FILE_IO_H_
