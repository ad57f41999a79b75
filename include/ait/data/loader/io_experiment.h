// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_LOADER_IO_EXPERIMENT_H_
#define AIT_DATA_LOADER_IO_EXPERIMENT_H_

// Would the run be faster if its data came from memory? An experiment in the run itself, and what
// to do about the answer.
//
// The experiment stands between the program and its dataset. It first takes and copies batches
// until nothing is left that the dataset had read ahead. Then it takes turns: in steps from storage
// it takes one more batch from the dataset and gives the oldest it has to the program; in steps
// from memory it only gives. Both copy a batch and do the same work on the same kind of batch; what
// the former take longer is the price of the data. Every batch is delivered once and in order, so
// the run is a training run.
//
//   IoExperiment<TokenBatch> experiment({}, [&] { return data.Next(); });
//   while (!experiment.is_done()) {
//     const TokenBatch* batch = experiment.Next();
//     if (batch == nullptr) return data.status();
//     AIT_RETURN_IF_ERROR(trainer.Step(*batch, loss).status());
//   }
//   std::puts(ToText(experiment.report()).c_str());   // with free data 1.31 times as fast; …
//
// While it goes on the dataset is ahead of what was delivered: save no state of it before the end.
// On several ranks all run the experiment, with the same options, and with `ahead` set, or their
// turns drift apart. **Thread-safety.** One thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/data/loader/loader_statistics.h"

namespace ait::inline v0 {

struct IoExperimentOptions {
  int warmup_steps = 3;  // first steps, which are not counted; ≥ 0
  /// Steps of a turn from storage, ≥ 4, of which the second half counts; a turn from memory has as
  /// many as there are batches in memory.
  int steps = 20;
  int turns = 3;  // of each kind; ≥ 1
  /// Batches that the dataset may have read ahead, such as LoaderOptions::max_ahead. So many are
  /// taken and copied, or `steps` if that is more. 0: it is found out, by taking batches until one
  /// has to be waited for, at most 512; for data that costs nothing that makes a long turn.
  int ahead = 0;
  Clock* clock = &SystemClock();
};

/// What is known of how the data is read, for advice; what is not known stays nullopt.
struct IoFacts {
  /// Parts of the time of the reading threads, 0 to 1: in storage, in transforms (decoding), and in
  /// making batches of samples.
  std::optional<double> in_storage = std::nullopt;
  std::optional<double> in_transforms = std::nullopt;
  std::optional<double> in_collation = std::nullopt;
  std::optional<double> cache_hits = std::nullopt;      // part of the reads that a cache answered
  std::optional<double> bytes_per_read = std::nullopt;  // mean
  std::optional<bool> is_remote = std::nullopt;         // over a network
  std::optional<bool> is_one_file_a_sample = std::nullopt;
  std::optional<int> threads = std::nullopt;
  std::optional<int> cpus = std::nullopt;
};

/// What the statistics of a loader tell.
IoFacts FactsOf(const LoaderStatistics& statistics);

struct IoReport {
  double step_s = 0;              // median of a step with data from storage; 0: none was counted
  double step_from_memory_s = 0;  // the same from memory
  std::int64_t steps = 0;         // counted, of each kind at least

  /// How many times as fast the run would be with data that costs nothing; 1 if the difference is
  /// within the noise of the steps.
  double speedup = 1;
  /// Part of a step that is the price of the data, 0 to 1.
  double data_share = 0;
  /// Whether the two kinds of steps differ by more than three standard errors of their medians.
  bool is_significant = false;
};

/// What to do, the most promising first; empty if the data costs less than 0.5 % of a step.
std::vector<std::string> Advise(const IoReport& report, const IoFacts& facts = {});
/// A paragraph for people.
std::string ToText(const IoReport& report, const IoFacts& facts = {});

/// The part of an experiment that does not know the batch: whose turn it is, and the times.
class IoExperimentClock {
 public:
  explicit IoExperimentClock(const IoExperimentOptions& options);

