// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_MEMORY_REPORT_H_
#define AIT_PARALLEL_MEMORY_REPORT_H_

// What a `DataParallel` engine holds in memory on this rank, measured, beside what the formulas say.
//
// With P elements of parameters, N ranks that shard, p, g bytes an element of parameters and
// gradients, and s of optimizer state (AdamW: 8, and 4 more for fp32 masters):
//
//   stage           parameters   gradients   states
//   0  kNone        p P          g P         s P
//   1  kOptimizer   p P          g P         s P / N
//   2  kGradients   p P          g P / N     s P / N
//   3  kParameters  p P / N      g P / N     s P / N
//
// (Rajbhandari et al., arXiv:1910.02054, with the dtypes of the run instead of a fixed K.) Beside
// these there are buckets in flight (stages 2 and 3), gathered units (stage 3) and padding.
//
//   std::puts(engine->Memory().Describe().c_str());

#include <cstdint>
#include <string>

namespace ait::inline v0 {

/// Bytes by what they are for.
struct MemoryBytes {
  std::int64_t parameters = 0;  // flat buffers or shards
  std::int64_t gradients = 0;   // flat buffers or shards
  std::int64_t masters = 0;     // fp32 masters, remainders or compensations
  std::int64_t states = 0;      // of the optimizer, without masters
  std::int64_t buckets = 0;     // gradients in flight
  std::int64_t gathered = 0;    // units that are whole at the moment; their peak in `peak_gathered`

  std::int64_t total() const {
    return parameters + gradients + masters + states + buckets + gathered;
  }
};

struct MemoryReport {
  MemoryBytes measured;            // of the buffers that there are
  MemoryBytes formula;             // of the table above: no padding, no buckets, no units
  std::int64_t padding = 0;        // part of `measured` that is no parameter's
  std::int64_t peak_buckets = 0;   // the most since Create
  std::int64_t peak_gathered = 0;  // the most since Create
  /// Bytes of state in a file. `measured` has the chunks of it that are in memory; `formula` none.
  std::int64_t offloaded = 0;

  /// A table for people: a line for each kind, measured beside formula.
  std::string Describe() const;
};

}  // namespace ait::inline v0

#endif  // AIT_PARALLEL_MEMORY_REPORT_H_
