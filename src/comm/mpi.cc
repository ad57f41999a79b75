// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/mpi.h"

#include <mpi.h>

#include <utility>

#include "ait/comm/store.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"
#include "comm/mpi_link.h"
#include "comm/mpi_session.h"
#include "comm/pair_transport.h"

namespace ait::inline v0 {
namespace {

using internal::MpiSession;
using internal::PairGroup;

// Tags of a link are below this.
constexpr int kTags = 1 << 30;

class MpiProvider final : public TransportProvider {
 public:
  explicit MpiProvider(MpiOptions options) : options_(options) {}

  std::string_view name() const override { return "mpi"; }

  StatusOr<std::unique_ptr<Store>> JoinAgentStore(const LaunchInfo&, Deadline) override {
    return UnimplementedError(
        "the transport over MPI cannot join the store of torchrun's agent; start the program by "
        "mpirun, or use Gloo() of ait/tensor/gloo.h");
  }

  StatusOr<std::unique_ptr<Transport>> Connect(const LaunchInfo& launch,
                                               std::shared_ptr<TcpStore> store,
                                               Deadline deadline) override {
    if (options_.segment < KiB(4) || options_.segment > MiB(64)) {
      return InvalidArgumentError("MpiOptions: a segment of ", options_.segment,
                                  " bytes; allowed are 4 KiB to 64 MiB");
    }
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<MpiSession> session, MpiSession::Join());
    AIT_RETURN_IF_ERROR(CheckWorld(launch, *session));
    PairGroup::Options group{
        .engine = "mpi",
        .connect =
            [session = std::move(session)](const PairGroup::Options& own, Deadline until) {
              return internal::ConnectMpi(session, own.store, own.name, own.members, own.rank,
                                          until);
            },
        .store = std::move(store),
        .name = "world",
        .rank = launch.rank,
        .segment = options_.segment,
        .log = options_.log};
    for (int rank = 0; rank < launch.size.value(); ++rank) group.members.push_back(Rank(rank));
    return internal::ConnectPairs(std::move(group), deadline);
  }

 private:
  static Status CheckWorld(const LaunchInfo& launch, const MpiSession& session) {
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank != launch.rank.value() || size != launch.size.value()) {
      return FailedPreconditionError("for MPI this process is rank ", rank, " of ", size,
                                     ", for the world rank ", launch.rank, " of ", launch.size,
                                     "; start the program by mpirun alone");
    }
    if (session.largest_tag() < kTags) {
      return FailedPreconditionError("this MPI has tags up to ", session.largest_tag(),
                                     "; ait needs them up to ", kTags);
    }
    return OkStatus();
  }

  MpiOptions options_;
};

}  // namespace

bool HasMpi() { return true; }

std::shared_ptr<TransportProvider> Mpi(MpiOptions options) {
  return std::make_shared<MpiProvider>(options);
}

}  // namespace ait::inline v0
