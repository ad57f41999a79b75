// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_GLOO_LINK_H_
#define AIT_TENSOR_GLOO_LINK_H_

// Connections among the ranks of one group: bytes out, bytes in, through libtorch's
// c10d::ProcessGroupGloo.
//
// Gloo's own time-outs close every connection of the process, so none is used: a wait lasts until
// the bytes have moved, the connection breaks, or somebody interrupts the link.
//
// This header includes no libtorch and no Gloo; gloo_link.cc is the only file that does.

#include <memory>
#include <string>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/tcp_store.h"
#include "comm/pair_link.h"

namespace ait::inline v0::internal {

/// A network interface that Gloo listens at, with its thread. Groups share one.
class GlooDevice {
 public:
  /// By name of the interface if that is not empty, else by numeric address.
  static StatusOr<std::shared_ptr<GlooDevice>> Create(const std::string& interface_name,
                                                      const std::string& address);
  virtual ~GlooDevice() = default;
};

struct GlooLinkOptions {
  std::shared_ptr<GlooDevice> device;
  std::shared_ptr<TcpStore> store;
  std::string name;           // of the group; unique in the run
  Rank rank;                  // in the group
  std::vector<Rank> members;  // by rank in the group: rank in the world
};

/// **Collective. Blocks.** Over the members, until all are connected.
StatusOr<std::unique_ptr<PairLink>> ConnectGloo(const GlooLinkOptions& options, Deadline deadline);

}  // namespace ait::inline v0::internal

#endif  // AIT_TENSOR_GLOO_LINK_H_
