// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_LOADER_DATA_LOADER_H_
#define AIT_DATA_LOADER_DATA_LOADER_H_

// Batches from sources, in the order of a plan, read ahead by threads within a budget of bytes.
//
//   auto loader = DataLoader::Create(plan, {source}, {.shard = world->shard(), .seed = 1,
//                                                     .transform = DecodeAndCrop()});
//   if (!loader.ok()) return loader.status();
//   while (const DataBatch* batch = loader->Next()) Train(*batch);
//   return loader->status();                            // ok at the end, else why it ended early
//
// What is delivered, transforms and their random numbers included, is a function of plan, sources
// and seed. Threads, budget and depth change when it comes and nothing else.
//
// Batches are ahead of the consumer while they fit into the budget. How many is found out: one more
// whenever the consumer had to wait, one fewer after it long did not. A batch that is larger than
// the whole budget is read alone.
//
// Leave a loop by `break`, destroy the loader, or call `Cancel` at any time: threads end with the
// read they are in, and nothing is left behind. The loader never forks; in a forked child it is
// gone: it gives no batch, counts nothing, and may be destroyed.
//
// **Thread-safety.** One thread at a time for one object, but for `Cancel` and `statistics`, which
// may come from any. Several loaders may share plan, sources and memory.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ait/base/log.h"
#include "ait/base/shard.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/data/dataset_state.h"
#include "ait/data/decode/transform.h"
#include "ait/data/loader/bad_samples.h"
#include "ait/data/loader/collate.h"
#include "ait/data/loader/data_batch.h"
#include "ait/data/loader/loader_statistics.h"
#include "ait/data/plan/batch_plan.h"
#include "ait/data/sample_source.h"
#include "ait/device/runtime.h"
#include "ait/memory/resource.h"
#include "ait/topology/id_set.h"

namespace ait::inline v0 {

/// In which order batches are delivered.
enum class DeliveryOrder {
  kPlanned,  // that of the plan
  kAsReady,  // whichever is ready first: see DataLoader::delivered_ahead
};

/// Copies the arrays of each batch to a GPU, on a stream of its own, while the batch before is in
/// use.
struct DeviceCopyOptions {
  std::shared_ptr<DeviceRuntime> gpus;  // with a device
  Device device;
  /// The `cudaStream_t` in which the batches are used. It waits for the copy of a batch before
  /// `Next` returns it, and memory of the device is used again once it has come past that batch.
  /// Null: the default stream.
  void* consumer_stream = nullptr;
};

struct LoaderOptions {
  Shard shard;             // which rank of how many
  std::uint64_t seed = 0;  // of the transforms' random numbers; the same on all ranks
  Transform transform;     // of each sample; empty: none
  Collate collate;         // empty: Stack()
  /// Threads that read, transform and collate. Empty: as many as there are CPUs for them, at most
  /// 8. 0: `Next` does it all.
  std::optional<int> threads = {};
  CpuSet cpus = {};         // of the threads, such as RankLayout::loaders; empty: of the creator
  Bytes budget = MiB(256);  // most bytes of samples and batches, the one in use included
  int max_ahead = 64;       // most batches ahead of the consumer, ≥ 1
  DeliveryOrder order = DeliveryOrder::kPlanned;
  /// Memory of the arrays. Empty: pinned if there is a GPU, else on the NUMA node of the thread
  /// that calls `Create` if there are several, else the heap.
  MemoryHandle memory = {};
  std::optional<DeviceCopyOptions> device_copy = {};
  BadSamplePolicy bad_samples = {};
  /// After a wait of this length for one batch the log hears what it waits for; 0: never.
  std::chrono::milliseconds slow_batch = std::chrono::seconds(30);
  std::function<CacheCounts()> cache_counts = {};  // of a cache below, for the statistics
  LogSink* log = nullptr;  // hears of slow batches and stand-ins; outlives the loader
};

class DataLoader {
 public:
  /// `sources[i]` is the source that the plan calls i.
  /// **Errors.** InvalidArgument: an option out of range, no source, or others than the plan's;
  /// FailedPrecondition: no such GPU; those of `BadSampleLog::Open`, of the plan for its first
  /// batch, and of the memory.
  static StatusOr<DataLoader> Create(std::shared_ptr<const BatchPlan> plan,
                                     std::vector<std::shared_ptr<const SampleSource>> sources,
                                     LoaderOptions options = {});

  DataLoader(DataLoader&&) noexcept;
  DataLoader& operator=(DataLoader&&) noexcept;
  /// Ends the threads. **Blocks.** Until the calls of sources and transforms that are under way
  /// have returned.
  ~DataLoader();

  /// The next batch of this rank, or nullptr at the end of the data and after an error: see
  /// `status`. The first call starts the threads. **Ownership.** Valid until the next call of
  /// `Next` or `Restore`; its memory is used again. **Blocks.** Until the batch is read.
  const DataBatch* Next();
  /// Ok, or the error that made `Next` return nullptr. What threw is an error too.
  const Status& status() const;

  /// The state after the batches that `Next` has returned; what was only read ahead does not count.
  /// With DeliveryOrder::kAsReady: after the longest run of batches from the start that has been
  /// delivered without a gap.
  DatasetState state() const;
  /// With DeliveryOrder::kAsReady: the batches beyond `state` that have been delivered, by the state
  /// that the plan gives after each; fewer than max_ahead. They differ between ranks: who
  /// resumes with them has the same world size and gives each rank its own; who leaves them out
  /// gets those batches a second time, and none is lost.
  std::vector<DatasetState> delivered_ahead() const;

  /// Continues after `state`, which may come from another number of ranks, threads or another
  /// budget, without the batches `delivered_ahead`. Also after the end, an error or `Cancel`.
  /// **Blocks.** Until reads under way have returned. **Errors.** Those of the plan; the loader then
  /// goes on as if not called.
  Status Restore(const DatasetState& state, std::span<const DatasetState> delivered_ahead = {});

  /// Ends the data: `Next`, also one that waits, returns nullptr, and `status` is Cancelled.
  /// **Thread-safety.** From any thread.
  void Cancel();

  /// **Thread-safety.** From any thread.
  LoaderStatistics statistics() const;
  /// What `Next` waited since the call before, or since the loader was made.
  DataWait TakeWait();

 private:
  class Impl;
  explicit DataLoader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_LOADER_DATA_LOADER_H_
