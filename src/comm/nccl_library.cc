// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_library.h"

#include <string_view>

namespace ait::inline v0::internal {
namespace {

constexpr int kOldest = NCCL_VERSION(2, 18, 0);  // ncclCommSplit

std::string VersionText(int version) {
  return StrCat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

StatusCode CodeOf(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError:
    case ncclSystemError:
      return StatusCode::kUnavailable;
    case ncclInvalidArgument:
      return StatusCode::kInvalidArgument;
    case ncclInvalidUsage:
      return StatusCode::kFailedPrecondition;
    default:
      return StatusCode::kInternal;
  }
}

}  // namespace

StatusOr<std::shared_ptr<NcclLibrary>> NcclLibrary::Open(const std::string& file) {
  StatusOr<DynamicLibrary> opened =
      DynamicLibrary::Open(file, "libnccl.so.2", {"../../nvidia/nccl/lib/libnccl.so.2"});
  if (!opened.ok()) return Annotate(opened.status(), "no NCCL");
  std::shared_ptr<NcclLibrary> library(new NcclLibrary(*std::move(opened)));
#define X(function)   \
  library->function = \
      reinterpret_cast<decltype(library->function)>(library->library_.Find(#function));
  AIT_NCCL_FUNCTIONS(X)
  AIT_NCCL_OPTIONAL_FUNCTIONS(X)
#undef X
  // The version first: that an old NCCL misses a function says less.
  if (library->ncclGetVersion != nullptr &&
      library->ncclGetVersion(&library->version_) == ncclSuccess) {
    const int version = library->version_;
    if (version < kOldest || version / 10000 != NCCL_MAJOR) {
      return FailedPreconditionError("no NCCL: ", library->path(), " is version ",
                                     VersionText(version), "; needed is ", VersionText(kOldest),
                                     " or a later ", NCCL_MAJOR, ".x");
    }
  }
  std::string_view missing;
#define X(function) \
  if (library->function == nullptr) missing = #function;
  AIT_NCCL_FUNCTIONS(X)
#undef X
  if (!missing.empty()) {
    return FailedPreconditionError("no NCCL: ", library->path(), " has no function ", missing,
                                   "; give NcclOptions::library the path of libnccl.so.2");
  }
  return library;
}

std::string NcclLibrary::Describe() const {
  return StrCat("NCCL ", VersionText(version_), " (", path(), ")");
}

bool NcclLibrary::registers() const {
  return ncclMemAlloc != nullptr && ncclMemFree != nullptr && ncclCommRegister != nullptr &&
         ncclCommDeregister != nullptr;
}

Status NcclLibrary::Failure(ncclResult_t result, ncclComm_t comm, const std::string& what) const {
  const char* last = ncclGetLastError(comm);
  std::string text = StrCat(what, ": NCCL says: ", ncclGetErrorString(result));
  if (last != nullptr && *last != '\0') text += StrCat("; ", last);
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
  return Status(CodeOf(result), text);
}

}  // namespace ait::inline v0::internal
