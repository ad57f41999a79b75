// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_MEMORY_MODEL_INTERNAL_H_
#define AIT_ACTIVATION_MEMORY_MODEL_INTERNAL_H_

#include <span>
#include <string>

#include "ait/activation/memory_model.h"

namespace ait::inline v0::internal {

/// **Errors.** InvalidArgument: a cost that is none; OutOfRange: bytes of all over 2^63.
Status CheckSegments(std::span<const SegmentCost> segments);

/// "states (12.0 GiB)".
std::string LargestPart(const MemoryParts& parts);

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_MEMORY_MODEL_INTERNAL_H_
