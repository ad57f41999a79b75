// SPDX-License-Identifier: Apache-2.0
#include "comm/hang_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "comm/own_thread.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{150};
// How long an answer may take, and how long a question of somebody else serves as one's own.
constexpr milliseconds kAnswer{1000};
// Who has just asked may die before the question is written: the next ones are watched for too.
constexpr std::uint64_t kAhead = 3;
// Ranks that begin to wait together do not ask together.
constexpr milliseconds kTurn{40};
constexpr int kTurns = 8;
constexpr milliseconds kStuck{300};

std::int64_t WallMilliseconds() {
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string AnswerKey(std::uint64_t number, int rank) {
  return StrCat("hang/answer/", number, "/", rank);
}

std::string BeatKey(int rank) { return StrCat("hang/beat/", rank); }

}  // namespace

HangWatch::HangWatch(std::shared_ptr<TcpStore> store, std::shared_ptr<FlightRecorder> recorder,
                     milliseconds report_after, LogSink* log)
    : store_(std::move(store)),
      recorder_(std::move(recorder)),
      rank_(recorder_->options().rank),
      size_(recorder_->options().size.value()),
      report_after_(Saturate(report_after)),
      log_(log) {}

StatusOr<std::unique_ptr<HangWatch>> HangWatch::Create(std::shared_ptr<TcpStore> store,
                                                       std::shared_ptr<FlightRecorder> recorder,
                                                       milliseconds report_after, LogSink* log) {
  std::unique_ptr<HangWatch> watch(
      new HangWatch(std::move(store), std::move(recorder), report_after, log));
  AIT_ASSIGN_OR_RETURN(watch->thread_,
                       StartOwnThread("the watch over hangs", [raw = watch.get()] { raw->Run(); }));
  return watch;
}

HangWatch::~HangWatch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (const auto& [number, watch] : armed_) store_->Unwatch(watch);
  if (round_) {
    for (const std::uint64_t watch : round_->watches) store_->Unwatch(watch);
  }
}

void HangWatch::Run() {
  for (std::uint64_t number = 1; number <= kAhead; ++number) Arm(number);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Time now = SystemClock().now();
    bool conclude = false;
    if (round_) {
      const int others = size_ - 1 - static_cast<int>(store_->departed().size());
      conclude = now >= round_->end || static_cast<int>(round_->answers.size()) > others;
    }
    std::deque<std::uint64_t> asked = std::exchange(asked_, {});
    lock.unlock();
    for (const std::uint64_t number : asked) Answer(number);
    if (conclude) Conclude();
    Beat(now);
    LookForHang(now);
    lock.lock();
    Time next = SystemClock().now() + kTick;
    if (round_) next = std::min(next, round_->end);
    changed_.wait_until(lock, next, [&] {
      return stopping_ || !asked_.empty() ||
             (round_ && static_cast<int>(round_->answers.size()) == size_);
    });
  }
}

void HangWatch::Arm(std::uint64_t number) {
  armed_[number] = store_->Watch(StrCat("hang/ask/", number), [this, number](const std::string&) {
    {
      std::lock_guard lock(mutex_);
      asked_.push_back(number);
    }
    changed_.notify_all();
  });
}

void HangWatch::Answer(std::uint64_t number) {
  store_->Set(AnswerKey(number, rank_.value()), recorder_->Report().Serialize()).IgnoreError();
  last_asked_ = std::max(last_asked_, number);
  last_asked_at_ = SystemClock().now();
  armed_.erase(number);
  const std::uint64_t next = armed_.empty() ? number + 1 : armed_.rbegin()->first + 1;
  for (std::uint64_t more = next; more <= number + kAhead; ++more) Arm(more);
  // While the evidence is there: whoever hangs is ended from outside as a rule.
  if (const Status written = recorder_->Dump(); !written.ok())
    Log(log_, Severity::kWarning, "comm", Message(written));
}

bool HangWatch::IsStuck(Time now) const {
  const std::vector<FlightRecord> waiting = recorder_->Outstanding();
  return !waiting.empty() && now - waiting.front().issued > kStuck;
}

/// Says where this rank is, if that has changed. Not while it waits: the store may be what hangs.
void HangWatch::Beat(Time now) {
  if (now < next_beat_ || IsStuck(now)) return;
  next_beat_ = now + std::max<Duration>(report_after_ / 2, milliseconds(500));
  const RankReport report = recorder_->Report();
  std::string place = StrCat(report.step, report.phase);
  for (const ReportedGroup& group : report.groups) place += StrCat(" ", group.finished);
  if (place == last_beat_) return;
  const std::string text = StrCat(WallMilliseconds(), "\n", report.Serialize());
  if (store_->Set(BeatKey(rank_.value()), text).ok()) last_beat_ = std::move(place);
}

/// When a wait is long: sooner if its deadline is near, so that the report comes before it.
Time HangWatch::DueAt(const FlightRecord& record) const {
  Duration wait = report_after_;
  if (record.deadline != Time::max()) {
    wait = std::min<Duration>(wait, (record.deadline - record.issued) * 6 / 10);
  }
  return record.issued + wait;
}

