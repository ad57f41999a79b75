// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NCCL_H_
#define AIT_COMM_NCCL_H_

// The transport between GPUs: NCCL, found at run time.
//
//   auto world = World::FromEnvironment({.transport = Nccl({.agent = Gloo()})});
//   MemoryHandle memory = (*world)->communicator()->memory();     // device memory, registered
//
// Buffers lie on the device of their rank: one device a rank. A collective starts after what the
// program has given to its stream (`producer_stream`) up to the call, and `Work::Wait` returns when
// the result is there. Buffers of the host are taken too, up to `host_staging` bytes an operation:
// they go through the device and are for the small things that ranks agree on, not for gradients.
// A larger one is refused.
//
// **What a sum is.** NCCL adds in an order of its own: it is the same on every rank, but not the
// rank order that the other transports promise, and may change with the number of elements, the
// topology and the version of NCCL; fp16 and bf16 are rounded at every step. Buffers of the host are
// summed on the host, in rank order, as everywhere in ait. NCCL has no 16-bit integers: device
// reductions of them are Unimplemented.
//
// Every call returns at once; a thread of the transport polls NCCL, which is set not to block.
// Ranks that ask for different things are told on every rank, by signatures that NCCL exchanges
// beside each operation; which may then have run with wrong results. A group that ends aborts all
// its NCCL communicators at once, each on a thread of its own.
//
// **Errors.** As of `Communicator`. In addition, of Connect and JoinNccl: FailedPrecondition: ait
// was built without NCCL, there is no GPU, no NCCL, or one of a wrong version, or ranks have
// different ones; InvalidArgument: no such device.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "ait/base/clock.h"
#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/transport.h"
#include "ait/comm/world.h"
#include "ait/device/runtime.h"

namespace ait::inline v0 {

class Store;

struct NcclOptions {
  /// The GPUs. Null: `DeviceRuntime::Open()`.
  std::shared_ptr<DeviceRuntime> devices;
  /// Device of this rank. -1: in a `World` the local rank, else the current device of the thread.
  int device = -1;
  /// File of NCCL. Empty: the copy that the process has loaded, else the one beside libtorch, else
  /// the system's.
  std::string library;
  /// The stream (a `cudaStream_t`) that the caller of an operation gives its work to; with libtorch,
  /// `c10::cuda::getCurrentCUDAStream(device).stream()`. Empty: the default stream.
  std::function<void*(Device device)> producer_stream;
  /// Most bytes that an operation on buffers of the host may put on the device; 0 refuses all. A
  /// reduction takes its size times the number of ranks. Equal on all ranks.
  Bytes host_staging = MiB(16);
  /// How long the operations of a group that has ended wait for NCCL to let go of their buffers.
  /// After that their errors say that it has not: then only the end of the process frees the device.
  std::chrono::milliseconds abort_timeout = std::chrono::seconds(2);
  /// Who joins the store of torchrun's agent, which speaks libtorch's own protocol: Gloo() of
  /// ait/tensor/gloo.h can. Not needed with other launchers.
  std::shared_ptr<TransportProvider> agent;
  /// Is told why a group ended. Outlives the communicators.
  LogSink* log = nullptr;
};

/// Gives `World::FromEnvironment` its transport. Wrong options are its error.
std::shared_ptr<TransportProvider> Nccl(NcclOptions options = {});

/// **Collective. Blocks.** The same for any ranks that share a store: rank r of `size`. `key` is
/// equal on all of them and new for every group. The store outlives the transport and all that is
/// made from it; if it is a TcpStore of ranks with the same numbers, dead ranks are noticed by it.
/// Unlike a `World` of one, a group of one runs on the device.
StatusOr<std::unique_ptr<Transport>> JoinNccl(Store& store, std::string key, Rank rank,
                                              WorldSize size, Deadline deadline,
                                              const NcclOptions& options = {});

/// What NCCL would be used: "NCCL 2.28.9 (/usr/lib/libnccl.so.2)"; opens it, and nothing else.
StatusOr<std::string> DescribeNccl(const NcclOptions& options = {});

}  // namespace ait::inline v0

#endif  // AIT_COMM_NCCL_H_
