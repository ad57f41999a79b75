// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/hierarchical.h"

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "ait/comm/store.h"
#include "comm/hierarchical_group.h"
#include "comm/own_thread.h"

namespace ait::inline v0 {
namespace {

using internal::HierarchicalGroup;
using internal::HostLayout;
using internal::Line;
using internal::PatientThread;

constexpr std::string_view kName = "hierarchical";

// Numbers of the groups of columns, apart from those that a Communicator gives.
constexpr std::uint64_t kColumnId = std::uint64_t{1} << 63;

/// A group of a hierarchy that needs only one of its transports: one host, or one rank on each.
class OneLevel final : public Transport {
 public:
  explicit OneLevel(std::unique_ptr<Transport> only) : only_(std::move(only)) {}

  std::string_view name() const override { return kName; }
  Rank rank() const override { return only_->rank(); }
  WorldSize size() const override { return only_->size(); }
  Work Start(Operation operation) override { return only_->Start(std::move(operation)); }
  void Abort(const Status& reason) override { only_->Abort(reason); }
  MemoryHandle memory() override { return only_->memory(); }
  void Note(std::int64_t step, std::string_view phase) override { only_->Note(step, phase); }
  StatusOr<std::unique_ptr<Transport>> Subgroup(std::span<const Rank> members, std::uint64_t id,
                                                Deadline deadline) override {
    AIT_ASSIGN_OR_RETURN(auto made, only_->Subgroup(members, id, deadline));
    return std::make_unique<OneLevel>(std::move(made));
  }
  StatusOr<std::unique_ptr<Transport>> Survivors(Deadline deadline) override {
    AIT_ASSIGN_OR_RETURN(auto made, only_->Survivors(deadline));
    return std::make_unique<OneLevel>(std::move(made));
  }
  std::vector<Rank> survived() const override { return only_->survived(); }

 private:
  std::unique_ptr<Transport> only_;
};

class HierarchicalTransport final : public Transport {
 public:
  /// Makes the group of the columns, and with it the whole.
  static StatusOr<std::unique_ptr<Transport>> Create(std::shared_ptr<PatientThread> patient,
                                                     HierarchicalGroup::Options options,
                                                     std::unique_ptr<Transport> inside,
                                                     std::unique_ptr<Transport> all,
                                                     Deadline deadline) {
    const auto rank = static_cast<std::size_t>(options.rank.value());
    const int local = options.layout.local_of[rank];
    std::unique_ptr<Transport> column;
    if (local < options.layout.width) {
      std::vector<Rank> members;
      for (const auto& host : options.layout.hosts) {
        members.push_back(Rank(host[static_cast<std::size_t>(local)]));
      }
      AIT_ASSIGN_OR_RETURN(
          column, all->Subgroup(members, kColumnId | static_cast<std::uint64_t>(local), deadline));
    }
    // Nobody goes on, and perhaps fails, before all have joined. A reason that is coded is one of the
    // group: somebody has seen all of them here, and gone on.
    const Status met =
        all->Start({.kind = OperationKind::kBarrier, .label = "join hosts", .deadline = deadline})
            .Wait();
    if (!met.ok() && !internal::DecodeReason(met)) return met;
    AIT_ASSIGN_OR_RETURN(
        std::shared_ptr<HierarchicalGroup> group,
        HierarchicalGroup::Create(*patient, std::move(options),
                                  {std::move(inside), std::move(column), std::move(all)}));
    return std::unique_ptr<Transport>(
        new HierarchicalTransport(std::move(patient), std::move(group)));
  }

  ~HierarchicalTransport() override {
    auto close = [patient = std::move(patient_), group = std::move(group_)]() mutable {
      group->Close();
      group.reset();  // before the thread that it uses
      patient.reset();
    };
    if (!HierarchicalGroup::EndsHere()) {
      internal::RunOffOwnThreads(std::move(close));
      return;
    }
    // A callback of a message, on whatever thread tells the groups inside of an end. Without a
    // thread what is held is never released.
    auto held = std::make_unique<std::function<void()>>(std::move(close));
    auto elsewhere = internal::StartOwnThread("the end of a group", [raw = held.get()] {
      const std::unique_ptr<std::function<void()>> owned(raw);
      (*owned)();
    });
    held.release();
    if (elsewhere.ok()) elsewhere->detach();
  }

  std::string_view name() const override { return kName; }
  Rank rank() const override { return group_->options().rank; }
  WorldSize size() const override { return WorldSize(group_->options().layout.size()); }
  Work Start(Operation operation) override { return group_->Start(std::move(operation)); }
  void Abort(const Status& reason) override { group_->Abort(reason); }
  MemoryHandle memory() override { return group_->memory(); }
  void Note(std::int64_t step, std::string_view phase) override { group_->Note(step, phase); }

