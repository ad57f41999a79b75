// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_FILE_DESCRIPTOR_H_
#define AIT_BASE_FILE_DESCRIPTOR_H_

// The owner of a file descriptor. Not a public header: those hold no more than an int.

#include <unistd.h>

#include <utility>

namespace ait::inline v0::internal {

/// Closes its descriptor when it goes out of scope; holds none if it is negative. Move-only.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = other.Release();
    }
    return *this;
  }
  ~FileDescriptor() { Close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  /// Gives the descriptor to the caller to close.
  int Release() { return std::exchange(fd_, -1); }
  void Close() {
    if (fd_ >= 0) ::close(Release());
  }

 private:
  int fd_ = -1;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_BASE_FILE_DESCRIPTOR_H_
