// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_OFFLOAD_TARGET_INTERNAL_H_
#define AIT_ACTIVATION_OFFLOAD_TARGET_INTERNAL_H_

// Where offloaded bytes lie. Torch-free.
//
//   AIT_ASSIGN_OR_RETURN(const OffloadPlace place, target->Reserve(bytes));
//   AIT_RETURN_IF_ERROR(target->Write(place, from));
//   AIT_RETURN_IF_ERROR(target->Read(place, to));
//   target->Release(place);

#include <cstdint>
#include <memory>
#include <string>

#include "ait/base/status.h"
#include "ait/memory/resource.h"

namespace ait::inline v0::internal {

struct OffloadPlace {
  void* block = nullptr;    // of memory
  std::int64_t offset = 0;  // of a file
  std::int64_t bytes = 0;
};

/// **Thread-safety.** All calls may come from any thread; a place is used by one at a time.
class OffloadTarget {
 public:
  virtual ~OffloadTarget() = default;
  /// **Errors.** ResourceExhausted: no room.
  virtual StatusOr<OffloadPlace> Reserve(std::int64_t bytes) = 0;
  virtual void Release(const OffloadPlace& place) = 0;
  /// **Blocks.**
  virtual Status Write(const OffloadPlace& place, const void* from) = 0;
  /// **Blocks.**
  virtual Status Read(const OffloadPlace& place, void* to) = 0;
  virtual std::string Describe() const = 0;
};

std::unique_ptr<OffloadTarget> MakeMemoryTarget(MemoryHandle memory);

/// A file that no name leads to, which grows as it is needed.
/// **Errors.** NotFound, PermissionDenied: the directory.
StatusOr<std::unique_ptr<OffloadTarget>> OpenFileTarget(const std::string& directory);

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_OFFLOAD_TARGET_INTERNAL_H_