  StatusOr<std::unique_ptr<Transport>> Subgroup(std::span<const Rank> members, std::uint64_t id,
                                                Deadline deadline) override {
    const HierarchicalGroup::Options& own = group_->options();
    HierarchicalGroup::Options options = own;
    options.name = StrCat(own.name, ".", id);
    options.members.clear();
    std::vector<int> hosts;
    std::vector<Rank> local;  // the members of this host, by their numbers inside
    const int here = own.layout.host_of[static_cast<std::size_t>(rank().value())];
    for (const Rank member : members) {
      const auto m = static_cast<std::size_t>(member.value());
      if (member == rank()) options.rank = Rank(static_cast<int>(options.members.size()));
      options.members.push_back(own.members[m]);
      hosts.push_back(own.layout.host_of[m]);
      if (hosts.back() == here) local.push_back(Rank(own.layout.local_of[m]));
    }
    options.layout = HostLayout::Of(hosts);
    const bool is_one_host = options.layout.host_count() == 1;
    if (is_one_host || options.layout.host_count() == options.layout.size()) {
      const Line line = is_one_host && members.size() > 1 ? Line::kInside : Line::kAll;
      AIT_ASSIGN_OR_RETURN(
          auto only, group_->Subgroup(line, line == Line::kInside ? local : members, id, deadline));
      return std::make_unique<OneLevel>(std::move(only));
    }
    std::unique_ptr<Transport> inside;
    if (local.size() > 1) {
      AIT_ASSIGN_OR_RETURN(inside, group_->Subgroup(Line::kInside, local, id, deadline));
    }
    AIT_ASSIGN_OR_RETURN(auto all, group_->Subgroup(Line::kAll, members, id, deadline));
    return Create(patient_, std::move(options), std::move(inside), std::move(all), deadline);
  }

 private:
  HierarchicalTransport(std::shared_ptr<PatientThread> patient,
                        std::shared_ptr<HierarchicalGroup> group)
      : patient_(std::move(patient)), group_(std::move(group)) {}

  std::shared_ptr<PatientThread> patient_;
  std::shared_ptr<HierarchicalGroup> group_;
};

}  // namespace

StatusOr<std::unique_ptr<Transport>> JoinHosts(HostGroups groups, Deadline deadline,
                                               const HierarchicalTuning& tuning) {
  if (tuning.chunk < KiB(64) || tuning.chunk > GiB(1)) {
    return InvalidArgumentError("HierarchicalTuning: a chunk of ", tuning.chunk,
                                " bytes; allowed are 64 KiB to 1 GiB");
  }
  if (groups.between == nullptr || groups.store == nullptr) {
    return InvalidArgumentError("HostGroups: the transport between hosts or the store is missing");
  }
  const Rank rank = groups.between->rank();
  const int size = groups.between->size().value();
  if (static_cast<int>(groups.host_of_rank.size()) != size) {
    return InvalidArgumentError("HostGroups: ", groups.host_of_rank.size(),
                                " hosts are named, but the transport between them has ", size,
                                " ranks; name the host of each");
  }
  HierarchicalGroup::Options options{.store = std::move(groups.store),
                                     .name = std::move(groups.key),
                                     .rank = rank,
                                     .layout = HostLayout::Of(groups.host_of_rank),
                                     .tuning = tuning};
  const HostLayout& layout = options.layout;
  const auto self = static_cast<std::size_t>(rank.value());
  const auto local_size = layout.hosts[static_cast<std::size_t>(layout.host_of[self])].size();
  const auto inside_size = groups.inside == nullptr ? 1 : groups.inside->size().value();
  if (static_cast<std::size_t>(inside_size) != local_size ||
      (groups.inside != nullptr && groups.inside->rank() != Rank(layout.local_of[self]))) {
    return InvalidArgumentError("HostGroups: rank ", rank, " is number ", layout.local_of[self],
                                " of ", local_size, " ranks of its host, but the transport inside ",
                                groups.inside == nullptr
                                    ? std::string("is missing")
                                    : StrCat("says ", groups.inside->rank(), " of ", inside_size));
  }
  if (layout.host_count() == 1 && size > 1) {
    return std::make_unique<OneLevel>(std::move(groups.inside));
  }
  if (layout.host_count() == size) return std::make_unique<OneLevel>(std::move(groups.between));
  for (int member = 0; member < size; ++member) options.members.push_back(Rank(member));
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<PatientThread> patient,
                       PatientThread::Create("a hierarchical transport"));
  return HierarchicalTransport::Create(std::move(patient), std::move(options),
                                       std::move(groups.inside), std::move(groups.between),
                                       deadline);
}

}  // namespace ait::inline v0
