// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_MEMORY_PARTS_INTERNAL_H_
#define AIT_ACTIVATION_MEMORY_PARTS_INTERNAL_H_

// The members of MemoryParts in the order in which tables show them.

#include <array>
#include <cstdint>

#include "ait/activation/memory_model.h"

namespace ait::inline v0::internal {

struct MemoryPart {
  const char* name;
  const char* key;  // one word: of JSON and narrow tables
  std::int64_t MemoryParts::* bytes;
};
inline constexpr std::array kMemoryParts = {
    MemoryPart{"parameters", "parameters", &MemoryParts::parameters},
    MemoryPart{"gradients", "gradients", &MemoryParts::gradients},
    MemoryPart{"masters", "masters", &MemoryParts::masters},
    MemoryPart{"states", "states", &MemoryParts::states},
    MemoryPart{"buckets", "buckets", &MemoryParts::buckets},
    MemoryPart{"gathered", "gathered", &MemoryParts::gathered},
    MemoryPart{"activations", "activations", &MemoryParts::activations},
    MemoryPart{"working set", "working", &MemoryParts::working},
    MemoryPart{"staging", "staging", &MemoryParts::staging},
    MemoryPart{"slack", "slack", &MemoryParts::slack}};

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_MEMORY_PARTS_INTERNAL_H_
