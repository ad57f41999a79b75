// SPDX-License-Identifier: Apache-2.0
#include "ait/data/token_dataset.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/base/clock.h"
#include "ait/data/plan/plan_agreement.h"
#include "data/batch_pipeline_internal.h"
#include "data/mix_internal.h"
#include "data/plan/part_of_internal.h"
#include "data/token_plan_internal.h"

namespace ait::inline v0 {
namespace {

constexpr std::int64_t kMost = std::int64_t{1}
                               << 40;  // of lengths and batches: products stay exact
constexpr std::int64_t kMaxSlots = 1024;
constexpr std::int64_t kMaxBatchBytes = std::int64_t{1} << 46;  // more than any machine has

Status CheckOptions(const TokenDatasetOptions& options) {
  if (options.sequence_length < 1 || options.sequence_length > kMost) {
    return InvalidArgumentError("sequence length ", options.sequence_length,
                                " is not between 1 and ", kMost);
  }
  if (!options.shard.is_valid()) {
    return InvalidArgumentError("rank ", options.shard.rank, " is not one of a world of ",
                                options.shard.size);
  }
  if (options.global_batch_size < options.shard.size.value() || options.global_batch_size > kMost) {
    return InvalidArgumentError("global batch size ", options.global_batch_size,
                                " is not between the world size ", options.shard.size, " and ",
                                kMost, ": every rank needs at least one sample");
  }
  if (options.order == SampleOrder::kBlockShuffled || options.last_batch == LastBatch::kPad) {
    return InvalidArgumentError(
        "a token dataset knows neither a shuffle by blocks nor padding of the last batch: it takes "
        "kShuffled or kSequential, and kShort or kDrop");
  }
  if (options.epochs < 1) {
    return InvalidArgumentError("epochs is ", options.epochs, ", at least 1 is needed");
  }
  if (options.prefetch.value() < 0) {
    return InvalidArgumentError("prefetch is ", options.prefetch, " bytes, at least 0 is needed");
  }
  return OkStatus();
}

Status NoMemory(std::string_view why) {
  return ResourceExhaustedError("no memory for the batches of the dataset: ", why,
                                "; choose a smaller batch, sequence length or prefetch");
}

// a × b, or int64 max if that is too much.
std::int64_t MultiplySaturating(std::int64_t a, std::int64_t b) {
  std::int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max()
                                                : product;
}

}  // namespace

class TokenDataset::Impl {
 public:
  Impl(std::shared_ptr<const TokenSource> source, TokenDatasetOptions options)
      : source_(std::move(source)),
        options_(options),
        sample_count_((source_->token_count() - 1) / options_.sequence_length) {
    std::uint64_t digest = internal::Fold(0, source_->digest());
    for (const auto word : {static_cast<std::uint64_t>(source_->token_count()),
                            static_cast<std::uint64_t>(options_.sequence_length),
                            static_cast<std::uint64_t>(options_.order), options_.seed}) {
      digest = internal::Fold(digest, word);
    }
    state_.plan_digest = digest;
  }

  // Makes the buffers and puts the reader at the state.
  Status Start() try {
    pipeline_.reset();
    cursor_ = state_;
    const std::int64_t row_tokens = options_.sequence_length + 1;
    const auto max_rows = (options_.global_batch_size - 1) / options_.shard.size.value() + 1;
    const std::int64_t batch_bytes = MultiplySaturating(max_rows, (row_tokens + 1) * 8);
    if (batch_bytes > kMaxBatchBytes)
      return NoMemory(StrCat("a batch has ", batch_bytes, " bytes"));
    const std::int64_t ahead = options_.prefetch.value() / batch_bytes;
    std::vector<internal::BatchSlot> slots(
        static_cast<std::size_t>(1 + std::min({ahead, kMaxSlots, batch_count()})));
    for (internal::BatchSlot& slot : slots) {
      slot.batch.sequence_length = options_.sequence_length;
      slot.batch.tokens.reserve(static_cast<std::size_t>(batch_bytes / 8));
      slot.batch.sample_ids.reserve(static_cast<std::size_t>(max_rows));
    }
    // Nothing is allocated while batches are filled.
    reads_.reserve(static_cast<std::size_t>(max_rows));
    pipeline_.emplace(
        std::move(slots), [this](internal::BatchSlot& slot) { Fill(slot); }, options_.loader_cpus);
    return OkStatus();
  } catch (const std::exception& error) {  // std::bad_alloc, std::length_error
    return NoMemory(error.what());
  }

  std::int64_t sample_count() const { return sample_count_; }

