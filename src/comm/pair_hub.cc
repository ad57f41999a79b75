// SPDX-License-Identifier: Apache-2.0
#include "comm/pair_hub.h"

#include <algorithm>
#include <chrono>

#include "comm/own_thread.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::chrono::milliseconds kTick{50};

}  // namespace

StatusOr<std::shared_ptr<PairHub>> PairHub::Create(std::shared_ptr<TcpStore> store) {
  std::shared_ptr<PairHub> hub(new PairHub(std::move(store)));
  AIT_ASSIGN_OR_RETURN(hub->watcher_, StartOwnThread("the deadlines of a transport",
                                                     [raw = hub.get()] { raw->Watch(); }));
  AIT_ASSIGN_OR_RETURN(hub->store_user_, StartOwnThread("the failures of a transport",
                                                        [raw = hub.get()] { raw->UseStore(); }));
  hub->store_->OnDeparture([raw = hub.get()](Rank rank) {
    for (const auto& member : raw->Members()) member->RankDied(rank);
  });
  return hub;
}

PairHub::~PairHub() {
  store_->OnDeparture(nullptr);
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  if (store_user_.joinable()) store_user_.join();
}

void PairHub::Add(std::weak_ptr<PairMember> member) {
  std::lock_guard lock(mutex_);
  std::erase_if(members_, [](const auto& old) { return old.expired(); });
  members_.push_back(std::move(member));
}

std::vector<std::shared_ptr<PairMember>> PairHub::Members() {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<PairMember>> alive;
  for (const auto& member : members_) {
    if (auto shared = member.lock()) alive.push_back(std::move(shared));
  }
  return alive;
}

void PairHub::WakeThread() {
  {
    std::lock_guard lock(mutex_);
    wanted_ = true;
  }
  changed_.notify_all();
}

void PairHub::Publish(std::string key, std::string value) {
  {
    std::lock_guard lock(mutex_);
    publications_.emplace_back(std::move(key), std::move(value));
  }
  changed_.notify_all();
}

void PairHub::AskDiagnosis(std::weak_ptr<PairMember> member) {
  {
    std::lock_guard lock(mutex_);
    diagnoses_.push_back(std::move(member));
  }
  changed_.notify_all();
}

bool PairHub::CheckAll() {
  bool busy = false;
  const Time now = SystemClock().now();
  for (const auto& member : Members()) busy |= member->Check(now);
  return busy;
}

void PairHub::Watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wanted_ = false;
    lock.unlock();
    bool busy = CheckAll();
    if (!busy) {
      // From here on `Wake` calls. What began just before is seen by this look.
      awake_ = false;
      busy = CheckAll();
    }
    lock.lock();
    if (busy) {
      awake_ = true;
      changed_.wait_for(lock, kTick, [&] { return stopping_; });
    } else {
      changed_.wait(lock, [&] { return stopping_ || wanted_; });
      awake_ = true;
    }
  }
}

void PairHub::UseStore() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !publications_.empty() || !diagnoses_.empty(); });
    if (!publications_.empty()) {
      const auto [key, value] = std::move(publications_.front());
      publications_.pop_front();
      lock.unlock();
      // If the store is gone, so are those who would read it.
      store_->Set(key, value).IgnoreError();
    } else if (stopping_) {
      return;
    } else {
      const std::shared_ptr<PairMember> member = diagnoses_.front().lock();
      diagnoses_.pop_front();
      lock.unlock();
      if (member != nullptr) member->Diagnose();
    }
    lock.lock();
  }
}

}  // namespace ait::inline v0::internal
