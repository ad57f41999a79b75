// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_board.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

namespace ait::inline v0::internal {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How long a value that is known to be set may take to arrive.
constexpr milliseconds kPatience{1000};

}  // namespace

NcclBoard::NcclBoard(Options options)
    : options_(std::move(options)),
      // All ranks together: a few thousand questions a second at most.
      period_(std::max<Duration>(milliseconds(10), microseconds(500) * options_.members.size())) {}

std::string NcclBoard::Key(std::string_view what) const { return StrCat(what, "/", options_.name); }

void NcclBoard::PublishEnd(const Status& reason) {
  store()
      .Set(Key("end"), StrCat(static_cast<int>(reason.code()), " ", Message(reason)))
      .IgnoreError();
  store().Add(Key("word"), 1).status().IgnoreError();
}

void NcclBoard::PublishLeft(std::uint64_t finished) {
  store().Set(StrCat(Key("left"), "/", options_.rank), StrCat(finished)).IgnoreError();
  store().Add(Key("word"), 1).status().IgnoreError();
}

void NcclBoard::PublishRecord(const Operation& operation, std::uint64_t signature,
                              const std::string& description) {
  store()
      .Set(StrCat(Key("at"), "/", options_.rank),
           StrCat(operation.sequence, " ", signature, " ", description))
      .IgnoreError();
}

void NcclBoard::Look(When when) {
  const Time now = SystemClock().now();
  if (when == When::kInTime && now < next_look_) return;
  next_look_ = now + period_;
  const StatusOr<std::int64_t> words = store().Add(Key("word"), 0);
  if (!words.ok() || *words == seen_) return;
  seen_ = *words;
  const auto read = [&](const std::string& key) -> std::optional<std::istringstream> {
    const StatusOr<bool> is_set = store().Contains(key);
    if (!is_set.ok() || !*is_set) return std::nullopt;
    const StatusOr<std::string> value = store().Get(key, Deadline::After(kPatience));
    if (!value.ok()) return std::nullopt;
    return std::istringstream(*value);
  };
  if (auto end = read(Key("end")); end && !end_) {
    int code = 0;
    std::string reason;
    *end >> code;
    end->ignore(1);
    std::getline(*end, reason, '\0');
    end_ = Status(static_cast<StatusCode>(code), reason);
  }
  for (int rank = 0; rank < static_cast<int>(options_.members.size()); ++rank) {
    if (rank == options_.rank || left_.contains(rank)) continue;
    auto left = read(StrCat(Key("left"), "/", rank));
    if (!left) continue;
    std::uint64_t finished = 0;
    *left >> finished;
    left_[rank] = finished;
  }
}

std::optional<Status> NcclBoard::Death() {
  if (!options_.departed) return std::nullopt;
  for (const Rank dead : options_.departed()) {
    const auto found = std::find(options_.members.begin(), options_.members.end(), dead);
    if (found == options_.members.end()) continue;
    const auto rank = found - options_.members.begin();
    return UnavailableError(
        "rank ", rank, rank != dead.value() ? StrCat(" (", dead, " of the world)") : "", " died");
  }
  return std::nullopt;
}

std::map<int, NcclBoard::Record> NcclBoard::Records(std::uint64_t sequence) {
  std::map<int, Record> records;
  for (int rank = 0; rank < static_cast<int>(options_.members.size()); ++rank) {
    const std::string key = StrCat(Key("at"), "/", rank);
    const StatusOr<bool> is_set = store().Contains(key);
    if (!is_set.ok() || !*is_set) continue;
    const StatusOr<std::string> value = store().Get(key, Deadline::After(kPatience));
    if (!value.ok()) continue;
    std::istringstream text(*value);
    Record record;
    text >> record.sequence >> record.signature;
    text.ignore(1);
    std::getline(text, record.description, '\0');
    if (record.sequence == sequence || sequence == 0) records.emplace(rank, std::move(record));
  }
  return records;
}

}  // namespace ait::inline v0::internal