void HangWatch::LookForHang(Time now) {
  if (round_) return;  // only this thread begins and ends one
  const std::vector<FlightRecord> waiting = recorder_->Outstanding();
  if (told_ && std::none_of(waiting.begin(), waiting.end(), [&](const FlightRecord& record) {
        return record.number == told_about_;
      })) {
    told_ = false;
    Log(log_, Severity::kInfo, "comm",
        StrCat("rank ", rank_, ": the wait that the last hang report tells of is over"));
  }
  if (waiting.empty()) return;
  const auto oldest = std::min_element(
      waiting.begin(), waiting.end(),
      [&](const FlightRecord& a, const FlightRecord& b) { return DueAt(a) < DueAt(b); });
  if (now < DueAt(*oldest)) return;
  if (oldest->number == told_about_) {
    if (now < tell_again_) return;
  } else {
    told_about_ = oldest->number;
    pause_ = report_after_;
    const Duration turn = kTurn * (rank_.value() % kTurns);
    tell_again_ = now + turn;
    if (turn > Duration::zero()) return;
  }
  pause_ *= 2;
  tell_again_ = now + pause_;
  Ask(now, *oldest);
}

void HangWatch::Ask(Time now, const FlightRecord& oldest) {
  // A key that is there: does the store answer at all?
  const Status alive =
      store_->Get(BeatKey(rank_.value()), Deadline::After(milliseconds(300))).status();
  if (alive.code() == StatusCode::kUnavailable) return;  // the transport tells of a death
  if (!alive.ok()) {
    return Tell(
        "rank 0 of the world, which serves the store, does not answer (stopped, or its host "
        "hangs), so nothing is known of the others");
  }
  std::uint64_t number = last_asked_;
  if (last_asked_ == 0 || now - last_asked_at_ > kAnswer) {
    const StatusOr<std::int64_t> next = store_->Add("hang/asked", 1);
    if (!next.ok()) return;
    number = static_cast<std::uint64_t>(*next);
    if (!store_->Set(StrCat("hang/ask/", number), StrCat(rank_)).ok()) return;
  }
  Duration patience = kAnswer;
  if (oldest.deadline != Time::max()) {
    patience = std::clamp<Duration>((oldest.deadline - now) / 2, milliseconds(50), kAnswer);
  }
  {
    std::lock_guard lock(mutex_);
    round_.emplace();
    round_->number = number;
    round_->end = SystemClock().now() + patience;
  }
  std::vector<std::uint64_t> watches;
  for (int rank = 0; rank < size_; ++rank) {
    watches.push_back(store_->Watch(AnswerKey(number, rank), [this, rank](std::string answer) {
      {
        std::lock_guard lock(mutex_);
        if (round_) round_->answers[rank] = std::move(answer);
      }
      changed_.notify_all();
    }));
  }
  std::lock_guard lock(mutex_);
  round_->watches = std::move(watches);
}

void HangWatch::Conclude() {
  for (const std::uint64_t watch : round_->watches) store_->Unwatch(watch);
  std::map<int, std::string> answers;
  {
    std::lock_guard lock(mutex_);
    answers = std::move(round_->answers);
    round_.reset();
  }
  const std::vector<Rank> departed = store_->departed();
  std::vector<RankReport> reports;
  for (int rank = 0; rank < size_; ++rank) {
    if (Rank(rank) == rank_) {
      reports.push_back(recorder_->Report());
      continue;
    }
    const bool died = std::find(departed.begin(), departed.end(), Rank(rank)) != departed.end();
    const auto answer = answers.find(rank);
    StatusOr<RankReport> report = answer == answers.end() || died
                                      ? ReportOfSilent(rank, died)
                                      : RankReport::Parse(answer->second);
    if (!report.ok()) report = ReportOfSilent(rank, died);
    reports.push_back(*std::move(report));
  }
  const HangVerdict verdict = Judge(reports, rank_);
  if (verdict.cause != HangCause::kNone) Tell(verdict.text);  // else it has ended meanwhile
}

/// What is last known of a rank that does not answer.
RankReport HangWatch::ReportOfSilent(int rank, bool died) {
  RankReport report;
  if (const auto beat = store_->Contains(BeatKey(rank)); beat.ok() && *beat) {
    const auto text = store_->Get(BeatKey(rank), Deadline::After(kAnswer));
    const std::size_t end = text.ok() ? text->find('\n') : std::string::npos;
    if (end != std::string::npos) {
      const auto heard = RankReport::Parse(std::string_view(*text).substr(end + 1));
      if (heard.ok()) report = *heard;
      const std::int64_t at = std::atoll(text->c_str());
      // By the clocks of two hosts: never less than nothing.
      report.age += std::max(milliseconds(0), milliseconds(WallMilliseconds() - at));
    }
  }
  report.rank = Rank(rank);
  report.presence = died ? RankReport::Presence::kDied : RankReport::Presence::kSilent;
  return report;
}

void HangWatch::Tell(const std::string& text) {
  told_ = true;
  Log(log_, Severity::kWarning, "comm", StrCat("rank ", rank_, ": hang report: ", text));
  for (const FlightRecord& record : recorder_->Outstanding())
    recorder_->Explain(record.number, text);
  // The file holds the report as well.
  recorder_->Dump().IgnoreError();
}

StatusOr<std::shared_ptr<FlightRecorder>> WorldRecorder(std::shared_ptr<FlightRecorder> given,
                                                        const Env& env, Rank rank, WorldSize size,
                                                        LogSink* log) {
  if (given == nullptr) {
    return std::make_shared<FlightRecorder>(
        FlightRecorderOptions{.rank = rank,
                              .size = size,
                              .directory = env.ait_flight_directory.value_or(""),
                              .log = log});
  }
  const FlightRecorderOptions& options = given->options();
  if (options.rank != rank || options.size != size) {
    return InvalidArgumentError("the flight recorder given is of rank ", options.rank, " of ",
                                options.size, ", but this is rank ", rank, " of ", size);
  }
  return given;
}

}  // namespace ait::inline v0::internal
