// SPDX-License-Identifier: Apache-2.0
// The verdict over the reports of all ranks.
#include <algorithm>
#include <map>
#include <utility>

#include "ait/comm/hang_report.h"

namespace ait::inline v0 {
namespace {

using Presence = RankReport::Presence;

const ReportedGroup* FindGroup(const RankReport& report, std::string_view name) {
  for (const ReportedGroup& group : report.groups)
    if (group.name == name) return &group;
  return nullptr;
}

/// What is waited for: the operation of one rank.
struct Wait {
  const RankReport* rank = nullptr;
  const ReportedGroup* group = nullptr;
  const ReportedOperation& operation() const { return *group->current; }
};

/// Worse than a plain wait is what has failed; a refusal or an abort only follows from others.
bool IsBetterWitness(const Wait& a, const Wait& b) {
  const auto weight = [](const ReportedOperation& operation) {
    if (operation.code == "ABORTED" || operation.code == "CANCELLED") return 0;
    return operation.is_message() ? 1 : 2;
  };
  const int weight_a = weight(a.operation());
  const int weight_b = weight(b.operation());
  if (weight_a != weight_b) return weight_a > weight_b;
  // Of one group, whoever is the furthest behind waits for an operation that others have not
  // reached only if these are missing; the longest wait began first.
  return a.operation().age > b.operation().age;
}

std::optional<Wait> LongestWait(const std::vector<RankReport>& reports,
                                std::optional<Rank> asking) {
  std::optional<Wait> longest;
  for (const RankReport& report : reports) {
    if (!report.is_known || (asking && report.rank != *asking)) continue;
    if (!asking && report.presence != Presence::kAnswered) continue;
    for (const ReportedGroup& group : report.groups) {
      if (!group.current) continue;
      const Wait wait{&report, &group};
      if (!longest || IsBetterWitness(wait, *longest)) longest = wait;
    }
  }
  return longest;
}

std::string LastSeen(const RankReport& report, const ReportedGroup* group) {
  std::string text;
  if (const std::string where = report.Where(); !where.empty()) text += ": last seen at " + where;
  if (group != nullptr) {
    text += StrCat(text.empty() ? ": " : "; ", "last finished sequence ", group->finished);
    if (group->closed) text += ", and it has left the group";
  }
  for (const ReportedGroup& other : report.groups) {
    if (&other == group || !other.current || other.current->state != "waiting") continue;
    text += StrCat(text.empty() ? ": " : "; ", "it waits in ", other.current->Describe(),
                   " of group ", other.name);
    break;
  }
  return text;
}

std::string Process(const RankReport& report) {
  if (!report.is_known || report.host.empty()) return {};
  return StrCat(" (pid ", report.pid, " on ", report.host, ")");
}

class Judgement {
 public:
  Judgement(const std::vector<RankReport>& reports, Wait wait) : wait_(wait) {
    for (const RankReport& report : reports) by_rank_[report.rank.value()] = &report;
  }

  HangVerdict Verdict() {
    verdict_.group = wait_.group->name;
    verdict_.operation = wait_.operation().Describe();
    std::vector<Rank> members = wait_.group->members;
    if (wait_.operation().is_message()) members = PeerOfMessage();
    for (const Rank member : members)
      if (member != wait_.rank->rank) Look(member);
    return Decide();
  }

 private:
  std::vector<Rank> PeerOfMessage() const {
    const auto peer = static_cast<std::size_t>(wait_.operation().peer);
    if (peer >= wait_.group->members.size()) return {};
    return {wait_.group->members[peer]};
  }

  void Add(HangCause cause, Rank rank, std::string text) {
    findings_[cause].emplace_back(rank, std::move(text));
  }

  /// What keeps `rank` from the operation that is waited for.
  void Look(Rank rank) {
    const ReportedOperation& wanted = wait_.operation();
    const auto found = by_rank_.find(rank.value());
    if (found == by_rank_.end()) {
      return Add(HangCause::kSilent, rank, StrCat("rank ", rank, " has left no report"));
    }
    const RankReport& report = *found->second;
    const ReportedGroup* group = report.is_known ? FindGroup(report, wait_.group->name) : nullptr;
    if (report.presence == Presence::kDied) {
      return Add(HangCause::kDied, rank,
                 StrCat("rank ", rank, Process(report), " died", LastSeen(report, group)));
    }
    if (report.presence == Presence::kSilent) {
      return Add(HangCause::kSilent, rank,
                 StrCat("rank ", rank, Process(report),
                        " does not answer (stopped, or its host hangs)", LastSeen(report, group)));
    }
    if (wanted.is_message()) {
      return Add(HangCause::kMissing, rank,
                 StrCat("rank ", rank, Process(report), " has no part in it yet",
                        LastSeen(report, group)));
    }
    if (group == nullptr || group->issued < wanted.sequence) {
      return Add(HangCause::kMissing, rank,
                 StrCat("rank ", rank, Process(report), " is missing", LastSeen(report, group)));
    }
    if (group->finished >= wanted.sequence) return;  // it is done there
    if (!group->current) return;
    const ReportedOperation& other = *group->current;
    // A rank that is ahead has passed over what is waited for: refused it, or counted otherwise.
    const std::string difference = other.sequence < wanted.sequence && other.state == "failed"
                                       ? std::string()
                                       : DifferingFields(wanted, other);
    if (!difference.empty()) {
      Add(HangCause::kMismatch, rank,
          StrCat("rank ", rank, ": ", other.Describe(), " (differs in ", difference, ")"));
    }
  }

