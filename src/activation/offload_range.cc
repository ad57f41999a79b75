// SPDX-License-Identifier: Apache-2.0
#include "activation/offload_range_internal.h"

// Keep the order.
#include <ATen/ops/empty.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "ait/base/clock.h"
#include "ait/base/throw_on_error.h"
#include "base/signal_mask.h"

namespace ait::inline v0::internal {
namespace {

using Condition = OffloadRange::Condition;

/// How far back `ReadAhead` looks, and how far out of order backward may ask: saved tensors.
constexpr int kLook = 256;
constexpr std::uint64_t kDisorder = 64;

/// The stream that this thread computes on: a cudaStream_t.
void* ComputeStream(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  return guard.getStream(device).native_handle();
}

}  // namespace

OffloadRange::OffloadRange(std::shared_ptr<OffloadTarget> target_of_place,
                           std::shared_ptr<OffloadCounters> counters_of_all, OffloadPlace reserved,
                           const c10::Storage& storage, std::int64_t first_byte,
                           std::uint32_t saved_version, DeviceCopier* copier_of_device)
    : target(std::move(target_of_place)),
      counters(std::move(counters_of_all)),
      place(reserved),
      identity(storage.getWeakStorageImpl()),
      begin(first_byte),
      version(saved_version),
      device(storage.device()),
      copier(copier_of_device),
      source(storage) {
  counters->waiting_bytes += bytes();
  counters->stored_bytes += bytes();
}

OffloadRange::~OffloadRange() {
  Settle();  // then nobody reads or writes the place and what was brought in
  if (waiting) counters->waiting_bytes -= bytes();
  LeaveAhead();
  counters->stored_bytes -= bytes();
  target->Release(place);
}

c10::Storage OffloadRange::TakeSource() {
  c10::Storage taken = *std::move(source);
  source.reset();
  return taken;
}

c10::Storage OffloadRange::TakeFetched() {
  c10::Storage taken = *std::move(fetched);
  fetched.reset();
  LeaveAhead();
  return taken;
}

c10::intrusive_ptr<c10::StorageImpl> OffloadRange::Restored() const {
  return restored ? restored->lock() : c10::intrusive_ptr<c10::StorageImpl>();
}

void OffloadRange::Settle() const {
  if (copied) copied->Wait().IgnoreError();
}

void OffloadRange::LeaveAhead() {
  if (ahead) counters->ahead_bytes -= bytes();
  ahead = false;
}

OffloadMover::OffloadMover(const OffloadOptions& options, std::unique_ptr<OffloadTarget> target)
    : in_flight_(options.in_flight.value()),
      ahead_(options.ahead.value()),
      gpus_(options.gpus),
      target_(std::move(target)) {}

StatusOr<std::unique_ptr<OffloadMover>> OffloadMover::Start(const OffloadOptions& options,
                                                            std::unique_ptr<OffloadTarget> target) {
  std::unique_ptr<OffloadMover> mover(new OffloadMover(options, std::move(target)));
  try {
    const BlockedSignals blocked;
    mover->thread_ = std::thread([self = mover.get()] { self->Run(); });
  } catch (const std::system_error& error) {
    return ResourceExhaustedError("the thread that offloads saved tensors could not be started: ",
                                  error.what(), "; allow more threads");
  }
  pthread_setname_np(mover->thread_.native_handle(), "ait-offload");
  return mover;
}

OffloadMover::~OffloadMover() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  to_do_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<OffloadRange> OffloadMover::FindKnown(const c10::Storage& storage,
                                                      std::int64_t begin, std::int64_t bytes,
                                                      std::uint32_t version) {
  const auto found = known_.find(storage.unsafeGetStorageImpl());
  if (found == known_.end()) return nullptr;
  for (const auto& weak : found->second) {
    auto range = weak.lock();
    if (range != nullptr && range->version == version && range->begin <= begin &&
        range->begin + range->bytes() >= begin + bytes) {
      return range;
    }
  }
  return nullptr;
}

std::optional<OffloadedTensor> OffloadMover::Save(const c10::Storage& storage, std::int64_t begin,
                                                  std::int64_t bytes, std::uint32_t version) {
  Lock lock(mutex_);
  auto range = FindKnown(storage, begin, bytes, version);
  if (range != nullptr) {
    ++statistics_.shared;
  } else {
    range = Make(lock, storage, begin, bytes, version);
    if (range == nullptr) return std::nullopt;
  }
  ++statistics_.moved;
  ++range->tensors;
  tensors_[++next_] = range;
  return OffloadedTensor{std::move(range), next_};
}

std::shared_ptr<OffloadRange> OffloadMover::Make(Lock& lock, const c10::Storage& storage,
                                                 std::int64_t begin, std::int64_t bytes,
                                                 std::uint32_t version) {
  WaitForRoom(lock, bytes);
  lock.unlock();
  auto place = target_->Reserve(bytes);
  lock.lock();
  if (!place.ok()) {
    Refused(place.status(), 1);
    return nullptr;
  }
  DeviceCopier* copier = nullptr;
  std::optional<Event> copied;
  if (!storage.device().is_cpu()) {
    const auto start = [&]() -> StatusOr<Event> {
      AIT_ASSIGN_OR_RETURN(copier, CopierOf(storage.device()));
      return copier->Start(place->block, static_cast<const std::byte*>(storage.data()) + begin,
                           Bytes(bytes), ComputeStream(storage.device()));
    };
    auto started = start();
    if (!started.ok()) {
      target_->Release(*place);
      Refused(started.status(), 1);
      return nullptr;
    }
    copied = *std::move(started);
  }
  auto range =
      std::make_shared<OffloadRange>(target_, counters_, *place, storage, begin, version, copier);
  range->copied = std::move(copied);
  statistics_.stored_peak_bytes =
      std::max(statistics_.stored_peak_bytes, counters_->stored_bytes.load());
  known_[storage.unsafeGetStorageImpl()].push_back(range);
  writes_.push_back(range);
  to_do_.notify_one();
  return range;
}

StatusOr<DeviceCopier*> OffloadMover::CopierOf(c10::Device device) {
  auto& copier = copiers_[device.index()];
  if (copier == nullptr) {
    AIT_ASSIGN_OR_RETURN(copier, DeviceCopier::Create(gpus_, Device(device.index())));
  }
  return copier.get();
}

void OffloadMover::Refused(const Status& status, int tensors) {
  statistics_.refused += tensors;
  statistics_.refusal = status;
}

// Ranges that were released leave the queue when the thread comes to them, which tells of it.
void OffloadMover::WaitForRoom(Lock& lock, std::int64_t bytes) {
  const auto room = [&] {
    const std::int64_t waiting = counters_->waiting_bytes;
    return waiting == 0 || waiting + bytes <= in_flight_ || writes_.empty();
  };
  if (room()) return;
  const Time start = SystemClock().now();
  changed_.wait(lock, room);
  ++statistics_.out_waits;
  statistics_.out_waited += SystemClock().now() - start;
}

void OffloadMover::Release(const OffloadedTensor& tensor) {
  const std::lock_guard lock(mutex_);
  tensors_.erase(tensor.number);
  if (--tensor.range->tensors > 0) return;
  const auto found = known_.find(tensor.range->identity._unsafe_get_target());
  if (found == known_.end()) return;
  std::erase_if(found->second, [&](const auto& weak) {
    const auto other = weak.lock();
    return other == nullptr || other == tensor.range;
  });
  if (found->second.empty()) known_.erase(found);
}

RestoredRange OffloadMover::Restore(const OffloadedTensor& tensor) {
  OffloadRange& range = *tensor.range;
  std::vector<c10::Storage> released;  // outside of the lock
  Lock lock(mutex_);
  RestoredRange restored = {.begin = range.begin};
  std::optional<Time> start;
  while (!restored.storage) {
    if (range.source) {
      restored = {*range.source, 0};
      if (range.condition != Condition::kStays) ++statistics_.used_early;
    } else if (range.fetched) {
      restored.storage = range.TakeFetched();
    } else if (auto alive = range.Restored()) {
      restored.storage = c10::Storage(std::move(alive));
    } else {
      if (!start) start = SystemClock().now();
      if (range.condition == Condition::kStored) {
        range.LeaveAhead();
        restored.storage = range.copier != nullptr ? StartRead(range) : Read(lock, range);
      } else {
        changed_.wait(lock);
      }
    }
  }
  if (start) {
    ++statistics_.in_waits;
    statistics_.in_waited += SystemClock().now() - *start;
  }
  if (range.copier != nullptr && !range.source) {
    ThrowOnError(range.copier->Await(*range.copied, ComputeStream(range.device)));
  }
  ForgetPassed(tensor.number, released);
  ReadAhead(tensor.number);
  lock.unlock();
  return restored;
}

// What was brought in for a tensor that backward has left out (a part of the graph) makes room.
void OffloadMover::ForgetPassed(std::uint64_t number, std::vector<c10::Storage>& released) {
  std::erase_if(fetched_, [&](const auto& entry) {
    const auto range = entry.second.lock();
    if (range == nullptr || !range->ahead) return true;
    if (entry.first <= number + kDisorder || !range->fetched) return false;
    range->Settle();
    released.push_back(range->TakeFetched());
    return true;
  });
}

void OffloadMover::ReadAhead(std::uint64_t number) {
  auto next = tensors_.lower_bound(number);
  for (int looked = 0; looked < kLook && next != tensors_.begin(); ++looked) {
    --next;
    auto range = next->second.lock();
    if (range == nullptr || range->condition != Condition::kStored || range->ahead) continue;
    if (range->Restored()) continue;
    const std::int64_t ahead = counters_->ahead_bytes;
    if (ahead_ == 0 || (ahead > 0 && ahead + range->bytes() > ahead_)) return;
    range->ahead = true;
    counters_->ahead_bytes += range->bytes();
    fetched_.emplace_back(next->first, range);
    if (range->copier != nullptr) {
      try {
        range->fetched = StartRead(*range);
      } catch (
          const std::exception&) {  // no memory yet, for one: it is asked for again in its turn
        range->LeaveAhead();
        return;
      }
      continue;
    }
    reads_.push_back(range);
    to_do_.notify_one();
  }
}

// Brings a range in that is kStored, or that the caller has made kReading; without the lock
// meanwhile. Throws StatusException.
c10::Storage OffloadMover::Read(Lock& lock, OffloadRange& range) {
  range.condition = Condition::kReading;
  lock.unlock();
  Status status;
  std::optional<c10::Storage> storage;
  try {
    storage = at::empty({range.bytes()}, at::kByte).storage();
    status = range.target->Read(range.place, storage->mutable_data());
  } catch (const std::exception& error) {  // of libtorch's allocator
    status = ResourceExhaustedError("no memory for ", range.bytes(),
                                    " bytes of an offloaded tensor: ", error.what());
  }
  lock.lock();
  range.condition = Condition::kStored;
  changed_.notify_all();
  if (!status.ok()) {
    throw StatusException(Annotate(status, StrCat("bringing a saved tensor of ", range.bytes(),
                                                  " bytes back from ", range.target->Describe())));
  }
  statistics_.bytes_in += range.bytes();
  range.restored = storage->getWeakStorageImpl();
  return *std::move(storage);
}

// Of a GPU: memory of the stream that computes, which is to wait for `copied` before its use.
c10::Storage OffloadMover::StartRead(OffloadRange& range) {
  range.Settle();  // the copy out, long ended
  c10::Storage storage =
      at::empty({range.bytes()}, at::TensorOptions(at::kByte).device(range.device)).storage();
  range.copied =
      ThrowOnError(range.copier->Start(storage.mutable_data(), range.place.block,
                                       Bytes(range.bytes()), ComputeStream(range.device)));
  statistics_.bytes_in += range.bytes();
  range.restored = storage.getWeakStorageImpl();
  return storage;
}

void OffloadMover::WriteOne(Lock& lock, const std::shared_ptr<OffloadRange>& range) {
  range->condition = Condition::kWriting;
  const std::byte* const from = range->copier == nullptr ? range->source_data() : nullptr;
  lock.unlock();
  const Status status =
      from == nullptr ? range->copied->Wait() : range->target->Write(range->place, from);
  lock.lock();
  counters_->waiting_bytes -= range->bytes();
  range->waiting = false;
  if (!status.ok()) {
    range->condition = Condition::kStays;
    statistics_.moved -= range->tensors;
    Refused(Annotate(status, StrCat("moving a saved tensor of ", range->bytes(), " bytes to ",
                                    range->target->Describe())),
            range->tensors);
    return;
  }
  statistics_.bytes_out += range->bytes();
  range->condition = Condition::kStored;
  const c10::Storage released = range->TakeSource();
  lock.unlock();  // giving memory back may be slow
}

void OffloadMover::Run() {
  Lock lock(mutex_);
  while (true) {
    to_do_.wait(lock, [this] { return stop_ || !reads_.empty() || !writes_.empty(); });
    if (stop_) return;
    if (!reads_.empty()) {
      const std::shared_ptr<OffloadRange> range = reads_.front().lock();
      reads_.pop_front();
      if (range == nullptr || !range->ahead || range->condition != Condition::kStored) continue;
      try {
        range->fetched = Read(lock, *range);
      } catch (const StatusException&) {  // whoever needs it asks again, and gets the error
        range->LeaveAhead();
      }
      continue;
    }
    const std::shared_ptr<OffloadRange> range = writes_.front().lock();
    writes_.pop_front();
    if (range != nullptr) WriteOne(lock, range);
    if (!lock.owns_lock()) lock.lock();
    changed_.notify_all();
  }
}

void OffloadMover::FillStatistics(OffloadStatistics& statistics) const {
  const std::lock_guard lock(mutex_);
  statistics.refusal = statistics_.refusal;
  statistics.refused += statistics_.refused;
  statistics.moved += statistics_.moved;
  statistics.shared = statistics_.shared;
  statistics.bytes_out = statistics_.bytes_out;
  statistics.bytes_in = statistics_.bytes_in;
  statistics.stored_bytes = counters_->stored_bytes;
  statistics.stored_peak_bytes = statistics_.stored_peak_bytes;
  statistics.used_early = statistics_.used_early;
  statistics.out_waits = statistics_.out_waits;
  statistics.in_waits = statistics_.in_waits;
  statistics.out_waited = statistics_.out_waited;
  statistics.in_waited = statistics_.in_waited;
}

}  // namespace ait::inline v0::internal
