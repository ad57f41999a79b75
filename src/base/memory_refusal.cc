// SPDX-License-Identifier: Apache-2.0
#include "base/memory_refusal.h"

#include <charconv>
#include <string>

namespace ait::inline v0::internal {
namespace {

constexpr char kPayload[] = "ait/memory_refused";
constexpr std::string_view kDevice = "device";

}  // namespace

Status WithRefusal(Status status, const MemoryRefusal& refusal) {
  if (status.ok() || status.GetPayload(kPayload)) return status;
  std::string text(refusal.on_device ? kDevice : "host");
  if (refusal.asked) text += StrCat(" ", *refusal.asked);
  status.SetPayload(kPayload, absl::Cord(text));
  return status;
}

std::optional<MemoryRefusal> RefusalOf(const Status& status) {
  if (status.code() != StatusCode::kResourceExhausted) return std::nullopt;
  const auto payload = status.GetPayload(kPayload);
  if (!payload) return std::nullopt;
  const std::string text(*payload);
  MemoryRefusal refusal{.on_device = text.starts_with(kDevice), .asked = {}};
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) return refusal;
  std::int64_t bytes = 0;
  const auto [end, error] =
      std::from_chars(text.data() + space + 1, text.data() + text.size(), bytes);
  if (error == std::errc()) refusal.asked = Bytes(bytes);
  return refusal;
}

}  // namespace ait::inline v0::internal