  HangVerdict Decide() {
    const ReportedOperation& wanted = wait_.operation();
    // In the order of what explains the others.
    for (const HangCause cause :
         {HangCause::kDied, HangCause::kMismatch, HangCause::kSilent, HangCause::kMissing}) {
      const auto found = findings_.find(cause);
      if (found == findings_.end()) continue;
      verdict_.cause = cause;
      for (const auto& [rank, text] : found->second) verdict_.ranks.push_back(rank);
      if (cause == HangCause::kMismatch) {
        verdict_.text =
            StrCat("the ranks ask for different operations in group ", verdict_.group, ": rank ",
                   wait_.rank->rank, ": ", verdict_.operation, "; ", Texts(found->second));
      } else {
        verdict_.text =
            StrCat(verdict_.operation, " of group ", verdict_.group, ", for which rank ",
                   wait_.rank->rank, WaitText(), ": ", Texts(found->second));
      }
      return verdict_;
    }
    if (wanted.state == "failed" && wanted.code != "DEADLINE_EXCEEDED") {
      verdict_.cause = HangCause::kFailed;
      verdict_.ranks = {wait_.rank->rank};
      verdict_.text = StrCat("rank ", wait_.rank->rank, ": ", verdict_.operation, " of group ",
                             verdict_.group, " failed with ", wanted.code,
                             wait_.rank->failure.empty() ? "" : ": ", wait_.rank->failure);
      return verdict_;
    }
    verdict_.cause = HangCause::kSlow;
    verdict_.text = StrCat(verdict_.operation, " of group ", verdict_.group, ", for which rank ",
                           wait_.rank->rank, WaitText(),
                           ": all ranks came, and the data do not arrive: a slow network, or a "
                           "rank that gets no CPU");
    return verdict_;
  }

  std::string WaitText() const {
    const ReportedOperation& wanted = wait_.operation();
    const auto seconds = std::chrono::duration<double>(wanted.age).count();
    const auto tenths = static_cast<std::int64_t>(seconds * 10);
    return StrCat(wanted.state == "failed" ? " waited until it failed (issued " : " waits (issued ",
                  tenths / 10, ".", tenths % 10, " s ago)");
  }

  static std::string Texts(const std::vector<std::pair<Rank, std::string>>& findings) {
    constexpr std::size_t kTold = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(findings.size(), kTold); ++i)
      text += StrCat(i > 0 ? "; " : "", findings[i].second);
    if (findings.size() > kTold) text += StrCat("; and ", findings.size() - kTold, " more ranks");
    return text;
  }

  const Wait wait_;
  std::map<int, const RankReport*> by_rank_;
  std::map<HangCause, std::vector<std::pair<Rank, std::string>>> findings_;
  HangVerdict verdict_;
};

}  // namespace

std::string DifferingFields(const ReportedOperation& a, const ReportedOperation& b) {
  std::string fields;
  const auto differ = [&](bool different, std::string_view field) {
    if (different) fields += StrCat(fields.empty() ? "" : ", ", field);
  };
  differ(a.sequence != b.sequence, "sequence");
  differ(a.kind != b.kind, "kind");
  differ(a.dtype != b.dtype, "dtype");
  if (a.kind == b.kind) {
    differ(a.reduce != b.reduce, "reduction");
    if (a.kind != "all-to-all") {
      differ(a.count != b.count, "count");
      differ(a.count == b.count && a.parts_hash != b.parts_hash, "parts");
    }
    if (a.has_root()) differ(a.peer != b.peer, "root");
  }
  return fields;
}

HangVerdict Judge(const std::vector<RankReport>& reports, std::optional<Rank> asking) {
  const std::optional<Wait> wait = LongestWait(reports, asking);
  if (wait) return Judgement(reports, *wait).Verdict();
  return {.text = "no rank waits for another, and no operation has failed"};
}

}  // namespace ait::inline v0
