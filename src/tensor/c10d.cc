// SPDX-License-Identifier: Apache-2.0
// Backends of c10d as transports.
#include "ait/tensor/c10d.h"

#include "tensor/c10d_collectives.h"
// Keep the order.
#include <memory>
#include <utility>

#include "ait/comm/tcp_store.h"
#include "comm/pair_transport.h"
#include "tensor/catch.h"
#include "tensor/gloo_store.h"

namespace ait::inline v0 {
namespace {

using internal::C10dCollectives;
using internal::C10dLink;
using internal::PairGroup;
using internal::PairLink;

StatusOr<std::unique_ptr<PairLink>> LinkOf(C10dBackendPtr backend,
                                           const PairGroup::Options& group) {
  const auto size = static_cast<int>(group.members.size());
  if (backend == nullptr) {
    return InvalidArgumentError("rank ", group.rank, ": the group \"", group.name,
                                "\" was given no backend of c10d");
  }
  if (backend->getRank() != group.rank.value() || backend->getSize() != size) {
    return InvalidArgumentError("the backend of the group \"", group.name, "\" is rank ",
                                backend->getRank(), " of ", backend->getSize(),
                                "; it has to be rank ", group.rank, " of ", size);
  }
  return std::make_unique<C10dLink>(std::move(backend));
}

StatusOr<std::unique_ptr<PairLink>> MakeLink(const C10dFactory& make,
                                             const PairGroup::Options& group, Deadline deadline) {
  if (!make) {
    return UnimplementedError("rank ", group.rank, ": nothing makes the backend of the group \"",
                              group.name, "\"; give FromBackend a factory");
  }
  C10dBackendPtr backend;
  const Status made = internal::CatchAsStatus([&] {
    backend = make({.name = group.name, .rank = group.rank, .members = group.members},
                   internal::MakeC10dStore(group.store, StrCat("c10d/", group.name, "/"),
                                           group.members, deadline));
  });
  if (!made.ok()) {
    return Annotate(made, StrCat("rank ", group.rank, " cannot make the backend of the group \"",
                                 group.name, "\""));
  }
  return LinkOf(std::move(backend), group);
}

/// Without `connect` and members.
PairGroup::Options OptionsOf(std::shared_ptr<TcpStore> store, Rank rank, WorldSize size,
                             const C10dOptions& options) {
  PairGroup::Options group{.engine = "c10d",
                           .store = std::move(store),
                           .name = "world",
                           .rank = rank,
                           .segment = MiB(1),
                           .log = options.log};
  for (int member = 0; member < size.value(); ++member) group.members.push_back(Rank(member));
  return group;
}

void RunCollectivesOf(PairGroup::Options& group, const C10dOptions& options) {
  group.collectives = [options](const PairGroup::Options& own, PairLink& link) {
    return std::make_unique<C10dCollectives>(static_cast<C10dLink&>(link), own.rank,
                                             WorldSize(static_cast<int>(own.members.size())),
                                             options);
  };
}

class C10dProvider final : public TransportProvider {
 public:
  C10dProvider(C10dFactory make, C10dOptions options) : make_(std::move(make)), options_(options) {}

  std::string_view name() const override { return "c10d"; }

  StatusOr<std::unique_ptr<Store>> JoinAgentStore(const LaunchInfo& launch,
                                                  Deadline deadline) override {
    return internal::JoinAgent(launch, deadline);
  }

  StatusOr<std::unique_ptr<Transport>> Connect(const LaunchInfo& launch,
                                               std::shared_ptr<TcpStore> store,
                                               Deadline deadline) override {
    PairGroup::Options group = OptionsOf(std::move(store), launch.rank, launch.size, options_);
    group.connect = [make = make_](const PairGroup::Options& own, Deadline until) {
      return MakeLink(make, own, until);
    };
    RunCollectivesOf(group, options_);
    return internal::ConnectPairs(std::move(group), deadline);
  }

 private:
  C10dFactory make_;
  C10dOptions options_;
};

}  // namespace

std::shared_ptr<TransportProvider> C10d(C10dFactory make, C10dOptions options) {
  return std::make_shared<C10dProvider>(std::move(make), options);
}

StatusOr<std::unique_ptr<Transport>> FromBackend(C10dBackendPtr backend,
                                                 std::shared_ptr<TcpStore> store, C10dFactory make,
                                                 C10dOptions options) {
  if (backend == nullptr || store == nullptr) {
    return InvalidArgumentError("FromBackend needs a backend and a store that its ranks joined");
  }
  PairGroup::Options group =
      OptionsOf(std::move(store), Rank(backend->getRank()), WorldSize(backend->getSize()), options);
  // The first group takes the backend; those made of it ask for one.
  const auto first = std::make_shared<C10dBackendPtr>(std::move(backend));
  group.connect = [make = std::move(make), first](const PairGroup::Options& own, Deadline until) {
    if (*first != nullptr) return LinkOf(std::exchange(*first, nullptr), own);
    return MakeLink(make, own, until);
  };
  RunCollectivesOf(group, options);
  return internal::ConnectPairs(std::move(group), Deadline::Infinite());
}

}  // namespace ait::inline v0
