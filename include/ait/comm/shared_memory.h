// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_SHARED_MEMORY_H_
#define AIT_COMM_SHARED_MEMORY_H_

// The transport inside a host: memory is the wire.
//
// Every rank has an arena, a memfd that all ranks of the group map. Buffers that lie in it
// (`Communicator::memory()`; `DataParallel` puts its own there) are reduced where they are: the owner
// of a slice reads it from every rank, in rank order, and writes the result to all. That is two
// passes over the bytes, a fraction of what a socket costs. Any other memory goes through staging
// buffers in chunks that stay in the cache.
//
//   auto world = World::FromEnvironment({.transport = SharedMemory()});
//   MemoryHandle arena = (*world)->communicator()->memory();
//   auto buffer = HostBuffer::Create(arena, bytes);              // reduced in place
//
// That ranks share a host is proved: same boot, same network namespace, and a handshake
// through the memory itself. What cannot be proved is an error, never a guess. Nothing has a name: a
// killed run leaves nothing behind, and /dev/shm is not used, so its size does not matter. Space is
// reserved when a buffer is allocated, so that a lack of memory is a Status there and not a SIGBUS
// later.
//
// A small operation for which the peers are ready runs in the call that starts it; a larger one runs
// on the thread that waits for it, else on a thread of the transport. A rank waits with a few loads,
// then yields, then sleeps, so that more ranks than cores get along.
//
// **Errors.** As promised by `Communicator`; ranks that differ in an operation are told on every
// rank, before anything moves; a rank that dies is named at once. A rank that is stopped in the
// middle of an operation is named a second after the deadline; what it may still write then is the
// buffers of that operation, so do not reuse them while it lives. A process that forks keeps the
// transport; in the child its calls fail with FailedPrecondition, and the arena is not mapped.

#include <memory>
#include <string>

#include "ait/base/clock.h"
#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/transport.h"
#include "ait/comm/world.h"

namespace ait::inline v0 {

class Store;

struct SharedMemoryOptions {
  /// Most that the buffers of one rank may take; address space only, until they are allocated. Zero
  /// takes the memory of the host. Need not be equal on all ranks.
  Bytes arena_capacity{0};
  /// Staging memory per rank for buffers that do not lie in an arena; 64 KiB to 64 MiB, a multiple
  /// of 64 KiB, equal on all ranks.
  Bytes staging = MiB(4);
  /// Is told why a group ended. Outlives the communicators.
  LogSink* log = nullptr;
};

/// Gives `World::FromEnvironment` its transport, for a run whose ranks are all on one host.
/// **Errors.** (of Connect) FailedPrecondition names the ranks that are on other hosts and says how
/// each host is told.
std::shared_ptr<TransportProvider> SharedMemory(SharedMemoryOptions options = {});

/// **Collective. Blocks.** The same for any ranks of one host that share a store: rank r of `size`.
/// `key` is equal on all of them and new for every group. The store is needed until it returns.
StatusOr<std::unique_ptr<Transport>> JoinSharedMemory(Store& store, std::string key, Rank rank,
                                                      WorldSize size, Deadline deadline,
                                                      const SharedMemoryOptions& options = {});

/// What tells hosts apart: the boot id of the kernel and the network namespace of this process.
/// Equal for two processes exactly if they can share memory and reach each other's sockets by
/// abstract names. **Errors.** FailedPrecondition if /proc is not readable.
StatusOr<std::string> HostIdentity();

}  // namespace ait::inline v0

#endif  // AIT_COMM_SHARED_MEMORY_H_