  std::int64_t batch_count() const {
    const std::int64_t total = MultiplySaturating(sample_count_, options_.epochs);
    if (total == std::numeric_limits<std::int64_t>::max()) return total;
    const std::int64_t whole = total / options_.global_batch_size;
    const bool has_short =
        options_.last_batch == LastBatch::kShort && total % options_.global_batch_size != 0;
    return whole + (has_short ? 1 : 0);
  }

  const TokenBatch* Next() {
    if (!status_.ok()) return nullptr;
    const Time begin = SystemClock().now();
    const StatusOr<internal::BatchSlot*> slot = pipeline_->Next();
    wait_ += SystemClock().now() - begin;
    status_ = slot.ok() ? (*slot)->status : slot.status();
    if (!status_.ok()) {
      Log(options_.log, Severity::kError, "data", Message(status_));
      return nullptr;
    }
    if ((*slot)->is_end) return nullptr;
    state_ = (*slot)->after;
    return &(*slot)->batch;
  }

  DataWait TakeWait() {
    const Time now = SystemClock().now();
    return {.wait = std::exchange(wait_, Duration::zero()),
            .elapsed = now - std::exchange(wait_since_, now)};
  }

  Status Restore(DatasetState state) {
    if (state.plan_digest != state_.plan_digest) {
      return FailedPreconditionError(
          "the state to restore belongs to another plan of corpus ", source_->name(),
          ": the corpus, the sequence length, the order or the seed is not the same as when it was "
          "saved; state: ",
          ToJson(state), ", this dataset: ", ToJson(state_));
    }
    if (state.delivered == sample_count_) state = {state.plan_digest, state.epoch + 1, 0};
    const bool is_beyond_end =
        state.epoch > options_.epochs || (state.epoch == options_.epochs && state.delivered > 0);
    if (state.epoch < 0 || state.delivered < 0 || state.delivered > sample_count_ ||
        is_beyond_end) {
      return OutOfRangeError("the state to restore, ", ToJson(state), ", is beyond the ",
                             options_.epochs, " epochs of ", sample_count_, " samples of corpus ",
                             source_->name());
    }
    state_ = state;
    status_ = Start();
    return status_;
  }

  Status AgreeOver(Communicator& communicator) const {
    const internal::TokenPlan plan({.corpus_digest = source_->digest(),
                                    .token_count = source_->token_count(),
                                    .sample_count = sample_count_,
                                    .digest = state_.plan_digest},
                                   options_);
    return AgreeOnPlan(communicator, plan, options_.shard, state_);
  }

  const Status& status() const { return status_; }
  const DatasetState& state() const { return state_; }
  const TokenSource& source() const { return *source_; }

 private:
  // Samples from the cursor to the end of the last epoch, or as many as matter.
  std::int64_t SamplesLeft() const {
    return MultiplySaturating(options_.epochs - cursor_.epoch, sample_count_) - cursor_.delivered;
  }

  // Runs on the thread that reads ahead; touches the cursor, the order and the slot only.
  void Fill(internal::BatchSlot& slot) {
    const std::int64_t rows = std::min(options_.global_batch_size, SamplesLeft());
    const bool is_short = rows < options_.global_batch_size;
    if (rows == 0 || (is_short && options_.last_batch == LastBatch::kDrop)) {
      slot.is_end = true;
      return;
    }
    const std::int64_t size = options_.shard.size.value();
    const std::int64_t position_mod_size =
        ((cursor_.epoch % size) * (sample_count_ % size) + cursor_.delivered) % size;
    const internal::RowRange range = internal::PartOf(options_.shard, rows, position_mod_size);
    const std::int64_t row_tokens = options_.sequence_length + 1;
    TokenBatch& batch = slot.batch;
    batch.epoch = cursor_.epoch;
    batch.global_rows = rows;
    batch.sample_ids.resize(static_cast<std::size_t>(range.end - range.begin));
    batch.tokens.resize(static_cast<std::size_t>((range.end - range.begin) * row_tokens));
    reads_.resize(batch.sample_ids.size());
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      const auto at = static_cast<std::size_t>(row - range.begin);
      const std::int64_t position = cursor_.delivered + row;
      const std::int64_t sample =
          SampleAt(cursor_.epoch + position / sample_count_, position % sample_count_);
      batch.sample_ids[at] = sample;
      reads_[at].first = sample * options_.sequence_length;
      reads_[at].out = std::span(batch.tokens)
                           .subspan(at * static_cast<std::size_t>(row_tokens),
                                    static_cast<std::size_t>(row_tokens));
    }
    slot.status = ReadSamples(batch);
    if (!slot.status.ok()) return;
    const std::int64_t position = cursor_.delivered + rows;
    cursor_.epoch += position / sample_count_;
    cursor_.delivered = position % sample_count_;
    slot.after = cursor_;
  }

