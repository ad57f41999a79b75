// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_LOADER_BUFFER_POOL_INTERNAL_H_
#define AIT_DATA_LOADER_BUFFER_POOL_INTERNAL_H_

// Buffers of delivered batches, kept for the next ones: batches of a run are of few sizes.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ait/memory/buffer.h"

namespace ait::inline v0 {
namespace internal {

/// **Thread-safety.** One thread at a time.
class BufferPool {
 public:
  /// A buffer of at least `bytes` bytes that is at most an eighth larger (or 4 KiB).
  std::optional<HostBuffer> Take(std::size_t bytes);
  void Put(HostBuffer buffer);
  /// Moves the oldest buffers to `out` until at most `limit_bytes` are left.
  void Trim(std::int64_t limit_bytes, std::vector<HostBuffer>& out);

  std::int64_t size_bytes() const { return size_bytes_; }

 private:
  std::vector<HostBuffer> buffers_;  // oldest first
  std::int64_t size_bytes_ = 0;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_LOADER_BUFFER_POOL_INTERNAL_H_
