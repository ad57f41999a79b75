// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_BANDWIDTH_H_
#define AIT_MEMORY_BANDWIDTH_H_

// How fast memory is, measured: reads, copies and triads (a = b + 3 c, as STREAM) on any number of
// threads, and the time that one load waits for another.
//
// The limit that a training step on CPUs runs into. Give it the memory of a node ("numa.h") and
// CPUs of another one to see what lies between them; `ait bench memory` does so for all pairs.
//
//   AIT_ASSIGN_OR_RETURN(auto probe, BandwidthProbe::Create({.threads = {{0}, {1}}}));
//   AIT_ASSIGN_OR_RETURN(BandwidthResult copy, probe->Measure(BandwidthKernel::kCopy));
//   Print(copy.best / 1e9);                                                    // GB/s
//
// Arrays have to be well above the last-level cache, or it is the cache that is measured. Stores go
// past the caches, so that what is counted is what moves: a byte once when it is read and once when
// it is written. **Blocks.** Both for as long as they measure, and they load the memory fully.

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ait/base/simd.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/memory/resource.h"
#include "ait/topology/id_set.h"

namespace ait::inline v0 {

enum class BandwidthKernel {
  kRead,   // sums b: 1 byte moved for each byte of an array
  kCopy,   // a = b: 2
  kTriad,  // a = b + 3 c: 3
};

/// "read", "copy" or "triad".
std::string_view Name(BandwidthKernel kernel);

struct BandwidthOptions {
  MemoryHandle memory = {};      ///< of the three arrays; empty: a heap of its own
  Bytes array_bytes = MiB(512);  ///< of each array: 4 KiB per thread or more
  /// One thread for each, bound to these CPUs; an empty set: not bound. Each touches and works on
  /// a part of the arrays of its own.
  std::vector<CpuSet> threads = {CpuSet()};
  int repetitions = 7;                       ///< of each measurement, at least 1
  SimdLevel max_level = SimdLevel::kAvx512;  ///< caps the vector instructions
};

/// Bytes moved in a second by all threads together.
struct BandwidthResult {
  double best = 0;  // of the repetitions
  double median = 0;
};

class BandwidthProbe {
 public:
  /// Allocates the arrays and starts the threads, which touch them. **Errors.** InvalidArgument: an
  /// option out of its range. ResourceExhausted: no memory, no thread. Those of BindThisThread.
  static StatusOr<std::unique_ptr<BandwidthProbe>> Create(BandwidthOptions options);
  BandwidthProbe(const BandwidthProbe&) = delete;
  BandwidthProbe& operator=(const BandwidthProbe&) = delete;
  ~BandwidthProbe();

  /// **Thread-safety.** One call at a time.
  BandwidthResult Measure(BandwidthKernel kernel);

  /// The arrays a, b and c. A copy or triad leaves its result in a; b is 1 and c is 2 everywhere.
  std::span<const float> array(int index) const;

 private:
  struct Impl;
  explicit BandwidthProbe(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

struct LatencyOptions {
  MemoryHandle memory = {};  ///< empty: a heap of its own
  Bytes bytes = MiB(256);    ///< that are walked through: at least 4 KiB
  CpuSet cpus = {};          ///< of the thread that walks; empty: this thread's
  int repetitions = 3;       ///< of which the best counts, at least 1
};

/// Nanoseconds of one load whose address is the result of the load before: a walk over all cache
/// lines in random order. Transparent huge pages, where `memory` has them, leave less of it to the
/// translation of addresses. **Errors.** As of BandwidthProbe::Create.
StatusOr<double> MeasureLatency(const LatencyOptions& options);

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_BANDWIDTH_H_
