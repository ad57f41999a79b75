// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/adaptor.h"

namespace ait::inline v0 {

MemoryProperties MemoryAdaptor::properties() const {
  MemoryProperties properties = upstream_.properties();
  properties.name = StrCat(kind_, "(", properties.name, ")");
  return properties;
}

StatusOr<void*> MemoryAdaptor::DoAllocate(std::size_t bytes, std::size_t alignment) {
  return upstream_.Allocate(bytes, alignment);
}

void MemoryAdaptor::DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) {
  upstream_.Deallocate(block, bytes, alignment);
}

}  // namespace ait::inline v0
