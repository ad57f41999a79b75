// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_ADAPTOR_H_
#define AIT_MEMORY_ADAPTOR_H_

// A resource on top of another: the base of statistics, limit, tracking and the other adaptors, and
// of those that a program writes itself.
//
// An adaptor has the properties of what lies below it, and a name that shows the stack:
// "statistics(limit(heap))". This one passes every call on; a derived class changes what it wants.
//
//   class ZeroingResource final : public MemoryAdaptor {
//    public:
//     explicit ZeroingResource(MemoryHandle upstream)
//         : MemoryAdaptor("zeroing", std::move(upstream)) {}
//
//    private:
//     StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override {
//       AIT_ASSIGN_OR_RETURN(void* const block, upstream().Allocate(bytes, alignment));
//       std::memset(block, 0, bytes);
//       return block;
//     }
//   };
//
// The order of a stack is the order of the calls: the adaptor that was made last is asked first.

#include <string>
#include <utility>

#include "ait/memory/resource.h"

namespace ait::inline v0 {

class MemoryAdaptor : public MemoryResource {
 public:
  /// Those of the resource below, under the name "kind(name)".
  MemoryProperties properties() const override;

  /// The resource below.
  const MemoryHandle& upstream() const { return upstream_; }

 protected:
  MemoryAdaptor(std::string kind, MemoryHandle upstream)
      : kind_(std::move(kind)), upstream_(std::move(upstream)) {}

  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override;
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override;

 private:
  const std::string kind_;
  const MemoryHandle upstream_;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_ADAPTOR_H_
