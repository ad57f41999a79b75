// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_RESOURCE_H_
#define AIT_MEMORY_RESOURCE_H_

// Where bytes come from: the one interface behind which heap, shared memory and others stand, and
// the handle by which they are passed around.
//
// A resource hands out blocks and takes them back. Adaptors (statistics) are resources on top of
// others. Components take a `MemoryHandle`: a value, copied like a pointer, that keeps its resource
// alive.
//
//   MemoryHandle memory = HeapResource::Create();
//   AIT_ASSIGN_OR_RETURN(void* block, memory.Allocate(bytes));
//   memory.Deallocate(block, bytes);                  // the same sizes as at Allocate
//
// It is not a replacement of malloc for small objects: a block takes at least 128 bytes. Most code
// holds a `HostBuffer` ("buffer.h") instead of a block.

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ait/base/status.h"

namespace ait::inline v0 {

/// Which processes can see a block.
enum class Sharing {
  kThisProcess,
  kProcesses,  // any that attaches to the resource
};

/// Who reads and writes a block.
enum class Residence {
  kHost,
  kDevice,  // a GPU alone; the host must not touch it
};

struct MemoryProperties {
  std::string name;  // for messages, such as "heap" or "statistics(heap)"
  Sharing sharing = Sharing::kThisProcess;
  Residence residence = Residence::kHost;
  std::optional<int> node;  // the NUMA node on which it puts its blocks; nullopt if it chooses none
};

/// Hands out blocks of bytes. Derived classes write the three functions at the end; what every
/// resource must do is tested by tests/contract/memory_resource_contract.h.
/// **Thread-safety.** All calls may come from any thread, and a block may be given back by another
/// thread than the one that took it.
class MemoryResource {
 public:
  /// Every block is aligned to this: two cache lines.
  static constexpr std::size_t kMinAlignment = 128;
  /// The largest alignment that can be asked for: a huge page.
  static constexpr std::size_t kMaxAlignment = std::size_t{2} << 20;
  /// More bytes than any machine maps; a size above it is a mistake of the caller.
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 48;

  MemoryResource() = default;
  MemoryResource(const MemoryResource&) = delete;
  MemoryResource& operator=(const MemoryResource&) = delete;
  virtual ~MemoryResource() = default;

  /// Returns a block of `bytes` bytes whose address is a multiple of `alignment` and of
  /// kMinAlignment. What it holds is unspecified. Zero bytes give nullptr.
  /// **Errors.** InvalidArgument: `alignment` is not a power of two up to kMaxAlignment, or `bytes`
  /// is above kMaxBytes. ResourceExhausted: there is no room; the text says of what.
  StatusOr<void*> Allocate(std::size_t bytes, std::size_t alignment = kMinAlignment);

  /// Takes back a block of this resource; `bytes` and `alignment` are those it was allocated with.
  /// Accepts nullptr with zero bytes.
  void Deallocate(void* block, std::size_t bytes, std::size_t alignment = kMinAlignment);

  virtual MemoryProperties properties() const = 0;

 protected:
  // Called with 1 ≤ bytes ≤ kMaxBytes and a power of two kMinAlignment ≤ alignment ≤ kMaxAlignment.
  virtual StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) = 0;
  virtual void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) = 0;
};

/// Shared ownership of a resource, as a value. Default-made it is empty: it allocates nothing but
/// an error, so that options may leave it out and say what is used then.
class MemoryHandle {
 public:
  MemoryHandle() = default;
  /// Implicit, so that a resource can be given wherever a handle is taken.
  template <typename T>
    requires std::derived_from<T, MemoryResource>
  MemoryHandle(std::shared_ptr<T> resource) : resource_(std::move(resource)) {}  // NOLINT

  explicit operator bool() const { return resource_ != nullptr; }

  /// As of MemoryResource. **Errors.** Also FailedPrecondition: the handle is empty.
  StatusOr<void*> Allocate(std::size_t bytes,
                           std::size_t alignment = MemoryResource::kMinAlignment) const;
  void Deallocate(void* block, std::size_t bytes,
                  std::size_t alignment = MemoryResource::kMinAlignment) const;
  /// Those of the resource; of an empty handle, the name "none".
  MemoryProperties properties() const;

  /// Whether both are handles of the same resource.
  friend bool operator==(const MemoryHandle& a, const MemoryHandle& b) = default;

 private:
  std::shared_ptr<MemoryResource> resource_;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_RESOURCE_H_
