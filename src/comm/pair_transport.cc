// SPDX-License-Identifier: Apache-2.0
#include "comm/pair_transport.h"

#include <utility>
#include <vector>

#include "ait/comm/tcp_store.h"
#include "comm/own_thread.h"
#include "comm/survivors.h"

namespace ait::inline v0::internal {
namespace {

class PairTransport final : public Transport {
 public:
  PairTransport(std::shared_ptr<PairHub> hub, std::shared_ptr<PairGroup> group,
                std::vector<Rank> survived = {})
      : store_(group->options().store),
        hub_(std::move(hub)),
        group_(std::move(group)),
        survived_(std::move(survived)),
        agreement_({.store = store_,
                    .name = group_->options().name,
                    .rank = group_->options().rank,
                    .members = group_->options().members,
                    .has_left = [raw = group_.get()](Rank rank) { return raw->HasLeft(rank); }}) {}

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
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<PairGroup> group,
                         Connect(members, StrCat(".", id), deadline));
    return std::make_unique<PairTransport>(hub_, std::move(group));
  }

  StatusOr<std::unique_ptr<Transport>> Survivors(Deadline deadline) override {
    std::shared_ptr<PairGroup> group;
    const auto drop = [&] {
      if (group != nullptr) group->Close();
      group.reset();
    };
    StatusOr<std::vector<Rank>> members = agreement_.Run(
        [&](const std::vector<Rank>& left, std::uint64_t attempt, Deadline until) {
          drop();
          auto made = Connect(left, StrCat(".survivors-", attempt), until);
          if (made.ok()) group = *std::move(made);
          return made.status();
        },
        deadline);
    if (members.ok())
      return std::make_unique<PairTransport>(hub_, std::move(group), *std::move(members));
    drop();
    return members.status();
  }
  std::vector<Rank> survived() const override { return survived_; }

 private:
  StatusOr<std::shared_ptr<PairGroup>> Connect(std::span<const Rank> members,
                                               const std::string& suffix, Deadline deadline) {
    PairGroup::Options options = group_->options();
    options.name += suffix;
    const std::vector<Rank> parents = std::exchange(options.members, {});
    for (const Rank member : members) {
      if (member == rank()) options.rank = Rank(static_cast<int>(options.members.size()));
      options.members.push_back(parents[static_cast<std::size_t>(member.value())]);
    }
    return PairGroup::Create(*hub_, std::move(options), deadline);
  }

  std::shared_ptr<TcpStore> store_;
  std::shared_ptr<PairHub> hub_;
  std::shared_ptr<PairGroup> group_;
  const std::vector<Rank> survived_;
  SurvivorAgreement agreement_;
};

}  // namespace

StatusOr<std::unique_ptr<Transport>> ConnectPairs(PairGroup::Options options, Deadline deadline) {
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<PairHub> hub, PairHub::Create(options.store));
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<PairGroup> group,
                       PairGroup::Create(*hub, std::move(options), deadline));
  return std::make_unique<PairTransport>(std::move(hub), std::move(group));
}

}  // namespace ait::inline v0::internal
