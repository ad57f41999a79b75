// SPDX-License-Identifier: Apache-2.0
// What a flight recorder tells: as a report to the peers, and as JSON. The format of the latter is
// part of docs/hang.md.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "ait/comm/flight_recorder.h"
#include "ait/comm/hang_report.h"

namespace ait::inline v0 {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

bool HasReduction(OperationKind kind) {
  return kind == OperationKind::kAllReduce || kind == OperationKind::kReduceScatter;
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? std::string(name) : std::string();
}

milliseconds Age(Time since, Time now) {
  return since == Time{} ? milliseconds(0) : std::chrono::floor<milliseconds>(now - since);
}

/// What is not in the tables of names (a refused operation may hold anything) is a number.
std::string TypeName(DType dtype) {
  const int number = static_cast<int>(dtype);
  return number < kDTypeCount ? std::string(Name(dtype)) : StrCat("type number ", number);
}

ReportedOperation Reported(const FlightRecord& record, Time now) {
  return {.sequence = record.sequence,
          .kind = std::string(Name(record.kind)),
          .reduce = HasReduction(record.kind) ? std::string(Name(record.reduce)) : "",
          .dtype = record.kind == OperationKind::kBarrier ? "" : TypeName(record.dtype),
          .count = record.count,
          .parts_hash = record.parts_hash,
          .peer = record.peer,
          .tag = record.tag,
          .label = record.label,
          .state = std::string(Name(record.state)),
          .code = record.code == StatusCode::kOk ? "" : CodeName(record.code),
          .age = Age(record.issued, now)};
}

/// Lower is told first: what waits, before what has failed; collectives before messages.
int Priority(const FlightRecord& record) {
  const bool failed = record.state == FlightState::kFailed;
  return (failed ? 2 : 0) + (record.sequence == 0 ? 1 : 0);
}

/// Bytes of the UTF-8 character that begins `text`, 0 if none does.
std::size_t CharacterLength(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xc2 && first < 0xe0 ? 2
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xf0 && first < 0xf5 ? 4
                                                             : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  return length;
}

/// A JSON string; a cut label may end within a character, which becomes a question mark.
std::string Quoted(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string quoted = "\"";
  while (!text.empty()) {
    const char c = text[0];
    const std::size_t length = CharacterLength(text);
    if (length == 0) {
      quoted += '?';
    } else if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += StrCat("\\u00", kHex[(c >> 4) & 15], kHex[c & 15]);
    } else {
      quoted += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return quoted + '"';
}

template <typename Range, typename Function>
std::string Array(const Range& range, Function element) {
  std::string text = "[";
  for (const auto& item : range) {
    if (text.size() > 1) text += ',';
    text += element(item);
  }
  return text + "]";
}

/// Microseconds since 1970, by the clocks of now.
class WallClock {
 public:
  std::string At(Time time) const {
    if (time == Time{} || time == Time::max()) return "null";
    return StrCat(std::chrono::duration_cast<microseconds>(wall_ + (time - now_)).count());
  }
  Time now() const { return now_; }

 private:
  const Time now_ = SystemClock().now();
  const std::chrono::nanoseconds wall_ = std::chrono::system_clock::now().time_since_epoch();
};

}  // namespace

RankReport FlightRecorder::Report() const {
  const std::vector<FlightRecord> records = Records();
  RankReport report{.rank = options_.rank, .is_known = true, .host = HostName(), .pid = getpid()};
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) report.failure = Message(failure_);
  const Time now = SystemClock().now();
  const Lock counters(*this);
  report.step = noted_.step;
  report.phase = noted_.phase;
  report.age = Age(noted_.time, now);
  for (const auto& [id, group] : groups_) {
    const FlightRecord* current = nullptr;
    for (const FlightRecord& record : records) {
      if (record.group != id || record.state == FlightState::kDone) continue;
      if (current == nullptr || Priority(record) < Priority(*current)) current = &record;
    }
    if (group->closed && current == nullptr) continue;
    ReportedGroup& told = report.groups.emplace_back(
        ReportedGroup{group->name, group->members, group->issued, group->finished, group->closed});
    if (current != nullptr) told.current = Reported(*current, now);
  }
  return report;
}

std::string FlightRecorder::ToJson() const {
  const RankReport report = Report();
  const std::vector<FlightRecord> records = Records();
  const WallClock clock;
  std::vector<Noted> notes;
  {
    const Lock lock(*this);
    const std::uint64_t kept = std::min<std::uint64_t>(notes_taken_, std::size(notes_));
    for (std::uint64_t i = notes_taken_ - kept; i < notes_taken_; ++i)
      notes.push_back(notes_[i % std::size(notes_)]);
  }
  std::lock_guard lock(mutex_);
  std::string text = StrCat(
      "{\"format\":\"ait-flight-1\",\"rank\":", options_.rank, ",\"size\":", options_.size,
      ",\"host\":", Quoted(report.host), ",\"pid\":", report.pid,
      ",\"written_us\":", clock.At(clock.now()), ",\n\"step\":", report.step,
      ",\"phase\":", Quoted(report.phase),
      ",\"phase_since_us\":", notes.empty() ? std::string("null") : clock.At(notes.back().time),
      ",\n\"failure\":", Quoted(report.failure), ",\n\"hang_reports\":");
  text += Array(told_, [](const std::string& told) { return Quoted(told); });
  text += ",\n\"notes\":" + Array(notes, [&](const Noted& noted) {
            return StrCat("{\"step\":", noted.step, ",\"phase\":", Quoted(noted.phase),
                          ",\"time_us\":", clock.At(noted.time), "}");
          });
  text +=
      ",\n\"groups\":" + Array(report.groups, [](const ReportedGroup& group) {
        return StrCat("\n{\"name\":", Quoted(group.name),
                      ",\"members\":", Array(group.members, [](Rank rank) { return StrCat(rank); }),
                      ",\"issued\":", group.issued, ",\"finished\":", group.finished,
                      ",\"closed\":", group.closed, "}");
      });
  text += ",\n\"operations\":" + Array(records, [&](const FlightRecord& record) {
            const ReportedOperation told = Reported(record, clock.now());
            return StrCat(
                "\n{\"number\":", record.number, ",\"group\":", Quoted(GroupName(record.group)),
                ",\"sequence\":", record.sequence, ",\"kind\":", Quoted(told.kind),
                ",\"reduce\":", Quoted(told.reduce), ",\"dtype\":", Quoted(told.dtype),
                ",\"count\":", told.count, ",\"parts_hash\":\"", told.parts_hash,
                "\",\"peer\":", told.peer, ",\"tag\":", told.tag, ",\"label\":", Quoted(told.label),
                ",\"step\":", record.step, ",\"phase\":", Quoted(record.phase),
                ",\"state\":", Quoted(told.state), ",\"code\":", Quoted(told.code),
                ",\"issued_us\":", clock.At(record.issued),
                ",\"started_us\":", clock.At(record.started),
                ",\"finished_us\":", clock.At(record.finished),
                ",\"deadline_us\":", clock.At(record.deadline), "}");
          });
  return text + "}\n";
}

}  // namespace ait::inline v0
