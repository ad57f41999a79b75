// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DEVICE_DYNAMIC_LIBRARY_H_
#define AIT_DEVICE_DYNAMIC_LIBRARY_H_

// A library that is opened at run time, so that a process has one copy of it: the one that libtorch
// uses.

#include <string>
#include <utility>
#include <vector>

#include "ait/base/status.h"

namespace ait::inline v0::internal {

/// Never closed: the libraries opened here keep threads and state that would outlive their code.
class DynamicLibrary {
 public:
  /// Opens `file`, an explicit path. If it is empty: the copy of `soname` that the process has
  /// loaded, else `beside_torch` (relative to the folder that libtorch's own stands in, if libtorch
  /// is loaded), else `soname` as the system finds it.
  /// **Errors.** FailedPrecondition with all that was tried.
  static StatusOr<DynamicLibrary> Open(const std::string& file, const std::string& soname,
                                       const std::vector<std::string>& beside_torch);

  /// Where it was loaded from.
  const std::string& path() const { return path_; }

  /// Address of `name`; null if it has no such symbol.
  void* Find(const char* name) const;

 private:
  DynamicLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}

  void* handle_;
  std::string path_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_DEVICE_DYNAMIC_LIBRARY_H_
