// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_MPI_H_
#define AIT_COMM_MPI_H_

// The transport for sites whose fabric is reached through MPI.
//
//   auto world = World::FromEnvironment({.transport = Mpi()});       // mpirun -n 64 ./train
//
// Take it where MPI drives the network and nothing else of ait does; between hosts of plain
// Ethernet Gloo does as well, inside a host `SharedMemory` is much faster, and none of the others
// needs MPI to be started by mpirun.
//
// MPI only moves bytes between pairs of ranks, by non-blocking messages; the collectives are ait's,
// so sums are in rank order and every wait has a deadline. Counts are 64-bit. Deaths and errors
// travel over World's TcpStore. A rank that waits asks MPI a few hundred times, then yields, then
// sleeps up to half a millisecond at a time.
//
// MPI is one for the whole process. If the program has not initialised it, the first `Mpi()` world
// does, with MPI_THREAD_MULTIPLE, and MPI is finalised when the last communicator has gone; after
// that it cannot come back. A program that initialises MPI itself asks for MPI_THREAD_MULTIPLE and
// finalises after its communicators. MPI_Abort is never called.
//
// **Limits.** mpirun ends all ranks when one dies, unless told otherwise (`--enable-recovery` of
// Open MPI): it is often faster than the message of this library. MPI cannot take back a message
// that has begun; its memory is MPI's until the process ends if the peer is gone. Groups keep their
// communicator of MPI until it is finalised: Open MPI has about 65,000.

#include <memory>

#include "ait/base/log.h"
#include "ait/base/types.h"
#include "ait/comm/world.h"

namespace ait::inline v0 {

struct MpiOptions {
  /// What is sent and summed at a time; 4 KiB to 64 MiB.
  Bytes segment = MiB(1);
  /// Is told why a group ended. Outlives the communicators.
  LogSink* log = nullptr;
};

/// Whether this build has MPI (AIT_WITH_MPI).
bool HasMpi();

/// Gives `World::FromEnvironment` its transport. **Errors.** (of Connect) Unimplemented: the build
/// has no MPI; FailedPrecondition: MPI was initialised without MPI_THREAD_MULTIPLE, was finalised
/// before, or its ranks are not those of the world (start the program by mpirun).
std::shared_ptr<TransportProvider> Mpi(MpiOptions options = {});

}  // namespace ait::inline v0

#endif  // AIT_COMM_MPI_H_
