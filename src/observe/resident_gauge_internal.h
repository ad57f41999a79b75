// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OBSERVE_RESIDENT_GAUGE_INTERNAL_H_
#define AIT_OBSERVE_RESIDENT_GAUGE_INTERNAL_H_

// Resident memory of this process, read often: through files that stay open.

#include <cstdint>
#include <optional>
#include <string>

#include "ait/base/status.h"
#include "ait/observe/memory_phases.h"

namespace ait::inline v0::internal {

/// **Thread-safety.** One thread at a time.
class ResidentGauge {
 public:
  explicit ResidentGauge(std::string proc);
  ~ResidentGauge();
  ResidentGauge(const ResidentGauge&) = delete;
  ResidentGauge& operator=(const ResidentGauge&) = delete;

  /// From now on the kernel's high-water mark is set back at every `Read`, so that each has an
  /// exact peak. **Errors.** As the system says why it cannot be set back.
  Status UseHighWaterMark();

  /// Resident memory now; and the peak since the last call, where it is known: always with the
  /// high-water mark, else if the process has never been larger.
  MemoryUse Read();

 private:
  std::optional<Bytes> Peak();
  Status Reset();

  const std::string proc_;
  const std::int64_t page_bytes_;
  int statm_ = -1;
  int status_ = -1;  // only with the high-water mark
  int clear_refs_ = -1;
  std::int64_t largest_ = 0;  // KiB, by getrusage
};

}  // namespace ait::inline v0::internal

#endif  // AIT_OBSERVE_RESIDENT_GAUGE_INTERNAL_H_
