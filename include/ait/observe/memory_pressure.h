// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OBSERVE_MEMORY_PRESSURE_H_
#define AIT_OBSERVE_MEMORY_PRESSURE_H_

// How near this process is to being refused memory, or killed for it, and by which limit.
//
// A limit of a cgroup, or the end of the machine's memory, does not make an allocation fail: the
// kernel kills a process instead, later, when a page is touched. So it is watched:
//
//   MemoryPressureWatch watch;
//   MemoryPressure pressure = watch.Read();
//   if (pressure.verdict != MemoryVerdict::kOk) Warn(pressure.reason);
//   // "/sys/fs/cgroup/memory.max is 2.0 GiB and 1.9 GiB are used: 68.0 MiB are left"
//
// It looks at the memory cgroups of this process and all their parents (version 1 and 2), at the
// machine, at RLIMIT_AS and RLIMIT_DATA, at swap, and at the stalls that the kernel counts (PSI).
// File cache that can be dropped does not count as used, as in ait/topology/budget.h. What cannot be
// read does not limit.
//
// **Cost.** `Read` reads about ten small files: about 100 microseconds.
// **Thread-safety.** One thread at a time.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/types.h"
#include "ait/topology/system_roots.h"

namespace ait::inline v0 {

enum class MemoryVerdict : std::uint8_t {
  kOk,
  kTight,   // the limit is near, or memory is being pushed out: slow, and soon worse
  kAtRisk,  // the next large allocation may fail or end the process
};

/// "ok", "tight", "at risk".
std::string_view Name(MemoryVerdict verdict);

/// What happens at a limit.
enum class LimitEffect : std::uint8_t {
  kKills,      // the kernel ends a process: cgroup limits, the machine
  kThrottles,  // processes are slowed down: memory.high
  kRefuses,    // allocations fail: RLIMIT_AS, RLIMIT_DATA
};

/// One limit and what is left below it.
struct MemoryRoom {
  std::string source;  // the file, with the name of the limit where the file has several
  LimitEffect effect = LimitEffect::kKills;
  Bytes limit;
  Bytes used;

  Bytes left() const { return Bytes(limit.value() - used.value()); }
};

struct MemoryPressureOptions {
  /// Verdict by what is left of a limit: below these parts of it, or below these bytes, whichever
  /// is less.
  double tight_part = 0.10;
  double at_risk_part = 0.03;
  Bytes tight_bytes = GiB(4);
  Bytes at_risk_bytes = GiB(1);
  /// Part of the last ten seconds in which some task of the cgroup (or of the machine) stood still
  /// for memory: tight; in which all of them did: at risk.
  double stalled_part = 0.10;
  /// Bytes of this process that went to swap since the last look: tight.
  Bytes swapped_bytes = MiB(16);
  SystemRoots roots;
};

struct MemoryPressure {
  MemoryVerdict verdict = MemoryVerdict::kOk;
  /// What sets the verdict: one sentence with file and values, and the file. Empty if ok.
  std::string reason;
  std::string source;

  /// All limits found, the one with the least room first.
  std::vector<MemoryRoom> rooms;
  std::optional<Bytes> swapped;        // of this process, in swap
  std::optional<Bytes> swap_free;      // of the machine; nullopt: there is no swap, or unknown
  std::optional<double> some_stalled;  // part of the last ten seconds
  std::optional<double> full_stalled;
  std::optional<std::int64_t> kills;  // by the kernel in these cgroups, since the watch began

  /// The limit that allows the least.
  const MemoryRoom* tightest() const { return rooms.empty() ? nullptr : &rooms.front(); }
  /// Verdict, reason, and a line for each limit, for people.
  std::string Describe() const;
};

class MemoryPressureWatch {
 public:
  explicit MemoryPressureWatch(MemoryPressureOptions options = {});
  MemoryPressureWatch(MemoryPressureWatch&&) noexcept;
  MemoryPressureWatch& operator=(MemoryPressureWatch&&) noexcept;
  ~MemoryPressureWatch();

  MemoryPressure Read();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_OBSERVE_MEMORY_PRESSURE_H_
