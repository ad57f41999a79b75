// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_LIVE_BYTES_INTERNAL_H_
#define AIT_ACTIVATION_LIVE_BYTES_INTERNAL_H_

// What libtorch's allocators hand out to this thread, and to the backward that it starts, while the
// meter lives: live bytes, their peak, and the blocks they are.

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace ait::inline v0::internal {

class LiveBytes {
 public:
  struct Block {
    std::int64_t serial = 0;  // in order of allocation
    std::int64_t bytes = 0;
  };

  LiveBytes() : counter_(std::make_shared<Counter>()), guard_(kKind, counter_) {}

  std::int64_t live() const {
    const std::lock_guard lock(counter_->mutex);
    return counter_->live;
  }
  /// The most that was live since the last call, which also begins the next stretch.
  std::int64_t TakePeak() {
    const std::lock_guard lock(counter_->mutex);
    return std::exchange(counter_->peak, counter_->live);
  }
  /// Of the next block.
  std::int64_t next_serial() const {
    const std::lock_guard lock(counter_->mutex);
    return counter_->next;
  }
  /// The live block that begins at `data`, if it was handed out meanwhile.
  std::optional<Block> Find(const void* data) const {
    const std::lock_guard lock(counter_->mutex);
    const auto found = counter_->blocks.find(data);
    return found == counter_->blocks.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  static constexpr auto kKind = c10::DebugInfoKind::PROFILER_STATE;

  struct Counter final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void* data, std::int64_t bytes, std::size_t, std::size_t,
                           c10::Device) override {
      const std::lock_guard lock(mutex);
      if (bytes > 0) {
        Block& block = blocks[data];
        live -= block.bytes;  // of one that a thread which is not watched has freed
        block = {.serial = next++, .bytes = bytes};
      } else {
        const auto found = blocks.find(data);
        if (found == blocks.end()) return;  // of the time before
        bytes = -found->second.bytes;
        blocks.erase(found);
      }
      live += bytes;
      peak = std::max(peak, live);
    }
    bool memoryProfilingEnabled() const override { return true; }

    std::mutex mutex;
    std::unordered_map<const void*, Block> blocks;
    std::int64_t live = 0, peak = 0, next = 0;
  };

  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_LIVE_BYTES_INTERNAL_H_
