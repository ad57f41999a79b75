// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/buffer.h"

namespace ait::inline v0 {

StatusOr<HostBuffer> HostBuffer::Create(MemoryHandle memory, std::size_t bytes,
                                        std::size_t alignment) {
  if (const MemoryProperties properties = memory.properties();
      properties.residence == Residence::kDevice) {
    return InvalidArgumentError("a host buffer of ", bytes, " bytes cannot lie in ",
                                properties.name,
                                ", which only the device reads; see ait/device/buffer.h");
  }
  AIT_ASSIGN_OR_RETURN(void* const block, memory.Allocate(bytes, alignment));
  HostBuffer buffer;
  buffer.memory_ = std::move(memory);
  buffer.data_ = static_cast<std::byte*>(block);
  buffer.bytes_ = bytes;
  buffer.alignment_ = alignment;
  return buffer;
}

}  // namespace ait::inline v0
