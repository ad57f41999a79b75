// SPDX-License-Identifier: Apache-2.0
#include "ait/data/byte_view.h"

#include <algorithm>

namespace ait::inline v0 {

ByteView ByteView::Copy(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  auto owner = std::make_shared_for_overwrite<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), owner.get());
  const std::span<const std::byte> copy(owner.get(), bytes.size());
  return {copy, std::move(owner)};
}

}  // namespace ait::inline v0
