// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_GLOO_STORE_H_
#define AIT_TENSOR_GLOO_STORE_H_

// Stores of ait and of c10d, one as the other.

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/store.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/world.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace ait::inline v0::internal {

/// **Blocks.** Until `key` is set. Unavailable as soon as one of `members` (ranks of the world) has
/// died.
StatusOr<std::string> AwaitKey(TcpStore& store, const std::string& key,
                               const std::vector<Rank>& members, Deadline deadline);

/// The TcpStore as Gloo wants it, below `prefix`. Waits are those of
/// `AwaitKey`, with exceptions.
c10::intrusive_ptr<c10d::Store> MakeC10dStore(std::shared_ptr<TcpStore> store, std::string prefix,
                                              std::vector<Rank> members, Deadline deadline);

/// Joins the store of torchrun's agent, a c10d::TCPStore, as a client.
StatusOr<std::unique_ptr<Store>> JoinAgent(const LaunchInfo& launch, Deadline deadline);

}  // namespace ait::inline v0::internal

#endif  // AIT_TENSOR_GLOO_STORE_H_
