// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/hang_report.h"

#include <algorithm>
#include <charconv>

namespace ait::inline v0 {
namespace {

using std::chrono::milliseconds;

/// "14 s", "250 ms".
std::string AgeText(milliseconds age) {
  if (age < std::chrono::seconds(2)) return StrCat(age.count(), " ms");
  return StrCat(std::chrono::floor<std::chrono::seconds>(age).count(), " s");
}

/// Fields of a line end with a tab, lines with a newline; texts have neither.
std::string Field(std::string_view text) {
  std::string field(text);
  std::replace_if(field.begin(), field.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return field + '\t';
}

class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}

  std::string Text() {
    const std::size_t end = rest_.find('\t');
    ok_ = ok_ && end != std::string_view::npos;
    if (!ok_) return {};
    std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return text;
  }
  template <typename T>
  void Read(T& value) {
    const std::string text = Text();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    ok_ = ok_ && error == std::errc() && end == text.data() + text.size();
  }
  void Read(std::string& value) { value = Text(); }
  void Read(milliseconds& value) {
    std::int64_t count = 0;
    Read(count);
    value = milliseconds(count);
  }
  void Read(bool& value) {
    int number = 0;
    Read(number);
    value = number != 0;
  }
  bool ok() const { return ok_; }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace

std::string ReportedOperation::Describe() const {
  std::string text = kind;
  if (!reduce.empty()) text += StrCat(" (", reduce, ")");
  if (!dtype.empty()) text += StrCat(" of ", count, " ", dtype);
  if (kind == "send") text += StrCat(" to rank ", peer, ", tag ", tag);
  if (kind == "receive") text += StrCat(" from rank ", peer, ", tag ", tag);
  if (has_root()) text += StrCat(", root ", peer);
  if (!is_message()) text += StrCat(", sequence ", sequence);
  if (!label.empty()) text += ", " + label;
  return text;
}

std::string RankReport::Where() const {
  if (!is_known || phase.empty()) return {};
  return StrCat("step ", step, ", ", phase, ", for ", AgeText(age));
}

std::string RankReport::Serialize() const {
  std::string text = StrCat("rank\t", rank, "\t", Field(host), pid, "\t", step, "\t", Field(phase),
                            age.count(), "\t", Field(failure), "\n");
  for (const ReportedGroup& group : groups) {
    text += StrCat("group\t", Field(group.name), group.issued, "\t", group.finished, "\t",
                   group.closed ? 1 : 0, "\t", group.members.size(), "\t");
    for (const Rank member : group.members) text += StrCat(member, "\t");
    text += "\n";
    if (!group.current) continue;
    const ReportedOperation& now = *group.current;
    text += StrCat("current\t", now.sequence, "\t", Field(now.kind), Field(now.reduce),
                   Field(now.dtype), now.count, "\t", now.parts_hash, "\t", now.peer, "\t", now.tag,
                   "\t", Field(now.label), Field(now.state), Field(now.code));
    text += StrCat(now.age.count(), "\t\n");
  }
  return text;
}

StatusOr<RankReport> RankReport::Parse(std::string_view text) {
  RankReport report{.is_known = true};
  bool has_rank = false;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    LineReader reader(line);
    const std::string what = reader.Text();
    if (what == "rank") {
      int rank = 0;
      reader.Read(rank);
      reader.Read(report.host);
      reader.Read(report.pid);
      reader.Read(report.step);
      reader.Read(report.phase);
      reader.Read(report.age);
      reader.Read(report.failure);
      report.rank = Rank(rank);
      has_rank = true;
    } else if (what == "group") {
      ReportedGroup group;
      std::size_t members = 0;
      reader.Read(group.name);
      reader.Read(group.issued);
      reader.Read(group.finished);
      reader.Read(group.closed);
      reader.Read(members);
      for (std::size_t i = 0; i < members && reader.ok(); ++i) {
        int member = 0;
        reader.Read(member);
        group.members.push_back(Rank(member));
      }
      report.groups.push_back(std::move(group));
    } else if (what == "current" && !report.groups.empty()) {
      ReportedOperation now;
      reader.Read(now.sequence);
      reader.Read(now.kind);
      reader.Read(now.reduce);
      reader.Read(now.dtype);
      reader.Read(now.count);
      reader.Read(now.parts_hash);
      reader.Read(now.peer);
      reader.Read(now.tag);
      reader.Read(now.label);
      reader.Read(now.state);
      reader.Read(now.code);
      reader.Read(now.age);
      report.groups.back().current = std::move(now);
    } else {
      return DataLossError("the report of a rank holds the line \"", line, "\"");
    }
    if (!reader.ok()) return DataLossError("the report of a rank holds the line \"", line, "\"");
  }
  if (!has_rank) return DataLossError("the report of a rank is empty");
  return report;
}

std::string_view Name(HangCause cause) {
  switch (cause) {
    case HangCause::kNone:
      return "nothing is wrong";
    case HangCause::kMismatch:
      return "mismatch";
    case HangCause::kDied:
      return "died";
    case HangCause::kSilent:
      return "does not answer";
    case HangCause::kMissing:
      return "missing";
    case HangCause::kSlow:
      return "slow";
    case HangCause::kFailed:
      return "failed";
  }
  return "unknown";
}

}  // namespace ait::inline v0
