// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/thread_group.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "ait/comm/transport.h"
#include "comm/thread_hub.h"
#include "comm/thread_transport.h"

namespace ait::inline v0 {
namespace {

using internal::ThreadHub;

/// One rank's end of a hub, with the thread that plays it; the thread begins with the first
/// operation.
class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadHub> hub, Rank rank, std::vector<Rank> survived = {})
      : hub_(std::move(hub)), rank_(rank), survived_(std::move(survived)) {}

  ~ThreadTransport() override {
    hub_->Leave(rank_);
    if (!thread_.joinable()) return;
    if (thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();  // a callback dropped the communicator; the thread owns what it needs
    } else {
      thread_.join();
    }
  }

  std::string_view name() const override { return "threads"; }
  Rank rank() const override { return rank_; }
  WorldSize size() const override { return hub_->size(); }

  bool reports_reduced() const override { return true; }
  std::uint64_t Locate(const void* data, std::size_t) const override {
    return reinterpret_cast<std::uintptr_t>(data);
  }
  void* Reach(Rank, std::uint64_t where, std::size_t) const override {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(where));  // NOLINT: one process
  }

  Work Start(Operation operation) override {
    try {
      if (!thread_.joinable()) {
        thread_ = std::thread([hub = hub_, rank = rank_] { hub->Run(rank); });
      }
    } catch (const std::system_error& error) {
      return Work(ResourceExhaustedError("rank ", rank_, ": ", operation.Describe(),
                                         ": its thread could not be started: ", error.what()));
    }
    return hub_->Start(rank_, std::move(operation));
  }

  StatusOr<std::unique_ptr<Transport>> Subgroup(std::span<const Rank> members, std::uint64_t id,
                                                Deadline) override {
    const auto self = std::find(members.begin(), members.end(), rank_);
    if (self == members.end()) {
      return InvalidArgumentError("rank ", rank_, " is no member of the subgroup that it asks for");
    }
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<ThreadHub> hub,
                         hub_->Subgroup(WorldSize(static_cast<int>(members.size())), id));
    return std::make_unique<ThreadTransport>(std::move(hub),
                                             Rank(static_cast<int>(self - members.begin())));
  }

  void Abort(const Status& reason) override { hub_->Abort(reason); }

  StatusOr<std::unique_ptr<Transport>> Survivors(Deadline deadline) override {
    AIT_ASSIGN_OR_RETURN(ThreadHub::Survived left, hub_->Survivors(rank_, deadline));
    const auto self = std::find(left.members.begin(), left.members.end(), rank_);
    const Rank rank(static_cast<int>(self - left.members.begin()));
    return std::make_unique<ThreadTransport>(std::move(left.hub), rank, std::move(left.members));
  }
  std::vector<Rank> survived() const override { return survived_; }

 private:
  std::shared_ptr<ThreadHub> hub_;
  Rank rank_;
  std::vector<Rank> survived_;
  std::thread thread_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> internal::MakeThreadTransports(WorldSize size) {
  const auto hub = std::make_shared<ThreadHub>(size);
  std::vector<std::unique_ptr<Transport>> ranks;
  for (int rank = 0; rank < size.value(); ++rank) {
    ranks.push_back(std::make_unique<ThreadTransport>(hub, Rank(rank)));
  }
  return ranks;
}

std::vector<std::shared_ptr<Communicator>> MakeThreadGroup(WorldSize size,
                                                           CommunicatorOptions options) {
  if (size != WorldSize(1)) options.recorder = nullptr;
  std::vector<std::shared_ptr<Communicator>> ranks;
  for (auto& transport : internal::MakeThreadTransports(size)) {
    ranks.push_back(std::make_shared<Communicator>(std::move(transport), options));
  }
  return ranks;
}

}  // namespace ait::inline v0
