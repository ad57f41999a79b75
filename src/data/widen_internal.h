// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_WIDEN_INTERNAL_H_
#define AIT_DATA_WIDEN_INTERNAL_H_

// Tokens of any integer dtype to int64: the hot loop of reading tokens.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ait/base/dtype.h"

namespace ait::inline v0::internal {

/// Widens out.size() tokens and returns the largest. A negative one counts as huge, so that one
/// comparison finds both kinds that are not in a vocabulary. `bytes` need not be aligned.
std::uint64_t WidenAndMax(DType dtype, const std::byte* bytes, std::span<std::int64_t> out);

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_WIDEN_INTERNAL_H_
