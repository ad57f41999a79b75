// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/buffer.h"

namespace ait::inline v0 {

StatusOr<HostBuffer> HostBuffer::Create(MemoryHandle memory, std::size_t bytes,
                                        std::size_t alignment) {
  AIT_ASSIGN_OR_RETURN(void* const block, memory.Allocate(bytes, alignment));
  HostBuffer buffer;
  buffer.memory_ = std::move(memory);
  buffer.data_ = static_cast<std::byte*>(block);
  buffer.bytes_ = bytes;
  buffer.alignment_ = alignment;
  return buffer;
}

}  // namespace ait::inline v0
