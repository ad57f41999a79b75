// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_LOADER_BATCH_WORK_INTERNAL_H_
#define AIT_DATA_LOADER_BATCH_WORK_INTERNAL_H_

// A batch on its way from the plan to the consumer.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "ait/base/clock.h"
#include "ait/data/loader/bad_samples.h"
#include "ait/data/loader/data_batch.h"
#include "ait/data/plan/batch_plan.h"
#include "ait/data/sample_source.h"
#include "data/loader/device_copies_internal.h"

namespace ait::inline v0 {
namespace internal {

enum class Stage {
  kWaiting,       // planned; nothing is read
  kReading,       // threads read its samples, a source each
  kTransforming,  // threads transform them, a sample at a time
  kCollating,     // one thread repairs and collates
  kReady,
};

/// Samples of one source.
struct ReadGroup {
  std::int32_t source = 0;
  std::size_t begin = 0;  // of BatchWork::reads
  std::size_t end = 0;
};

/// A bad sample that was met for a row.
struct BadRead {
  std::size_t slot = 0;
  BadSample sample;
};

struct BatchWork {
  std::int64_t number = 0;  // in the order of the plan
  PlannedBatch planned;
  std::vector<SampleRead> reads;   // by source; the excluded ones last
  std::vector<std::size_t> slots;  // row of each of them
  std::vector<ReadGroup> groups;
  std::size_t excluded_begin = 0;
  std::int64_t estimate = 0;  // bytes of its samples, as the sources say
  DataBatch batch;
  Status status;             // not ok: it ends the data
  std::vector<BadRead> bad;  // by row and attempt
  /// Of `bad`, each once, since a batch that is filled up has rows twice: {source, epoch, position,
  /// attempt}.
  std::set<std::array<std::int64_t, 4>> bad_places;
  std::int64_t stand_ins = 0;
  bool is_repaired = false;  // no row is bad any more
  bool is_refused = false;   // collating ended for want of room, or because the loader stops
  std::int64_t bytes_read = 0;

  // Under the mutex of the loader.
  Stage stage = Stage::kWaiting;
  std::size_t next_group = 0;
  std::size_t groups_left = 0;
  int active = 0;         // threads at it
  std::int64_t need = 0;  // bytes that it is known to need
  std::int64_t bytes_transformed = 0;
  bool is_copied = false;             // to the device, or about to be
  std::unique_ptr<DeviceSet> device;  // of the consumer alone: where it was copied to
  Duration read{}, transform{}, collate{};

  // Written under the mutex.
  std::atomic<std::int64_t> charge = 0;  // bytes taken from the budget
  std::atomic<std::int64_t> actual = 0;  // of these, what is there, or soon is
  std::atomic<std::int64_t> size = 0;    // bytes of its samples
  std::atomic<std::int64_t> peak = 0;    // most bytes it had
  std::atomic<std::size_t> next = 0;     // sample to transform next
  std::atomic<std::size_t> done = 0;     // samples that are transformed
  std::atomic<bool> is_parked = false;   // no room to go on
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_LOADER_BATCH_WORK_INTERNAL_H_
