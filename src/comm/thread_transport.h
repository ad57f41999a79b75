// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_THREAD_TRANSPORT_H_
#define AIT_COMM_THREAD_TRANSPORT_H_

// The transport among threads by itself, for what is built of transports.

#include <memory>
#include <vector>

#include "ait/base/types.h"
#include "ait/comm/transport.h"

namespace ait::inline v0::internal {

/// The ends of a new group of `size` ranks; element r is rank r.
std::vector<std::unique_ptr<Transport>> MakeThreadTransports(WorldSize size);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_THREAD_TRANSPORT_H_
