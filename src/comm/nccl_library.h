// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NCCL_LIBRARY_H_
#define AIT_COMM_NCCL_LIBRARY_H_

// The functions of NCCL, found at run time in the one copy that the process uses.

#include <nccl.h>

#include <memory>
#include <string>
#include <utility>

#include "ait/base/status.h"
#include "device/dynamic_library.h"

#define AIT_NCCL_FUNCTIONS(X) \
  X(ncclAllGather)            \
  X(ncclAllReduce)            \
  X(ncclBroadcast)            \
  X(ncclCommAbort)            \
  X(ncclCommDestroy)          \
  X(ncclCommFinalize)         \
  X(ncclCommGetAsyncError)    \
  X(ncclCommInitRankConfig)   \
  X(ncclCommSplit)            \
  X(ncclGetErrorString)       \
  X(ncclGetLastError)         \
  X(ncclGetUniqueId)          \
  X(ncclGetVersion)           \
  X(ncclGroupEnd)             \
  X(ncclGroupStart)           \
  X(ncclRecv)                 \
  X(ncclReduce)               \
  X(ncclReduceScatter)        \
  X(ncclSend)

/// Of NCCL 2.19 and later: null before.
#define AIT_NCCL_OPTIONAL_FUNCTIONS(X) \
  X(ncclCommDeregister)                \
  X(ncclCommRegister)                  \
  X(ncclMemAlloc)                      \
  X(ncclMemFree)

namespace ait::inline v0::internal {

class NcclLibrary {
 public:
  /// **Errors.** FailedPrecondition: no such library, a function is missing, or its version is not
  /// 2.18 or a later one of the same major version.
  static StatusOr<std::shared_ptr<NcclLibrary>> Open(const std::string& file);

#define X(function) decltype(&::function) function = nullptr;
  AIT_NCCL_FUNCTIONS(X)
  AIT_NCCL_OPTIONAL_FUNCTIONS(X)
#undef X

  /// As NCCL counts: 22809 is 2.28.9.
  int version() const { return version_; }
  const std::string& path() const { return library_.path(); }
  std::string Describe() const;

  /// Whether memory can be allocated for registration and registered.
  bool registers() const;

  /// Ok for ncclSuccess and ncclInProgress; else a Status with NCCL's own words. `comm` may be null.
  template <typename... What>
  Status Check(ncclResult_t result, ncclComm_t comm, const What&... what) const {
    if (result == ncclSuccess || result == ncclInProgress) return OkStatus();
    return Failure(result, comm, StrCat(what...));
  }

 private:
  explicit NcclLibrary(DynamicLibrary library) : library_(std::move(library)) {}
  Status Failure(ncclResult_t result, ncclComm_t comm, const std::string& what) const;

  DynamicLibrary library_;
  int version_ = 0;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_NCCL_LIBRARY_H_
