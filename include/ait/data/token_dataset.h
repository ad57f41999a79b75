// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_TOKEN_DATASET_H_
#define AIT_DATA_TOKEN_DATASET_H_

// Batches for a language model: every window of a corpus exactly once per epoch, over any number of
// ranks, resumable to the sample.
//
// Sample k is the window of tokens k·L … k·L+L of the stream, with L = sequence_length: neighbours
// share one token, which is the last target of one and the first input of the other. A corpus of T
// tokens has floor((T-1)/L) samples; what is left at its end is not used. Samples come in the order
// of "ait/data/order.h". A batch is the next global_batch_size samples of that order, and runs on
// into the next epoch where one ends, so that all batches are of the same size but the very last
// one. Each rank gets a contiguous part of the batch; parts differ by at most one sample, and so do
// the totals of the ranks.
//
//   auto data = TokenDataset::Open("corpus", {.sequence_length = 256, .global_batch_size = 32,
//                                             .shard = world->shard(), .seed = 1});
//   if (!data.ok()) return data.status();
//   while (const TokenBatch* batch = data->Next()) Train(*batch);
//   return data->status();                              // ok at the end, else why it ended early
//
// **Thread-safety.** One thread at a time for one object. A thread of the dataset reads ahead.

#include <cstdint>
#include <memory>
#include <string>

#include "ait/base/log.h"
#include "ait/base/shard.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/data/dataset_state.h"
#include "ait/data/loader/loader_statistics.h"
#include "ait/data/order.h"
#include "ait/data/token_batch.h"
#include "ait/data/token_source.h"
#include "ait/topology/id_set.h"

namespace ait::inline v0 {

class Communicator;

struct TokenDatasetOptions {
  std::int64_t sequence_length = 1024;  // inputs of a sample, ≥ 1
  std::int64_t global_batch_size = 8;   // samples of one batch on all ranks together, ≥ world size
  Shard shard;                          // which rank of how many; the default is the only one
  std::uint64_t seed = 0;               // of the order; the same on all ranks
  SampleOrder order = SampleOrder::kShuffled;
  std::int64_t epochs = 1;  // ≥ 1, or kUnlimitedEpochs
  LastBatch last_batch = LastBatch::kShort;
  Bytes prefetch = MiB(16);  // most memory for batches read ahead; less than one batch: none
  /// CPUs of the thread that reads ahead, such as RankLayout::loaders; empty: those of the thread
  /// that calls `Next` first.
  CpuSet loader_cpus = {};
  std::int64_t vocabulary_size = 0;  // see TokenSourceOptions
  Verification verification = Verification::kContents;
  LogSink* log = nullptr;  // hears of an error that ended the data; outlives the dataset
};

class TokenDataset {
 public:
  /// Opens a corpus of any format that `OpenTokenSource` knows.
  /// **Errors.** Those of `OpenTokenSource`; InvalidArgument: an option out of range, or a corpus
  /// shorter than one sample; ResourceExhausted: no memory for the batches.
  static StatusOr<TokenDataset> Open(const std::string& path, TokenDatasetOptions options);
  /// Takes a source that the program made itself.
  static StatusOr<TokenDataset> Create(std::shared_ptr<const TokenSource> source,
                                       TokenDatasetOptions options);

  TokenDataset(TokenDataset&&) noexcept;
  TokenDataset& operator=(TokenDataset&&) noexcept;
  /// Stops reading ahead; at any time.
  ~TokenDataset();

  std::int64_t sample_count() const;     // of one epoch
  std::int64_t batch_count() const;      // of all epochs, from the start; int64 max if unlimited
  std::int64_t vocabulary_size() const;  // every token is less
  /// Equal on ranks and runs that deliver the same samples in the same order; compare it at start.
  std::uint64_t plan_digest() const;
  /// **Collective. Blocks.** Compares corpus, order, options and state over the ranks of
  /// `communicator`, each with its part; call it before the first `Next`. **Errors.** The same on
  /// every rank, those of `AgreeOnPlan`: they name the ranks and what differs.
  Status AgreeOver(Communicator& communicator) const;
  /// Ok if every token has a place in a model of this vocabulary, else InvalidArgument.
  Status CheckVocabulary(std::int64_t model_vocabulary_size) const;

  /// The next batch of this rank, or nullptr at the end of the data and after an error: see
  /// `status`. All ranks get the same number of batches. **Ownership.** Valid until the next call
  /// of `Next` or `Restore`; its memory is used again. **Blocks.** Until the batch is read.
  const TokenBatch* Next();
  /// Ok, or the error that made `Next` return nullptr.
  const Status& status() const;

  /// What `Next` waited since the call before, or since the dataset was made.
  DataWait TakeWait();

  /// The state after the batches that `Next` has returned; what was only read ahead does not count.
  DatasetState state() const;
  /// Continues after `state`, which may come from another number of ranks or another batch size.
  /// **Errors.** FailedPrecondition: it belongs to another plan. OutOfRange: it lies beyond the
  /// end.
  Status Restore(const DatasetState& state);

 private:
  class Impl;
  explicit TokenDataset(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_TOKEN_DATASET_H_
