// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_OFFLOAD_RANGE_INTERNAL_H_
#define AIT_ACTIVATION_OFFLOAD_RANGE_INTERNAL_H_

// A range of the memory of saved tensors on its way out, away, or on its way in; and the thread
// that moves ranges of host memory.
//
// A range is made where autograd saves a tensor that lies in it, and ends when autograd has
// released all of them. In between:
//
//   kQueued, kWriting   `source` is alive, and is used if backward comes this early
//   kStored             only the target has the bytes
//   kReading            somebody brings them in
//   kStays              the target failed: `source` is kept
//
// Ranges of a GPU are copied on a stream beside its own: nothing waits on the host but the thread,
// for the end of a copy out, and whoever ends a range, for the end of its last copy.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tensor/torch_internal.h"
// Keep the order.
#include <c10/core/Storage.h>

#include "activation/offload_device_internal.h"
#include "activation/offload_target_internal.h"
#include "ait/activation/offload.h"

namespace ait::inline v0::internal {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

/// What ranges count without the lock.
struct OffloadCounters {
  std::atomic<std::int64_t> waiting_bytes = 0;  // of sources that are to be copied out
  std::atomic<std::int64_t> ahead_bytes = 0;    // brought in, or on the way, before their use
  std::atomic<std::int64_t> stored_bytes = 0;
};

struct OffloadRange {
  enum class Condition : std::uint8_t { kQueued, kWriting, kStored, kReading, kStays };

  OffloadRange(std::shared_ptr<OffloadTarget> target, std::shared_ptr<OffloadCounters> counters,
               OffloadPlace place, const c10::Storage& storage, std::int64_t begin,
               std::uint32_t version, DeviceCopier* copier);
  ~OffloadRange();
  OffloadRange(const OffloadRange&) = delete;
  OffloadRange& operator=(const OffloadRange&) = delete;

  std::int64_t bytes() const { return place.bytes; }
  const std::byte* source_data() const {
    return static_cast<const std::byte*>(source->data()) + begin;
  }
  /// Gives the source up; returned, to be released outside of the lock.
  c10::Storage TakeSource();
  /// Gives up what was brought in ahead.
  c10::Storage TakeFetched();
  void LeaveAhead();
  /// What was brought in, if somebody still uses it.
  c10::intrusive_ptr<c10::StorageImpl> Restored() const;
  /// **Blocks.** Until a copy by the device has ended.
  void Settle() const;

  const std::shared_ptr<OffloadTarget> target;
  const std::shared_ptr<OffloadCounters> counters;
  const OffloadPlace place;
  const WeakStorage identity;  // holds on to the address of the storage, not to its memory
  const std::int64_t begin;    // bytes into the storage
  const std::uint32_t version;
  const c10::Device device;
  DeviceCopier* const copier;  // of ranges of a GPU; of the mover

  // Under the lock of the mover.
  Condition condition = Condition::kQueued;
  std::optional<c10::Storage> source;
  bool waiting = true;                  // counted in waiting_bytes
  std::optional<c10::Storage> fetched;  // brought in ahead, not yet used
  std::optional<WeakStorage> restored;  // brought in, as long as somebody uses it
  bool ahead = false;                   // is to be, or was, brought in ahead: in ahead_bytes
  std::optional<Event> copied;          // the last copy by the device
  int tensors = 0;                      // saved ones that lie in it
};

/// A saved tensor: the range that it lies in, and a number that counts up.
struct OffloadedTensor {
  std::shared_ptr<OffloadRange> range;
  std::uint64_t number = 0;
};

/// Storage that a restored tensor lies in, and where the range begins in it.
struct RestoredRange {
  c10::Storage storage;
  std::int64_t begin = 0;  // bytes that come before it in the saved tensor's storage
};

class OffloadMover {
 public:
  static StatusOr<std::unique_ptr<OffloadMover>> Start(const OffloadOptions& options,
                                                       std::unique_ptr<OffloadTarget> target);
  /// **Blocks.** Until what is being copied is.
  ~OffloadMover();

  /// Notes a saved tensor that lies in `bytes` bytes of `storage` from byte `begin` on; its range is
  /// made and queued if there is none. Nothing if the target has no room.
  std::optional<OffloadedTensor> Save(const c10::Storage& storage, std::int64_t begin,
                                      std::int64_t bytes, std::uint32_t version);
  void Release(const OffloadedTensor& tensor);

  /// **Blocks.** Until the bytes are in memory. Then begins to bring those in that were saved
  /// before. Throws StatusException.
  RestoredRange Restore(const OffloadedTensor& tensor);

  void FillStatistics(OffloadStatistics& statistics) const;
  std::string Describe() const { return target_->Describe(); }

 private:
  using Lock = std::unique_lock<std::mutex>;

  OffloadMover(const OffloadOptions& options, std::unique_ptr<OffloadTarget> target);
  std::shared_ptr<OffloadRange> FindKnown(const c10::Storage& storage, std::int64_t begin,
                                          std::int64_t bytes, std::uint32_t version);
  void WaitForRoom(Lock& lock, std::int64_t bytes);
  void ReadAhead(std::uint64_t number);
  void ForgetPassed(std::uint64_t number, std::vector<c10::Storage>& released);
  void Run();
  void WriteOne(Lock& lock, const std::shared_ptr<OffloadRange>& range);
  c10::Storage Read(Lock& lock, OffloadRange& range);
  StatusOr<DeviceCopier*> CopierOf(c10::Device device);
  c10::Storage StartRead(OffloadRange& range);
  void Refused(const Status& status, int tensors);
  std::shared_ptr<OffloadRange> Make(Lock& lock, const c10::Storage& storage, std::int64_t begin,
                                     std::int64_t bytes, std::uint32_t version);

  const std::int64_t in_flight_;
  const std::int64_t ahead_;
  const std::shared_ptr<DeviceRuntime> gpus_;
  std::map<int, std::unique_ptr<DeviceCopier>> copiers_;  // by number of device
  const std::shared_ptr<OffloadTarget> target_;
  const std::shared_ptr<OffloadCounters> counters_ = std::make_shared<OffloadCounters>();

  mutable std::mutex mutex_;
  std::condition_variable to_do_;
  std::condition_variable changed_;
  std::deque<std::weak_ptr<OffloadRange>> writes_;
  std::deque<std::weak_ptr<OffloadRange>> reads_;
  std::unordered_map<const c10::StorageImpl*, std::vector<std::weak_ptr<OffloadRange>>> known_;
  std::map<std::uint64_t, std::weak_ptr<OffloadRange>>
      tensors_;  // saved and not released, in that order
  std::deque<std::pair<std::uint64_t, std::weak_ptr<OffloadRange>>> fetched_;
  std::uint64_t next_ = 0;
  OffloadStatistics statistics_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_OFFLOAD_RANGE_INTERNAL_H_