  enum class Turn { kWarmup, kStorage, kMemory, kOver };
  Turn turn() const { return turn_; }
  /// Whether a turn from storage begins: batches are to be taken until one is `Taken` with false.
  bool is_time_to_fill() const { return turn_ == Turn::kStorage && step_ == 0; }
  /// A batch is asked for, and has been taken, to be kept.
  void Take() { taken_at_ = options_.clock->now(); }
  /// Whether one more is to be taken. `kept` are there.
  bool Taken(std::size_t kept);
  /// There will be none from storage any more: `kept` are left to be delivered.
  void EndStorage(std::size_t kept);
  /// The program asks for the next batch, that is, its step is over.
  void EndStep();
  /// The wait for the next batch begins, and with it the step.
  void BeginStep();
  IoReport report() const;

 private:
  const IoExperimentOptions options_;
  Turn turn_;
  int step_ = 0;   // of the turn
  int turns_ = 0;  // that are over, of both kinds
  std::size_t kept_ = 0;
  bool has_waited_ = false;  // for a batch of those that are being taken
  bool is_free_ = false;     // many were taken, and none was waited for
  bool has_no_storage_ = false;
  Duration shortest_step_ = Duration::zero();  // 0: none yet
  Time taken_at_;
  std::optional<Time> begin_;
  std::vector<double> from_storage_;
  std::vector<double> from_memory_;
};

template <typename Batch>
class IoExperiment {
 public:
  /// `next` gives the next batch, or nullptr. `copy` makes one that stays valid, such as
  /// `CopyBatch`; an error of it ends the experiment, and no batch is lost. `CopyBatch` refuses
  /// batches that a loader has copied to a device: measure those without `device_copy`.
  using Copy = std::function<StatusOr<Batch>(const Batch&)>;
  explicit IoExperiment(
      const IoExperimentOptions& options, std::function<const Batch*()> next,
      Copy copy = [](const Batch& batch) { return batch; })
      : clock_(options), next_(std::move(next)), copy_(std::move(copy)) {}

  /// The next batch; nullptr at the end of the data. Valid until the next call. After the last turn
  /// it passes on what `next` gives.
  const Batch* Next() {
    clock_.EndStep();
    if (is_held_) kept_.pop_front();
    is_held_ = false;
    if (clock_.is_time_to_fill()) {
      do {
        clock_.Take();
      } while (Keep() && clock_.Taken(kept_.size()));
    }
    clock_.BeginStep();
    if (clock_.turn() == IoExperimentClock::Turn::kStorage) Keep();
    if (!kept_.empty()) {
      // Steps from storage copy a batch, so these do as well.
      if (clock_.turn() == IoExperimentClock::Turn::kMemory)
        static_cast<void>(copy_(kept_.front()));
      is_held_ = true;
      return &kept_.front();
    }
    const Batch* not_copied = std::exchange(not_copied_, nullptr);
    return not_copied != nullptr ? not_copied : next_();
  }

  /// The last turn is over, or the data has ended. It is over once the program asks for the batch
  /// after its last step: that batch belongs to the program like every other.
  bool is_done() const { return clock_.turn() == IoExperimentClock::Turn::kOver; }
  /// What was measured so far.
  IoReport report() const { return clock_.report(); }

 private:
  // Takes one more batch; false if there is none, or if it cannot be copied.
  bool Keep() {
    const Batch* batch = next_();
    if (batch != nullptr) {
      if (StatusOr<Batch> copy = copy_(*batch); copy.ok()) {
        kept_.push_back(*std::move(copy));
        return true;
      }
      not_copied_ = batch;  // valid until the dataset is asked again
    }
    clock_.EndStorage(kept_.size());
    return false;
  }

  IoExperimentClock clock_;
  std::function<const Batch*()> next_;
  Copy copy_;
  std::deque<Batch> kept_;
  bool is_held_ = false;               // the first of them, by the program
  const Batch* not_copied_ = nullptr;  // comes after those that are kept
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_LOADER_IO_EXPERIMENT_H_
