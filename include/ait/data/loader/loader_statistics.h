// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_LOADER_LOADER_STATISTICS_H_
#define AIT_DATA_LOADER_LOADER_STATISTICS_H_

// Where the time of a loader goes: what the training step waits for, and what the threads do.
//
//   const DataWait wait = loader->TakeWait();       // once a step
//   AddTo(step.metrics, wait);                      // "data_wait_us", "data_wait_permille"
//   Print(ToString(loader->statistics()));
//
// If `consumer_wait` is high, look at the largest of the stages: `read` is the storage, `transform`
// decoding and augmentation, `collate` memory bandwidth. If threads sleep (`idle`) while the
// consumer waits, the budget is too small for a batch more.

#include <cstdint>
#include <string>

#include "ait/base/clock.h"
#include "ait/base/types.h"
#include "ait/observe/step_metrics.h"

namespace ait::inline v0 {

/// Of a cache below the sources.
struct CacheCounts {
  std::int64_t hits = 0;
  std::int64_t misses = 0;
};

/// Since the loader was made. Times of stages are sums over all threads.
struct LoaderStatistics {
  std::int64_t batches = 0;       // delivered
  std::int64_t samples = 0;       // in them, filling and stand-ins included
  std::int64_t bytes = 0;         // of samples as they were read, of delivered batches
  std::int64_t bad_samples = 0;   // those that were counted
  std::int64_t stand_ins = 0;     // samples in the place of bad or excluded ones
  std::int64_t waits = 0;         // calls of Next that had to wait
  std::int64_t slow_batches = 0;  // that the watchdog spoke of
  std::int64_t given_up = 0;      // batches thrown away for want of memory, and read again
  Duration consumer_wait{};       // in Next, all that it does
  Duration read{};                // in SampleSource::Read
  Duration transform{};
  Duration collate{};
  Duration idle{};                // threads with nothing to do: the queue is full, or no room
  Duration longest_read{};        // of one call of SampleSource::Read …
  std::string longest_read_what;  // … and of what
  std::int64_t held_bytes = 0;    // samples, arrays and free buffers, now
  std::int64_t peak_bytes = 0;    // and at most
  std::int64_t buffers_made = 0;  // allocated so far: none more in steady state
  int depth = 0;                  // batches that may be ahead of the consumer, now
  int ready = 0;                  // batches that wait for the consumer, now
  CacheCounts cache;              // if LoaderOptions::cache_counts says them
};

/// A few lines, for people.
std::string ToString(const LoaderStatistics& statistics);

/// What the consumer waited since the call before.
struct DataWait {
  Duration wait{};     // in `Next`
  Duration elapsed{};  // in all
  /// The part of the time that was spent waiting, 0 to 1.
  double share() const {
    return elapsed.count() <= 0
               ? 0.0
               : static_cast<double>(wait.count()) / static_cast<double>(elapsed.count());
  }
};

/// Adds the counters `data_wait_us` and `data_wait_permille` to the report of a step.
void AddTo(StepMetrics& metrics, const DataWait& wait);

}  // namespace ait::inline v0

#endif  // AIT_DATA_LOADER_LOADER_STATISTICS_H_
