// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_LOADER_IO_EXPERIMENT_H_
#define AIT_DATA_LOADER_IO_EXPERIMENT_H_

// Would the run be faster if its data came from memory? An experiment in the run itself, and what
// to do about the answer.
//
// The experiment stands between the program and its dataset. It takes turns: some steps with
// batches that it has read and copied before their first step begins, some with batches as the
// dataset delivers them. Both do the same work on the same kind of batch; what the latter take
// longer is the price of the data. Every batch is delivered once and in order, so the run is a
// training run.
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
// On several ranks all run the experiment, with the same options. **Thread-safety.** One thread.

#include <cstddef>
#include <cstdint>
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
  /// Steps of a turn, ≥ 4. Of those from storage only the second half counts: the first empties
  /// what was read ahead.
  int steps = 20;
  int turns = 3;  // of each kind; ≥ 1
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

  enum class Turn { kWarmup, kMemory, kStorage, kOver };
  Turn turn() const { return turn_; }
  /// Whether a turn from memory begins: `steps` batches are to be read now.
  bool is_time_to_fill() const { return turn_ == Turn::kMemory && step_ == 0; }
  int steps() const { return options_.steps; }
  /// The program asks for the next batch, that is, its step is over.
  void EndStep();
  /// The wait for the next batch begins, and with it the step.
  void BeginStep();
  /// There are no more batches.
  void End() { turn_ = Turn::kOver; }
  IoReport report() const;

 private:
  const IoExperimentOptions options_;
  Turn turn_;
  int step_ = 0;   // of the turn
  int turns_ = 0;  // that are over, of both kinds
  std::optional<Time> begin_;
  std::vector<double> from_storage_;
  std::vector<double> from_memory_;
};

template <typename Batch>
class IoExperiment {
 public:
  /// `next` gives the next batch, or nullptr. `copy` makes one that stays valid, such as
  /// `CopyBatch`; an error of it ends the experiment, and no batch is lost.
  using Copy = std::function<StatusOr<Batch>(const Batch&)>;
  explicit IoExperiment(
      const IoExperimentOptions& options, std::function<const Batch*()> next,
      Copy copy = [](const Batch& batch) { return batch; })
      : clock_(options), next_(std::move(next)), copy_(std::move(copy)) {}

  /// The next batch; nullptr at the end of the data. Valid until the next call. After the last turn
  /// it passes on what `next` gives.
  const Batch* Next() {
    clock_.EndStep();
    if (clock_.is_time_to_fill()) Fill();
    clock_.BeginStep();
    if (used_ < kept_.size()) return &kept_[used_++];
    const Batch* not_copied = std::exchange(not_copied_, nullptr);
    const Batch* batch = not_copied != nullptr ? not_copied : next_();
    if (batch == nullptr || not_copied != nullptr) clock_.End();
    return batch;
  }

  /// The last turn is over, or the data has ended. It is over once the program asks for the batch
  /// after its last step: that batch belongs to the program like every other.
  bool is_done() const { return clock_.turn() == IoExperimentClock::Turn::kOver; }
  /// What was measured so far.
  IoReport report() const { return clock_.report(); }

 private:
  void Fill() {
    kept_.clear();
    used_ = 0;
    while (static_cast<int>(kept_.size()) < clock_.steps()) {
      const Batch* batch = next_();
      if (batch == nullptr) break;
      StatusOr<Batch> copy = copy_(*batch);
      if (!copy.ok()) {
        not_copied_ = batch;  // valid until the dataset is asked again
        break;
      }
      kept_.push_back(*std::move(copy));
    }
  }

  IoExperimentClock clock_;
  std::function<const Batch*()> next_;
  Copy copy_;
  std::vector<Batch> kept_;
  std::size_t used_ = 0;
  const Batch* not_copied_ = nullptr;  // comes after those that are kept
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_LOADER_IO_EXPERIMENT_H_
