// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/agree_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kLineBytes = 1024;  // the code, then the text, filled up with zeros

}  // namespace

Status AgreeOnStatus(Communicator& communicator, const Status& local, OperationOptions options) {
  const auto ranks = static_cast<std::size_t>(communicator.size().value());
  if (ranks == 1) return local;
  std::vector<std::uint8_t> line(kLineBytes), lines(kLineBytes * ranks);
  line[0] = static_cast<std::uint8_t>(local.code());
  const std::string text = Message(local);
  std::memcpy(line.data() + 1, text.data(), std::min(text.size(), kLineBytes - 2));
  AIT_RETURN_IF_ERROR(communicator.AllGather(View(line), View(lines), std::move(options)).Wait());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::uint8_t* theirs = lines.data() + rank * kLineBytes;
    if (*theirs == 0) continue;
    return Status(static_cast<StatusCode>(*theirs),
                  StrCat("rank ", rank, ": ", reinterpret_cast<const char*>(theirs + 1)));
  }
  return OkStatus();
}

}  // namespace ait::inline v0::internal
