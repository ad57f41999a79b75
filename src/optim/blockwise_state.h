// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_BLOCKWISE_STATE_H_
#define AIT_OPTIM_BLOCKWISE_STATE_H_

// The state arrays of an elementwise optimizer whose moments may be in 8 bits.

#include <string>
#include <string_view>
#include <vector>

#include "ait/optim/state_format.h"
#include "optim/elementwise_optimizer.h"
#include "optim/kernels.h"

namespace ait::inline v0::internal {

inline constexpr std::int64_t kBlockElements8bit = 64;
inline constexpr std::int64_t kLeastElements8bit = 4096;  // smaller parameters stay fp32

/// Arrays for moments of these names: fp32 arrays in their order, and in 8 bits then two arrays for
/// each, codes and "…_absmax". A parameter has either the first or the others.
std::vector<StateArray> ArraysOf(const std::vector<std::string>& moments, StateFormat format);

/// `Optimizer::state_names`: all names that a parameter may have.
std::vector<std::string> StateNames(std::vector<std::string> moments, StateFormat format);

/// For `Optimizer::Describe`; empty for fp32.
std::string_view Describe(StateFormat format);

/// The moment whose codes are array i.
inline Moment8bit Moment8bitAt(const ElementRun& run, std::size_t i) {
  return {reinterpret_cast<std::uint8_t*>(run.state[i]), run.floats(i + 1)};
}

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_BLOCKWISE_STATE_H_
