// SPDX-License-Identifier: Apache-2.0
#include "tensor/gloo_hub.h"

#include <algorithm>
#include <chrono>

namespace ait::inline v0::internal {
namespace {

constexpr std::chrono::milliseconds kTick{50};

}  // namespace

GlooHub::GlooHub(std::shared_ptr<TcpStore> store) : store_(std::move(store)) {
  thread_ = std::thread([this] { Run(); });
  store_->OnDeparture([this](Rank rank) {
    for (const auto& member : Members()) member->RankDied(rank);
  });
}

GlooHub::~GlooHub() {
  store_->OnDeparture(nullptr);
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void GlooHub::Add(std::weak_ptr<GlooMember> member) {
  std::lock_guard lock(mutex_);
  std::erase_if(members_, [](const auto& old) { return old.expired(); });
  members_.push_back(std::move(member));
}

std::vector<std::shared_ptr<GlooMember>> GlooHub::Members() {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<GlooMember>> alive;
  for (const auto& member : members_) {
    if (auto shared = member.lock()) alive.push_back(std::move(shared));
  }
  return alive;
}

void GlooHub::WakeThread() {
  {
    std::lock_guard lock(mutex_);
    wanted_ = true;
  }
  changed_.notify_all();
}

void GlooHub::Publish(std::string key, std::string value) {
  {
    std::lock_guard lock(mutex_);
    publications_.emplace_back(std::move(key), std::move(value));
  }
  changed_.notify_all();
}

bool GlooHub::CheckAll() {
  bool busy = false;
  const Time now = SystemClock().now();
  for (const auto& member : Members()) busy |= member->Check(now);
  return busy;
}

void GlooHub::Run() {
  bool busy = false;
  std::unique_lock lock(mutex_);
  while (!stopping_ || !publications_.empty()) {
    const auto called = [&] { return stopping_ || !publications_.empty(); };
    if (busy) {
      changed_.wait_for(lock, kTick, called);
    } else {
      // From here on `Wake` calls. What began just before is seen by this look.
      awake_ = false;
      lock.unlock();
      busy = CheckAll();
      lock.lock();
      if (!busy) changed_.wait(lock, [&] { return called() || wanted_; });
      awake_ = true;
    }
    wanted_ = false;
    while (!publications_.empty()) {
      const auto [key, value] = std::move(publications_.front());
      publications_.pop_front();
      lock.unlock();
      // If the store is gone, so are those who would read it.
      store_->Set(key, value).IgnoreError();
      lock.lock();
    }
    if (stopping_) return;
    lock.unlock();
    busy = CheckAll();
    lock.lock();
  }
}

}  // namespace ait::inline v0::internal
