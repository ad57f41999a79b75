// SPDX-License-Identifier: Apache-2.0
#include "comm/pair_transport.h"

#include <utility>
#include <vector>

#include "ait/comm/tcp_store.h"
#include "comm/own_thread.h"

namespace ait::inline v0::internal {
namespace {

class PairTransport final : public Transport {
 public:
  PairTransport(std::shared_ptr<PairHub> hub, std::shared_ptr<PairGroup> group)
      : store_(group->options().store), hub_(std::move(hub)), group_(std::move(group)) {}

  ~PairTransport() override {
    // A callback on one of the threads that end here may have dropped the communicator.
    RunOffOwnThreads(
        [store = std::move(store_), hub = std::move(hub_), group = std::move(group_)]() mutable {
          group->Close();
          // In this order: the hub uses the store, and its thread may hold the group for a moment.
          group.reset();
          hub.reset();
          store.reset();
        });
  }

  std::string_view name() const override { return group_->options().engine; }
  Rank rank() const override { return group_->options().rank; }
  WorldSize size() const override {
    return WorldSize(static_cast<int>(group_->options().members.size()));
  }
  Work Start(Operation operation) override { return group_->Start(std::move(operation)); }
  void Abort(const Status& reason) override { group_->Abort(reason); }

  StatusOr<std::unique_ptr<Transport>> Subgroup(std::span<const Rank> members, std::uint64_t id,
                                                Deadline deadline) override {
    PairGroup::Options options = group_->options();
    options.name = StrCat(options.name, ".", id);
    const std::vector<Rank> parents = std::exchange(options.members, {});
    for (const Rank member : members) {
      if (member == rank()) options.rank = Rank(static_cast<int>(options.members.size()));
      options.members.push_back(parents[static_cast<std::size_t>(member.value())]);
    }
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<PairGroup> group,
                         PairGroup::Create(*hub_, std::move(options), deadline));
    return std::make_unique<PairTransport>(hub_, std::move(group));
  }

 private:
  std::shared_ptr<TcpStore> store_;
  std::shared_ptr<PairHub> hub_;
  std::shared_ptr<PairGroup> group_;
};

}  // namespace

StatusOr<std::unique_ptr<Transport>> ConnectPairs(PairGroup::Options options, Deadline deadline) {
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<PairHub> hub, PairHub::Create(options.store));
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<PairGroup> group,
                       PairGroup::Create(*hub, std::move(options), deadline));
  return std::make_unique<PairTransport>(std::move(hub), std::move(group));
}

}  // namespace ait::inline v0::internal
