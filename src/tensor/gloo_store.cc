// SPDX-License-Identifier: Apache-2.0
#include "tensor/gloo_store.h"

#include "tensor/torch_internal.h"
// Keep the order.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "tensor/catch.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::milliseconds;

class C10dStore final : public c10d::Store {
 public:
  C10dStore(std::shared_ptr<TcpStore> store, std::string prefix, std::vector<Rank> members,
            Deadline deadline)
      : store_(std::move(store)),
        prefix_(std::move(prefix)),
        members_(std::move(members)),
        deadline_(deadline) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<C10dStore>(store_, prefix_, members_, deadline_);
  }
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    ThrowIfError(store_->Set(prefix_ + key, std::string(value.begin(), value.end())));
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    const std::string value = Await(key);
    return {value.begin(), value.end()};
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const StatusOr<std::int64_t> sum = store_->Add(prefix_ + key, amount);
    ThrowIfError(sum.status());
    return *sum;
  }
  bool deleteKey(const std::string&) override { return false; }
  bool check(const std::vector<std::string>& keys) override {
    return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) {
      const StatusOr<bool> is_set = store_->Contains(prefix_ + key);
      ThrowIfError(is_set.status());
      return *is_set;
    });
  }
  std::int64_t getNumKeys() override { return 0; }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) Await(key);
  }
  void wait(const std::vector<std::string>& keys, const milliseconds&) override { wait(keys); }

 private:
  static void ThrowIfError(const Status& status) {
    if (!status.ok()) C10_THROW_ERROR(DistStoreError, Message(status));
  }

  std::string Await(const std::string& key) {
    const StatusOr<std::string> value = AwaitKey(*store_, prefix_ + key, members_, deadline_);
    ThrowIfError(value.status());
    return *value;
  }

  std::shared_ptr<TcpStore> store_;
  std::string prefix_;
  std::vector<Rank> members_;
  Deadline deadline_;
};

class AgentStore final : public Store {
 public:
  explicit AgentStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  Status Set(std::string_view key, std::string_view value) override {
    std::lock_guard lock(mutex_);
    return CatchAsStatus([&] {
      store_->set(std::string(key), std::vector<std::uint8_t>(value.begin(), value.end()));
    });
  }
  StatusOr<std::string> Get(std::string_view key, Deadline deadline) override {
    std::lock_guard lock(mutex_);
    const auto nobody = [&] {
      return DeadlineExceededError("store: nobody set key \"", key, "\" before the deadline");
    };
    StatusOr<std::string> got = CatchAsStatus([&]() -> StatusOr<std::string> {
      const auto left = std::clamp(std::chrono::ceil<milliseconds>(deadline.remaining()),
                                   milliseconds(1), milliseconds(std::chrono::hours(24)));
      store_->setTimeout(left);
      if (!store_->check({std::string(key)}) && deadline.expired()) {
        return nobody();
      }
      const std::vector<std::uint8_t> value = store_->get(std::string(key));
      return std::string(value.begin(), value.end());
    });
    // c10d says in the same way that a time is out and that a connection broke.
    if (!got.ok() && deadline.expired()) return nobody();
    return got;
  }
  StatusOr<std::int64_t> Add(std::string_view key, std::int64_t amount) override {
    std::lock_guard lock(mutex_);
    return CatchAsStatus([&] { return store_->add(std::string(key), amount); });
  }
  StatusOr<bool> Contains(std::string_view key) override {
    std::lock_guard lock(mutex_);
    return CatchAsStatus([&] { return store_->check({std::string(key)}); });
  }

 private:
  std::mutex mutex_;  // a TCPStore of c10d mixes the replies of two threads
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

StatusOr<std::string> AwaitKey(TcpStore& store, const std::string& key,
                               const std::vector<Rank>& members, Deadline deadline) {
  while (true) {
    const Deadline slice = Deadline::After(milliseconds(100));
    StatusOr<std::string> value = store.Get(key, slice.time() < deadline.time() ? slice : deadline);
    if (value.status().code() != StatusCode::kDeadlineExceeded || deadline.expired()) return value;
    for (const Rank dead : store.departed()) {
      if (std::find(members.begin(), members.end(), dead) != members.end()) {
        return UnavailableError("rank ", dead, " died");
      }
    }
  }
}

c10::intrusive_ptr<c10d::Store> MakeC10dStore(std::shared_ptr<TcpStore> store, std::string prefix,
                                              std::vector<Rank> members, Deadline deadline) {
  return c10::make_intrusive<C10dStore>(std::move(store), std::move(prefix), std::move(members),
                                        deadline);
}

StatusOr<std::unique_ptr<Store>> JoinAgent(const LaunchInfo& launch, Deadline deadline) {
  c10d::TCPStoreOptions options;
  options.port = launch.master_port;
  options.isServer = false;
  options.waitWorkers = false;
  options.timeout = std::clamp(std::chrono::ceil<milliseconds>(deadline.remaining()),
                               milliseconds(1), milliseconds(std::chrono::hours(24)));
  c10::intrusive_ptr<c10d::Store> store;
  const Status joined = CatchAsStatus(
      [&] { store = c10::make_intrusive<c10d::TCPStore>(launch.master_address, options); });
  if (!joined.ok()) {
    return DeadlineExceededError("rank ", launch.rank, " cannot reach the store of torchrun's ",
                                 "agent at ", launch.master_address, " port ", launch.master_port,
                                 " (MASTER_ADDR, MASTER_PORT): ", Message(joined));
  }
  return std::make_unique<AgentStore>(std::move(store));
}

}  // namespace ait::inline v0::internal
