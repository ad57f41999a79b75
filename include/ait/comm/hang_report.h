// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_HANG_REPORT_H_
#define AIT_COMM_HANG_REPORT_H_

// What a rank says of itself, and the verdict over what all ranks say: who is missing from which
// operation, where it is instead, who means another operation, who died.
//
// The same reasoning serves a run that hangs, whose ranks report through the store, and one that is
// over, whose ranks left files (`ait hang DIR`).
//
//   HangVerdict verdict = Judge(reports);
//   // "rank 3 is missing from all-reduce (sum) of 1024 float32, sequence 7, bucket 3: last seen at
//   //  step 812, data, 14 s ago"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/base/types.h"

namespace ait::inline v0 {

/// An operation as far as the peers need to know it. Names are those of `Name(...)`.
struct ReportedOperation {
  std::uint64_t sequence = 0;  // 0 for send and receive
  std::string kind;
  std::string reduce;  // empty where there is none
  std::string dtype;
  std::int64_t count = 0;
  std::uint64_t parts_hash = 0;
  std::int32_t peer = 0;  // root, destination or source
  std::uint32_t tag = 0;
  std::string label;
  std::string state;
  std::string code;  // of the error, if it failed
  std::chrono::milliseconds age{0};

  bool is_message() const { return kind == "send" || kind == "receive"; }
  bool has_root() const { return kind == "broadcast" || kind == "gather" || kind == "scatter"; }
  /// "all-reduce (sum) of 1024 float32, sequence 7, bucket 3".
  std::string Describe() const;
};

/// The fields in which two operations differ that ranks should have in common: "dtype, count".
/// Empty if they agree.
std::string DifferingFields(const ReportedOperation& a, const ReportedOperation& b);

struct ReportedGroup {
  std::string name;
  std::vector<Rank> members;   // ranks of the world, by rank in the group
  std::uint64_t issued = 0;    // sequence number of the last collective called
  std::uint64_t finished = 0;  // and of the last one done
  bool closed = false;
  std::optional<ReportedOperation> current;  // the first that is not done: waits, or failed
};

struct RankReport {
  enum class Presence {
    kAnswered,  // it reports itself
    kSilent,    // it does not answer: stopped, or its host hangs; the rest is what was heard before
    kDied,
  };
  Rank rank;
  Presence presence = Presence::kAnswered;
  bool is_known = false;  // anything below was ever heard
  std::string host;
  std::int64_t pid = 0;
  std::int64_t step = 0;
  std::string phase;                 // empty if the program notes none
  std::chrono::milliseconds age{0};  // since the last note, or since it was heard if it is silent
  std::string failure;               // why the run was over for it
  std::vector<ReportedGroup> groups;

  /// "step 812, data, for 14 s"; empty if the program notes nothing.
  std::string Where() const;

  /// One line per fact, and back; for the store.
  std::string Serialize() const;
  static StatusOr<RankReport> Parse(std::string_view text);
};

enum class HangCause {
  kNone,      // nothing waits, nothing failed
  kMismatch,  // the ranks ask for different operations
  kDied,
  kSilent,   // a rank does not answer
  kMissing,  // a rank is elsewhere
  kSlow,     // all came, and the data do not arrive
  kFailed,   // an operation failed for another reason
};
std::string_view Name(HangCause cause);

struct HangVerdict {
  HangCause cause = HangCause::kNone;
  std::vector<Rank> ranks;  // that caused it
  std::string group;
  std::string operation;  // that waits or failed
  std::string text;       // one sentence for people
};

/// The verdict over the reports of all ranks, one each. `asking` looks at what that rank waits for;
/// without it, the rank that waits longest counts.
HangVerdict Judge(const std::vector<RankReport>& reports, std::optional<Rank> asking = {});

}  // namespace ait::inline v0

#endif  // AIT_COMM_HANG_REPORT_H_
