// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_LAUNCH_TERMINAL_INTERNAL_H_
#define AIT_LAUNCH_TERMINAL_INTERNAL_H_

#include "launch/fd_internal.h"

namespace ait::inline v0::internal {

/// A pseudo-terminal that changes nothing of what is written to it, as large as the terminal at
/// standard error. It takes the place of a pipe: the end to read gives EIO where a pipe ends.
StatusOr<Pipe> MakeTerminal();

}  // namespace ait::inline v0::internal

#endif  // AIT_LAUNCH_TERMINAL_INTERNAL_H_
