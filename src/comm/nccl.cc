// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/nccl.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "ait/comm/tcp_store.h"
#include "comm/nccl_group.h"
#include "comm/nccl_join.h"
#include "comm/operation_compare.h"
#include "comm/own_thread.h"

namespace ait::inline v0 {
namespace {

using internal::NcclBoard;
using internal::NcclComm;
using internal::NcclGroup;
using internal::NcclLibrary;
using internal::NcclShared;

constexpr std::chrono::milliseconds kPause{1};
constexpr Bytes kMostStaging = GiB(4);

class NcclTransport final : public Transport {
 public:
  explicit NcclTransport(std::shared_ptr<NcclGroup> group) : group_(std::move(group)) {}

  ~NcclTransport() override {
    // A callback on the thread that ends here may have dropped the communicator.
    internal::RunOffOwnThreads([group = std::move(group_)] { group->Close(); });
  }

  std::string_view name() const override { return "nccl"; }
  Rank rank() const override { return Rank(group_->rank()); }
  WorldSize size() const override { return WorldSize(group_->size()); }
  Work Start(Operation operation) override { return group_->Start(std::move(operation)); }
  void Abort(const Status& reason) override { group_->Abort(reason); }
  MemoryHandle memory() override { return group_->shared().memory; }
  bool carries_alone() const override { return true; }

  StatusOr<std::unique_ptr<Transport>> Subgroup(std::span<const Rank> members, std::uint64_t id,
                                                Deadline deadline) override {
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<NcclGroup> group, group_->Split(members, id, deadline));
    return std::make_unique<NcclTransport>(std::move(group));
  }

  Status StandAside(std::uint64_t id, Deadline deadline) override {
    return group_->Split({}, id, deadline).status();
  }

