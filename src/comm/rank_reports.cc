// SPDX-License-Identifier: Apache-2.0
#include "comm/rank_reports.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <sstream>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/operation_compare.h"
#include "comm/own_thread.h"

namespace ait::inline v0::internal {
namespace {

// A key that is there is read at once; this is for a store that hangs.
constexpr std::chrono::seconds kAnswer{1};
constexpr std::string_view kOpen = "<reason ";
constexpr std::string_view kClose = "/reason>";

}  // namespace

Status CodeReason(const Status& reason) {
  return AbortedError(kOpen, static_cast<int>(reason.code()), " ", Message(reason), kClose);
}

std::optional<Status> DecodeReason(const Status& status) {
  const std::string text = Message(status);
  const std::size_t open = text.find(kOpen);
  const std::size_t close = text.rfind(kClose);
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  return RankReports::ParseEnd(text.substr(open + kOpen.size(), close - open - kOpen.size()));
}

Status RankReports::ParseEnd(const std::string& text) {
  int code = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), code);
  if (error != std::errc() || code <= 0) code = static_cast<int>(StatusCode::kAborted);
  const auto used = static_cast<std::size_t>(end - text.data());
  return Status(static_cast<StatusCode>(code), text.substr(std::min(text.size(), used + 1)));
}

RankReports::RankReports(std::shared_ptr<Store> store, std::string name, Rank rank, WorldSize size)
    : store_(std::move(store)), name_(std::move(name)), rank_(rank.value()), size_(size.value()) {}

Status RankReports::Post(const Record& own) {
  return store_->Set(StrCat(name_, "/at/", rank_), StrCat(own.sequence, " ", own.finished, " ",
                                                          own.signature, " ", own.description));
}

std::optional<std::string> RankReports::ReadNow(const std::string& key) {
  const StatusOr<bool> is_there = store_->Contains(key);
  if (!is_there.ok() || !*is_there) return std::nullopt;
  StatusOr<std::string> value = store_->Get(key, Deadline::After(kAnswer));
  if (!value.ok()) return std::nullopt;
  return *std::move(value);
}

RankReports::Records RankReports::Read() {
  Records records;
  for (int rank = 0; rank < size_; ++rank) {
    const std::optional<std::string> value = ReadNow(StrCat(name_, "/at/", rank));
    if (!value) continue;
    std::istringstream text(*value);
    Record record;
    text >> record.sequence >> record.finished >> record.signature;
    text.ignore(1);
    std::getline(text, record.description, '\0');
    records.emplace(rank, std::move(record));
  }
  return records;
}

void RankReports::PostLeft(std::uint64_t finished) {
  // First the rank, then that there is one: nobody looks for ranks before.
  store_->Set(StrCat(name_, "/left/", rank_), StrCat(finished)).IgnoreError();
  store_->Set(StrCat(name_, "/left"), "").IgnoreError();
}

std::optional<int> RankReports::WhoLeft(std::uint64_t sequence) {
  if (!ReadNow(StrCat(name_, "/left"))) return std::nullopt;
  for (int rank = 0; rank < size_; ++rank) {
    const std::optional<std::string> value = ReadNow(StrCat(name_, "/left/", rank));
    std::uint64_t finished = 0;
    if (value &&
        std::from_chars(value->data(), value->data() + value->size(), finished).ec == std::errc() &&
        finished < sequence) {
      return rank;
    }
  }
  return std::nullopt;
}

void RankReports::PostEnd(const Status& reason) {
  store_->Set(end_key(), StrCat(static_cast<int>(reason.code()), " ", Message(reason)))
      .IgnoreError();
}

std::optional<Status> RankReports::ReadEnd() {
  const std::optional<std::string> text = ReadNow(end_key());
  if (!text) return std::nullopt;
  return ParseEnd(*text);
}

bool RankReports::Disagree(const Record& a, const Record& b) {
  if (a.sequence == b.sequence) return a.signature != b.signature;
  const auto& [ahead, behind] = a.sequence > b.sequence ? std::tie(a, b) : std::tie(b, a);
  return ahead.finished < behind.sequence;  // it passed over what the other is doing
}

Status RankReports::Mismatch(const Records& records, int rank) {
  const Record& own = records.at(rank);
  std::map<std::uint64_t, std::vector<int>> same;  // ranks by signature
  for (const auto& [peer, record] : records) {
    if (record.signature != own.signature && !Disagree(record, own)) continue;  // only behind
    same[record.signature].push_back(peer);
  }
  std::string text = "the ranks ask for different operations";
  for (const auto& [signature, ranks] : same) {
    text += StrCat("; ", RankList(ranks), ": ", records.at(ranks.front()).description);
  }
  return InvalidArgumentError(text, "; issue the same collectives in the same order on every rank");
}

Status RankReports::Missing(const Records& records, const Record& own, WorldSize size) {
  std::vector<int> missing;
  for (int rank = 0; rank < size.value(); ++rank) {
    const auto record = records.find(rank);
    if (record == records.end() || record->second.sequence != own.sequence) missing.push_back(rank);
  }
  if (missing.empty()) {
    return DeadlineExceededError(
        "all ranks came, but the data did not arrive in time; allow more time, or look for a slow "
        "network or a rank that hangs: ",
        own.description);
  }
  return DeadlineExceededError(RankList(missing), " did not come in time: ", own.description);
}

StatusOr<std::shared_ptr<PatientThread>> PatientThread::Create(std::string_view what) {
  std::shared_ptr<PatientThread> made(new PatientThread());
  AIT_ASSIGN_OR_RETURN(made->thread_, StartOwnThread(what, [raw = made.get()] { raw->Run(); }));
  return made;
}

PatientThread::~PatientThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PatientThread::Do(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void PatientThread::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace ait::inline v0::internal
