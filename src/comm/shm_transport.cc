// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ait/comm/shared_memory.h"
#include "ait/comm/tcp_store.h"
#include "comm/shm_engine.h"
#include "comm/shm_ranks.h"

namespace ait::inline v0 {
namespace internal {
namespace {

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(std::shared_ptr<ShmGroup> group)
      : engine_(std::make_shared<ShmEngine>(std::move(group))) {}
  ~ShmTransport() override { engine_->Leave(); }

  std::string_view name() const override { return "shared-memory"; }
  Rank rank() const override { return Rank(group().rank()); }
  WorldSize size() const override { return WorldSize(group().size()); }
  Work Start(Operation operation) override { return engine_->Start(std::move(operation)); }
  void Abort(const Status& reason) override { engine_->Abort(reason); }
  MemoryHandle memory() override { return group().fabric().arena(); }
  bool reports_reduced() const override { return true; }
  void ForgetPeerPages() override { group().fabric().ForgetPeerPages(); }
  std::uint64_t Locate(const void* data, std::size_t bytes) const override {
    if (bytes == 0) return 0;
    const std::uint64_t where = group().fabric().OffsetOf(data, bytes);
    return where == internal::kForeign ? kOutOfReach : where;
  }
  void* Reach(Rank peer, std::uint64_t where, std::size_t bytes) const override {
    return group().At(peer.value(), where, bytes);
  }
  void Note(std::int64_t step, std::string_view phase) override { group().Note(step, phase); }

  StatusOr<std::unique_ptr<Transport>> Subgroup(std::span<const Rank> members, std::uint64_t id,
                                                Deadline deadline) override {
    AIT_RETURN_IF_ERROR(CheckUsable());
    std::vector<int> ranks;
    for (const Rank member : members) ranks.push_back(member.value());
    return Wrap(group().Subgroup(ranks, id, deadline));
  }

  StatusOr<std::unique_ptr<Transport>> Survivors(Deadline deadline) override {
    AIT_RETURN_IF_ERROR(CheckUsable());
    return Wrap(group().Survivors(deadline));
  }

  std::vector<Rank> survived() const override {
    std::vector<Rank> ranks;
    for (const int rank : group().survived()) ranks.push_back(Rank(rank));
    return ranks;
  }

  ShmEngine& engine() { return *engine_; }

 private:
  ShmGroup& group() const { return engine_->group(); }

  Status CheckUsable() const {
    if (!group().fabric().forked()) return OkStatus();
    return FailedPreconditionError("rank ", rank(),
                                   ": this process was forked from a rank; only the rank itself "
                                   "can use its communicator");
  }

  StatusOr<std::unique_ptr<Transport>> Wrap(StatusOr<std::shared_ptr<ShmGroup>> group) const {
    if (!group.ok()) return Annotate(group.status(), StrCat("rank ", rank()));
    return std::make_unique<ShmTransport>(*std::move(group));
  }

  const std::shared_ptr<ShmEngine> engine_;
};

class SharedMemoryProvider final : public TransportProvider {
 public:
  explicit SharedMemoryProvider(SharedMemoryOptions options) : options_(std::move(options)) {}
  std::string_view name() const override { return "shared-memory"; }

  StatusOr<std::unique_ptr<Store>> JoinAgentStore(const LaunchInfo&, Deadline) override {
    return UnimplementedError(
        "shared memory alone cannot join the store of torchrun's agent; use Automatic() with "
        "Gloo() of ait/tensor/gloo.h, which can, and takes shared memory inside a host");
  }

  StatusOr<std::unique_ptr<Transport>> Connect(const LaunchInfo& launch,
                                               std::shared_ptr<TcpStore> store,
                                               Deadline deadline) override {
    return JoinSharedMemory(*store, "ait/shared-memory", launch.rank, launch.size, deadline,
                            options_);
  }

 private:
  const SharedMemoryOptions options_;
};

}  // namespace

StatusOr<std::vector<std::unique_ptr<Transport>>> MakeShmThreadRanks(
    WorldSize size, const ShmThreadOptions& options) {
  StatusOr<std::vector<std::shared_ptr<ShmFabric>>> fabrics =
      ShmFabric::OfThreads(size, options.shared_memory);
  if (!fabrics.ok()) return fabrics.status();
  const std::shared_ptr<Store> store = MakeProcessStore();
  std::vector<std::unique_ptr<Transport>> ranks(fabrics->size());
  std::vector<Status> statuses(fabrics->size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      StatusOr<std::shared_ptr<ShmGroup>> group =
          ShmGroup::World((*fabrics)[rank], *store, "threads",
                          Deadline::After(std::chrono::seconds(30)), options.start);
      statuses[rank] = group.status();
      if (!group.ok()) return;
      auto transport = std::make_unique<ShmTransport>(*std::move(group));
      transport->engine().set_check_signatures(options.check_signatures);
      ranks[rank] = std::move(transport);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) AIT_RETURN_IF_ERROR(status);
  return ranks;
}

void SetCheckSignatures(Transport& shared_memory, bool check) {
  static_cast<ShmTransport&>(shared_memory).engine().set_check_signatures(check);
}

void SetPhaseHook(Transport& shared_memory, std::function<void(ShmPhase)> hook) {
  static_cast<ShmTransport&>(shared_memory).engine().set_phase_hook(std::move(hook));
}

}  // namespace internal

StatusOr<std::unique_ptr<Transport>> JoinSharedMemory(Store& store, std::string key, Rank rank,
                                                      WorldSize size, Deadline deadline,
                                                      const SharedMemoryOptions& options) {
  StatusOr<std::shared_ptr<internal::ShmFabric>> fabric =
      internal::ShmFabric::Join(store, key, rank, size, deadline, options);
  if (!fabric.ok()) return Annotate(fabric.status(), StrCat("rank ", rank, ": shared memory"));
  StatusOr<std::shared_ptr<internal::ShmGroup>> group =
      internal::ShmGroup::World(*std::move(fabric), store, key, deadline);
  if (!group.ok()) return Annotate(group.status(), StrCat("rank ", rank, ": shared memory"));
  return std::make_unique<internal::ShmTransport>(*std::move(group));
}

std::shared_ptr<TransportProvider> SharedMemory(SharedMemoryOptions options) {
  return std::make_shared<internal::SharedMemoryProvider>(std::move(options));
}

}  // namespace ait::inline v0
