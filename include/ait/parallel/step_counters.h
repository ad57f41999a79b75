// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_STEP_COUNTERS_H_
#define AIT_PARALLEL_STEP_COUNTERS_H_

// What one training step of `DataParallel` did: how much it communicated, and how long it waited.
//
//   StepCounters c = engine->counters();
//   double exposed = Seconds(c.exposed) / Seconds(c.forward + c.backward + c.exposed + c.update);

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ait/base/clock.h"

namespace ait::inline v0 {

constexpr double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// One bucket in one step. Times count from the begin of the last backward.
struct BucketCounters {
  std::int64_t bytes = 0;
  int unused_parameters = 0;  // that backward did not reach; they contribute zeros
  Duration ready{};           // all gradients there, the reduction was issued
  Duration communication{};   // from the begin of the reduction to its end
  Duration exposed{};         // that the step stood still for it
};

/// What gradient compression did on this rank. Bytes sent are those of the best algorithm of each
/// collective: 2 (N-1)/N of an all-reduced buffer, (N-1)/N of an all-to-all's, N-1 times the own part
/// of an all-gather.
struct CompressionCounters {
  std::int64_t collectives = 0;
  std::int64_t handed_bytes = 0;  // to these collectives
  std::int64_t sent_bytes = 0;
  std::int64_t exact_sent_bytes = 0;  // that all-reduces of the buckets would have sent
  /// Sums of squares over what is compressed: of what this rank had to send, its residual included,
  /// and of the part that it did not.
  double squares = 0;
  double error_squares = 0;

  /// How many times fewer bytes; 0 if nothing was sent.
  double ratio() const;
  /// Norm of what was not sent over the norm of what there was to send; 0 if there was nothing.
  double relative_error() const;
  CompressionCounters& operator+=(const CompressionCounters& other);
};

struct StepCounters {
  std::int64_t step = 0;  // counted from 1
  int micro_steps = 0;
  int unused_parameters = 0;            // in the last micro-step, on this rank
  int unreduced_buckets = 0;            // always 0 after a step that ended well
  std::int64_t collectives = 0;         // of the step, the one small reduction included
  std::int64_t communicated_bytes = 0;  // handed to these collectives on this rank
  Duration forward{};                   // from BeginMicroStep to Backward, all micro-steps
  Duration backward{};                  // within Backward, waiting excluded
  Duration communication{};             // sum over buckets
  Duration exposed{};                   // waiting for buckets and for the small reduction
  Duration overlap{};               // part of the buckets' communication that hid behind backward
  Duration update{};                // optimizer
  std::int64_t gathers = 0;         // of units (ZeRO-3), in forward and in backward
  std::int64_t gathered_bytes = 0;  // of the whole units
  Duration gather_exposed{};        // that forward and backward stood still for them
  std::int64_t gather_surprises =
      0;  // uses of units in another order than in the micro-step before
  std::vector<BucketCounters> buckets;  // in order of reduction
  CompressionCounters compression;      // zeros without compression
};

}  // namespace ait::inline v0

#endif  // AIT_PARALLEL_STEP_COUNTERS_H_
