// SPDX-License-Identifier: Apache-2.0
// The transport over MPI in a build without it.
#include "ait/comm/mpi.h"
#include "ait/comm/store.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"

namespace ait::inline v0 {
namespace {

Status NoMpi() {
  return UnimplementedError(
      "this build of ait has no MPI; install its development files (Debian: libopenmpi-dev) and "
      "configure with -DAIT_WITH_MPI=ON");
}

class NoMpiProvider final : public TransportProvider {
 public:
  std::string_view name() const override { return "mpi"; }
  StatusOr<std::unique_ptr<Store>> JoinAgentStore(const LaunchInfo&, Deadline) override {
    return NoMpi();
  }
  StatusOr<std::unique_ptr<Transport>> Connect(const LaunchInfo&, std::shared_ptr<TcpStore>,
                                               Deadline) override {
    return NoMpi();
  }
};

}  // namespace

bool HasMpi() { return false; }

std::shared_ptr<TransportProvider> Mpi(MpiOptions) { return std::make_shared<NoMpiProvider>(); }

}  // namespace ait::inline v0
