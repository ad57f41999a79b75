// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "data/loader/buffer_pool_internal.h"

namespace ait::inline v0 {
namespace internal {

std::optional<HostBuffer> BufferPool::Take(std::size_t bytes) {
  const std::size_t most = bytes + std::max(bytes / 8, std::size_t{4096});
  std::size_t best = buffers_.size();
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const std::size_t size = buffers_[i].size_bytes();
    if (size < bytes || size > most) continue;
    if (best == buffers_.size() || size < buffers_[best].size_bytes()) best = i;
    if (size == bytes) break;
  }
  if (best == buffers_.size()) return std::nullopt;
  HostBuffer taken = std::move(buffers_[best]);
  buffers_.erase(buffers_.begin() + static_cast<std::ptrdiff_t>(best));
  size_bytes_ -= static_cast<std::int64_t>(taken.size_bytes());
  return taken;
}

void BufferPool::Put(HostBuffer buffer) {
  if (buffer.size_bytes() == 0) return;
  size_bytes_ += static_cast<std::int64_t>(buffer.size_bytes());
  buffers_.push_back(std::move(buffer));
}

void BufferPool::Trim(std::int64_t limit_bytes, std::vector<HostBuffer>& out) {
  std::size_t count = 0;
  while (count < buffers_.size() && size_bytes_ > std::max<std::int64_t>(limit_bytes, 0)) {
    size_bytes_ -= static_cast<std::int64_t>(buffers_[count].size_bytes());
    out.push_back(std::move(buffers_[count]));
    ++count;
  }
  buffers_.erase(buffers_.begin(), buffers_.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace internal
}  // namespace ait::inline v0