  Status ReadSamples(const TokenBatch& batch) {
    ReadAll();
    for (std::size_t i = 0; i < reads_.size(); ++i) {
      if (reads_[i].status.ok()) continue;
      return Annotate(reads_[i].status, StrCat("cannot read sample ", batch.sample_ids[i],
                                               " for rank ", options_.shard.rank));
    }
    return OkStatus();
  }

  // A source may be a class of the program, which may throw anything: then each read is done alone,
  // so that the sample can be named.
  void ReadAll() try { source_->ReadMany(reads_); } catch (...) {
    for (TokenRead& read : reads_) {
      read.status = ReadOne(read);
      if (!read.status.ok()) return;
    }
  }

  Status ReadOne(const TokenRead& read) const try {
    return source_->Read(read.first, read.out);
  } catch (const std::exception& error) {
    return InternalError("the source threw: ", error.what());
  } catch (...) {
    return InternalError("the source threw something that is no std::exception");
  }

  std::int64_t SampleAt(std::int64_t epoch, std::int64_t position) {
    if (options_.order == SampleOrder::kSequential) return position;
    if (!permutation_ || permutation_epoch_ != epoch) {
      permutation_.emplace(sample_count_, options_.seed, epoch);
      permutation_epoch_ = epoch;
    }
    return (*permutation_)(position);
  }

  const std::shared_ptr<const TokenSource> source_;
  const TokenDatasetOptions options_;
  const std::int64_t sample_count_;
  DatasetState state_;  // after what was delivered
  Status status_;
  Duration wait_{};  // of Next, not yet told
  Time wait_since_ = SystemClock().now();

  DatasetState cursor_;  // after what was read
  std::vector<TokenRead> reads_;
  std::optional<Permutation> permutation_;
  std::int64_t permutation_epoch_ = 0;
  std::optional<internal::BatchPipeline> pipeline_;  // last: its thread uses the members above
};

StatusOr<TokenDataset> TokenDataset::Open(const std::string& path, TokenDatasetOptions options) {
  AIT_RETURN_IF_ERROR(CheckOptions(options));
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<TokenSource> source,
                       OpenTokenSource(path, {.verification = options.verification,
                                              .vocabulary_size = options.vocabulary_size}));
  return Create(std::move(source), options);
}

StatusOr<TokenDataset> TokenDataset::Create(std::shared_ptr<const TokenSource> source,
                                            TokenDatasetOptions options) {
  AIT_RETURN_IF_ERROR(CheckOptions(options));
  if (source == nullptr) return InvalidArgumentError("there is no source");
  if (source->token_count() < options.sequence_length + 1) {
    return InvalidArgumentError("corpus ", source->name(), " has ", source->token_count(),
                                " tokens, too short for one sample of ", options.sequence_length,
                                " inputs and a target; choose a sequence length below ",
                                source->token_count());
  }
  auto impl = std::make_unique<Impl>(std::move(source), options);
  AIT_RETURN_IF_ERROR(impl->Start());
  return TokenDataset(std::move(impl));
}

TokenDataset::TokenDataset(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TokenDataset::TokenDataset(TokenDataset&&) noexcept = default;
TokenDataset& TokenDataset::operator=(TokenDataset&&) noexcept = default;
TokenDataset::~TokenDataset() = default;

std::int64_t TokenDataset::sample_count() const { return impl_->sample_count(); }
std::int64_t TokenDataset::batch_count() const { return impl_->batch_count(); }
std::int64_t TokenDataset::vocabulary_size() const { return impl_->source().vocabulary_size(); }
std::uint64_t TokenDataset::plan_digest() const { return impl_->state().plan_digest; }

Status TokenDataset::CheckVocabulary(std::int64_t model_vocabulary_size) const {
  if (vocabulary_size() <= model_vocabulary_size) return OkStatus();
  return InvalidArgumentError("the vocabulary of corpus ", impl_->source().name(), " is ",
                              vocabulary_size(), ", larger than the model's ",
                              model_vocabulary_size,
                              ": enlarge the model's, or, if the format of the corpus does not "
                              "state its vocabulary, state it "
                              "in TokenDatasetOptions::vocabulary_size");
}

const TokenBatch* TokenDataset::Next() { return impl_->Next(); }
Status TokenDataset::AgreeOver(Communicator& communicator) const {
  return impl_->AgreeOver(communicator);
}
DataWait TokenDataset::TakeWait() { return impl_->TakeWait(); }
const Status& TokenDataset::status() const { return impl_->status(); }
DatasetState TokenDataset::state() const { return impl_->state(); }
Status TokenDataset::Restore(const DatasetState& state) { return impl_->Restore(state); }

}  // namespace ait::inline v0