 private:
  std::shared_ptr<NcclGroup> group_;
};

Status CheckOptions(const NcclOptions& options) {
  if (options.device < -1) {
    return InvalidArgumentError("NcclOptions: device ", options.device,
                                "; allowed are 0 and more, or -1 for the default");
  }
  if (options.host_staging < Bytes(0) || options.host_staging > kMostStaging) {
    return InvalidArgumentError("NcclOptions: host_staging of ", options.host_staging,
                                " bytes; allowed are 0 to ", kMostStaging);
  }
  if (options.abort_timeout.count() <= 0) {
    return InvalidArgumentError("NcclOptions: an abort_timeout of ", options.abort_timeout.count(),
                                " ms is not positive");
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<const NcclShared>> MakeShared(const NcclOptions& options) {
  AIT_RETURN_IF_ERROR(CheckOptions(options));
  auto shared = std::make_shared<NcclShared>();
  NcclComm::Place& place = shared->place;
  place.devices = options.devices != nullptr ? options.devices : DeviceRuntime::Open();
  AIT_RETURN_IF_ERROR(Annotate(place.devices->status(), "NCCL needs a GPU"));
  AIT_ASSIGN_OR_RETURN(place.library, NcclLibrary::Open(options.library));
  if (options.device >= 0) {
    place.device = Device(options.device);
  } else {
    AIT_ASSIGN_OR_RETURN(place.device, place.devices->current());
  }
  if (place.device.value() >= place.devices->count()) {
    return InvalidArgumentError("NCCL: device ", place.device, " is none of the ",
                                place.devices->count(),
                                " that this process sees; start at most one rank per device");
  }
  AIT_ASSIGN_OR_RETURN(shared->arena, internal::NcclArena::Create(place.devices, place.device,
                                                                  options.host_staging));
  shared->memory =
      std::make_shared<internal::NcclMemory>(place.library, place.devices, place.device);
  shared->producer_stream = options.producer_stream;
  shared->abort_timeout = options.abort_timeout;
  shared->log = options.log;
  return shared;
}

/// Ranks 0 … size - 1 that have not set "here/<group>/<rank>".
std::vector<int> MissingRanks(NcclBoard& board) {
  std::vector<int> missing;
  for (int rank = 0; rank < static_cast<int>(board.options().members.size()); ++rank) {
    const StatusOr<bool> here = board.store().Contains(StrCat(board.Key("here"), "/", rank));
    if (here.ok() && !*here) missing.push_back(rank);
  }
  return missing;
}

/// Why to stop waiting for the others: one gave up or died, or the time is over.
Status GoOnJoining(NcclBoard& board, Deadline deadline) {
  board.Look(NcclBoard::When::kInTime);
  if (board.end()) return *board.end();
  if (const auto death = board.Death()) return *death;
  if (!deadline.expired()) return OkStatus();
  const std::vector<int> missing = MissingRanks(board);
  if (missing.empty()) {
    return DeadlineExceededError(
        "all ranks came, but NCCL did not connect them in time; see NCCL_DEBUG=INFO, and check "
        "NCCL_SOCKET_IFNAME on every host");
  }
  return DeadlineExceededError(internal::RankList(missing), " did not join in time");
}

/// Rank 0 makes the id of the group; the others wait for it. It carries the version of NCCL, which
/// would hang if it were not the same.
StatusOr<ncclUniqueId> ShareId(NcclBoard& board, const NcclLibrary& library, Deadline deadline) {
  const std::string key = board.Key("id");
  ncclUniqueId id;
  if (board.options().rank == 0) {
    AIT_RETURN_IF_ERROR(library.Check(library.ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId"));
    std::string value(id.internal, sizeof(id.internal));
    AIT_RETURN_IF_ERROR(board.store().Set(key, value + library.Describe()));
    return id;
  }
  std::string value;
  while (true) {
    AIT_ASSIGN_OR_RETURN(const bool is_set, board.store().Contains(key));
    if (is_set) {
      AIT_ASSIGN_OR_RETURN(value, board.store().Get(key, deadline));
      break;
    }
    AIT_RETURN_IF_ERROR(GoOnJoining(board, deadline));
    std::this_thread::sleep_for(kPause);
  }
  if (value.size() <= sizeof(id.internal)) {
    return InternalError("the store has ", value.size(), " bytes under ", key);
  }
  const std::string theirs = value.substr(sizeof(id.internal));
  const auto version = [](const std::string& text) { return text.substr(0, text.find(" (")); };
  if (version(theirs) != version(library.Describe())) {
    return FailedPreconditionError("rank 0 uses ", theirs, " and rank ", board.options().rank, " ",
                                   library.Describe(), "; give all ranks the same NCCL");
  }
  std::memcpy(id.internal, value.data(), sizeof(id.internal));
  return id;
}

StatusOr<std::shared_ptr<NcclGroup>> Connect(NcclBoard& board, const NcclOptions& options,
                                             Deadline deadline) {
  const int rank = board.options().rank;
  const int size = static_cast<int>(board.options().members.size());
  AIT_RETURN_IF_ERROR(board.store().Set(StrCat(board.Key("here"), "/", rank), ""));
  AIT_ASSIGN_OR_RETURN(const std::shared_ptr<const NcclShared> shared, MakeShared(options));
  AIT_ASSIGN_OR_RETURN(const ncclUniqueId id, ShareId(board, *shared->place.library, deadline));
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<NcclComm> comm,
                       NcclComm::Begin(shared->place, id, rank, size));
  const Status connected = comm->Settle(ncclInProgress, "ncclCommInitRankConfig",
                                        [&] { return GoOnJoining(board, deadline); });
  if (!connected.ok()) {
    comm->Abort();
    if (comm->AwaitEnd(Deadline::After(options.abort_timeout))) return connected;
    return Status(connected.code(),
                  StrCat(Message(connected), "; NCCL has not let go of the device after ",
                         options.abort_timeout.count(), " ms: end this process"));
  }
  return NcclGroup::Create(shared, board.options(), std::move(comm));
}

class NcclProvider final : public TransportProvider {
 public:
  explicit NcclProvider(NcclOptions options) : options_(std::move(options)) {}

  std::string_view name() const override { return "nccl"; }

  StatusOr<std::unique_ptr<Store>> JoinAgentStore(const LaunchInfo& launch,
                                                  Deadline deadline) override {
    if (options_.agent != nullptr) return options_.agent->JoinAgentStore(launch, deadline);
    return FailedPreconditionError(
        "torchrun's agent serves the store, in libtorch's own protocol; give NcclOptions::agent, "
        "such as Gloo() of ait/tensor/gloo.h");
  }

  StatusOr<std::unique_ptr<Transport>> Connect(const LaunchInfo& launch,
                                               std::shared_ptr<TcpStore> store,
                                               Deadline deadline) override {
    NcclOptions options = options_;
    if (options.device < 0) options.device = launch.local_rank.value();
    TcpStore* const raw = store.get();
    return internal::JoinNcclWith({.store = std::move(store),
                                   .departed = [raw] { return raw->departed(); },
                                   .name = "nccl",
                                   .rank = launch.rank.value()},
                                  launch.size, deadline, options);
  }

 private:
  const NcclOptions options_;
};

}  // namespace

namespace internal {

StatusOr<std::unique_ptr<Transport>> JoinNcclWith(NcclBoard::Options board_options, WorldSize size,
                                                  Deadline deadline, const NcclOptions& options) {
  for (int r = 0; r < size.value(); ++r) board_options.members.push_back(Rank(r));
  NcclBoard board(std::move(board_options));
  StatusOr<std::shared_ptr<NcclGroup>> group = Connect(board, options, deadline);
  if (group.ok()) return std::make_unique<NcclTransport>(*std::move(group));
  const Status failed = Annotate(group.status(), StrCat("rank ", board.options().rank));
  if (!board.end()) board.PublishEnd(failed);  // the others need not wait
  return failed;
}

}  // namespace internal

std::shared_ptr<TransportProvider> Nccl(NcclOptions options) {
  return std::make_shared<NcclProvider>(std::move(options));
}

StatusOr<std::unique_ptr<Transport>> JoinNccl(Store& store, std::string key, Rank rank,
                                              WorldSize size, Deadline deadline,
                                              const NcclOptions& options) {
  if (size.value() < 1 || rank.value() < 0 || rank.value() >= size.value()) {
    return InvalidArgumentError("JoinNccl: rank ", rank, " of ", size,
                                "; allowed are 0 to size - 1");
  }
  NcclBoard::Options board{.store = std::shared_ptr<Store>(&store, [](Store*) {}),
                           .name = std::move(key),
                           .rank = rank.value()};
  if (auto* const tcp = dynamic_cast<TcpStore*>(&store)) {
    board.departed = [tcp] { return tcp->departed(); };
  }
  return internal::JoinNcclWith(std::move(board), size, deadline, options);
}

StatusOr<std::string> DescribeNccl(const NcclOptions& options) {
  AIT_ASSIGN_OR_RETURN(const std::shared_ptr<NcclLibrary> library,
                       NcclLibrary::Open(options.library));
  return library->Describe();
}

}  // namespace ait::inline v0
