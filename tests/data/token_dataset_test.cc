// SPDX-License-Identifier: Apache-2.0
#include "ait/data/token_dataset.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>

#include "ait/topology/binding.h"
#include "data/data_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::WriteCountingFile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A corpus whose token at position p is p, so that a row tells which sample it is.
class CountingSource : public TokenSource {
 public:
  explicit CountingSource(std::int64_t token_count) : token_count_(token_count) {}
  const std::string& name() const override { return name_; }
  std::int64_t token_count() const override { return token_count_; }
  std::int64_t vocabulary_size() const override { return token_count_; }
  std::uint64_t digest() const override { return 42; }
  Status Read(std::int64_t first, std::span<std::int64_t> out) const override {
    ++reads;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = first + static_cast<std::int64_t>(i);
    return OkStatus();
  }
  mutable std::atomic<int> reads = 0;

 private:
  std::string name_ = "counting";
  std::int64_t token_count_;
};

// A corpus that cannot be read, or only from some place on.
class BrokenSource final : public CountingSource {
 public:
  using CountingSource::CountingSource;
  Status Read(std::int64_t first, std::span<std::int64_t> out) const override {
    if (first >= bad_from) {
      if (throws) throw std::runtime_error("disk on fire");
      return DataLossError("disk on fire");
    }
    return CountingSource::Read(first, out);
  }
  std::int64_t bad_from = 0;
  bool throws = false;
};

constexpr std::int64_t kLength = 4;

std::shared_ptr<CountingSource> SourceOf(std::int64_t samples) {
  return std::make_shared<CountingSource>(samples * kLength + 1);
}

TokenDataset Make(std::int64_t samples, TokenDatasetOptions options) {
  options.sequence_length = kLength;
  auto data = TokenDataset::Create(SourceOf(samples), options);
  EXPECT_OK(data.status());
  return *std::move(data);
}

// The sample ids of up to `batches` batches, checked against the tokens.
std::vector<std::int64_t> Take(TokenDataset& data, std::int64_t batches) {
  std::vector<std::int64_t> ids;
  while (batches-- > 0) {
    const TokenBatch* batch = data.Next();
    if (batch == nullptr) break;
    for (std::int64_t row = 0; row < batch->rows(); ++row) {
      const std::int64_t id = batch->sample_ids[static_cast<std::size_t>(row)];
      ids.push_back(id);
      EXPECT_EQ(batch->inputs(row).front(), id * kLength);
      EXPECT_EQ(batch->targets(row).back(), id * kLength + kLength);
    }
  }
  EXPECT_OK(data.status());
  return ids;
}

constexpr std::int64_t kAll = 1 << 30;

std::vector<std::int64_t> Sorted(std::vector<std::int64_t> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

// The whole order of a run, from its definition.
std::vector<std::int64_t> WholeOrder(std::int64_t samples, std::uint64_t seed,
                                     std::int64_t epochs) {
  std::vector<std::int64_t> ids;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    const Permutation order(samples, seed, epoch);
    for (std::int64_t i = 0; i < samples; ++i) ids.push_back(order(i));
  }
  return ids;
}

TEST(TokenDataset, DeliversTheOrderOfTheSpecification) {
  TokenDataset data = Make(23, {.global_batch_size = 4, .seed = 9, .epochs = 3});
  EXPECT_EQ(data.sample_count(), 23);
  EXPECT_EQ(data.batch_count(), 18);  // 69 samples
  EXPECT_EQ(Take(data, kAll), WholeOrder(23, 9, 3));
  EXPECT_EQ(data.Next(), nullptr);
  EXPECT_OK(data.status());
}

TEST(TokenDataset, DeliversASequenceInOrderOfTheFile) {
  TokenDataset data =
      Make(5, {.global_batch_size = 2, .order = SampleOrder::kSequential, .epochs = 2});
  EXPECT_THAT(Take(data, kAll), ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 3, 4));
}

TEST(TokenDataset, RowsAreWindowsThatShareOneToken) {
  TokenDataset data = Make(2, {.global_batch_size = 2, .order = SampleOrder::kSequential});
  const TokenBatch* batch = data.Next();
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->rows(), 2);
  EXPECT_EQ(batch->global_rows, 2);
  EXPECT_EQ(batch->token_count(), 8);
  EXPECT_THAT(batch->inputs(0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(batch->targets(0), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(batch->inputs(1), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(batch->tokens, ElementsAre(0, 1, 2, 3, 4, 4, 5, 6, 7, 8));
}

TEST(TokenDataset, BatchesRunOnIntoTheNextEpoch) {
  TokenDataset data = Make(3, {.global_batch_size = 2, .epochs = 3});
  const std::vector<std::int64_t> epochs = {0, 0, 1, 2, 2};
  const std::vector<std::int64_t> rows = {2, 2, 2, 2, 1};
  for (std::size_t i = 0; i < epochs.size(); ++i) {
    const TokenBatch* batch = data.Next();
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->epoch, epochs[i]);
    EXPECT_EQ(batch->rows(), rows[i]);
  }
  EXPECT_EQ(data.Next(), nullptr);
}

TEST(TokenDataset, LastBatchIsLeftOutOnRequest) {
  TokenDataset data = Make(7, {.global_batch_size = 3, .last_batch = LastBatch::kDrop});
  EXPECT_EQ(data.batch_count(), 2);
  EXPECT_EQ(Take(data, kAll).size(), 6u);
}

TEST(TokenDataset, UnlimitedEpochsGoOn) {
  TokenDataset data = Make(3, {.global_batch_size = 2, .epochs = kUnlimitedEpochs});
  EXPECT_EQ(data.batch_count(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(Take(data, 300), [] {
    auto all = WholeOrder(3, 0, 200);
    return all;
  }());
}

TEST(TokenDataset, ABatchMayBeLargerThanAnEpoch) {
  TokenDataset data = Make(3, {.global_batch_size = 8, .seed = 5, .epochs = 4});
  const TokenBatch* batch = data.Next();
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->rows(), 8);
  EXPECT_EQ(data.state().epoch, 2);
  EXPECT_EQ(data.state().delivered, 2);
}

struct World {
  std::int64_t samples;
  std::int64_t batch;
  int ranks;
};

class TokenDatasetOverRanks : public ::testing::TestWithParam<World> {};

// Every batch: its parts in order of the ranks are the next samples of the order; parts differ by
// at most one sample, and so do the totals.
TEST_P(TokenDatasetOverRanks, PartsOfTheRanksAreTheBatch) {
  const World world = GetParam();
  std::vector<TokenDataset> ranks;
  for (int rank = 0; rank < world.ranks; ++rank) {
    ranks.push_back(Make(world.samples, {.global_batch_size = world.batch,
                                         .shard = {Rank(rank), WorldSize(world.ranks)},
                                         .seed = 77,
                                         .epochs = 2}));
    EXPECT_EQ(ranks.back().plan_digest(), ranks.front().plan_digest());
  }
  std::vector<std::int64_t> all;
  std::vector<std::int64_t> totals(ranks.size());
  for (std::int64_t step = 0; step < ranks[0].batch_count(); ++step) {
    std::int64_t least = kAll;
    std::int64_t most = 0;
    std::int64_t rows = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const TokenBatch* batch = ranks[rank].Next();
      ASSERT_NE(batch, nullptr);
      all.insert(all.end(), batch->sample_ids.begin(), batch->sample_ids.end());
      least = std::min(least, batch->rows());
      most = std::max(most, batch->rows());
      totals[rank] += batch->rows();
      rows += batch->rows();
      EXPECT_EQ(ranks[rank].state(), ranks[0].state());
    }
    EXPECT_EQ(rows, std::min(world.batch, 2 * world.samples - step * world.batch));
    EXPECT_LE(most - least, 1);
    const auto [low, high] = std::minmax_element(totals.begin(), totals.end());
    EXPECT_LE(*high - *low, 1);
  }
  for (TokenDataset& rank : ranks) EXPECT_EQ(rank.Next(), nullptr);
  EXPECT_EQ(all, WholeOrder(world.samples, 77, 2));
}

INSTANTIATE_TEST_SUITE_P(Sizes, TokenDatasetOverRanks,
                         ::testing::Values(World{1, 1, 1}, World{1, 2, 2}, World{10, 4, 2},
                                           World{11, 5, 2}, World{64, 8, 8}, World{61, 7, 3},
                                           World{61, 8, 5}, World{101, 9, 7}, World{13, 8, 8},
                                           World{2, 7, 4}));

// Hand over at every possible place, from 3 ranks to another number of ranks and another batch
// size: what comes before and after is, together, every sample exactly once per epoch.
TEST(TokenDataset, ResumesExactlyOnAnotherNumberOfRanks) {
  constexpr std::int64_t kSamples = 29;
  constexpr std::int64_t kEpochs = 2;
  const auto expected = Sorted(WholeOrder(kSamples, 3, kEpochs));
  for (std::int64_t steps = 0; steps <= 12; ++steps) {
    for (int after_ranks : {1, 2, 5}) {
      std::vector<std::int64_t> ids;
      std::string saved;
      for (int rank = 0; rank < 3; ++rank) {
        TokenDataset data = Make(kSamples, {.global_batch_size = 5,
                                            .shard = {Rank(rank), WorldSize(3)},
                                            .seed = 3,
                                            .epochs = kEpochs});
        const auto mine = Take(data, steps);
        ids.insert(ids.end(), mine.begin(), mine.end());
        const std::string text = ToJson(data.state());
        if (rank > 0) {
          EXPECT_EQ(text, saved);
        }
        saved = text;
      }
      ASSERT_OK_AND_ASSIGN(const DatasetState state, DatasetStateFromJson(saved));
      for (int rank = 0; rank < after_ranks; ++rank) {
        TokenDataset data = Make(kSamples, {.global_batch_size = 6,
                                            .shard = {Rank(rank), WorldSize(after_ranks)},
                                            .seed = 3,
                                            .epochs = kEpochs});
        ASSERT_OK(data.Restore(state));
        const auto mine = Take(data, kAll);
        ids.insert(ids.end(), mine.begin(), mine.end());
      }
      EXPECT_EQ(Sorted(ids), expected) << steps << " steps, then " << after_ranks << " ranks";
    }
  }
}

TEST(TokenDataset, BatchesReadAheadButNotDeliveredDoNotCount) {
  const auto source = SourceOf(40);
  const TokenDatasetOptions options = {
      .sequence_length = kLength, .global_batch_size = 2, .seed = 1};
  ASSERT_OK_AND_ASSIGN(auto data, TokenDataset::Create(source, options));
  const auto before = Take(data, 3);
  // The prefetch holds all batches of this corpus: wait until they are read.
  for (int i = 0; i < 5000 && source->reads < 40; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(source->reads, 40);
  EXPECT_EQ(data.state().delivered, 6);
  ASSERT_OK_AND_ASSIGN(auto resumed, TokenDataset::Create(source, options));
  ASSERT_OK(resumed.Restore(data.state()));
  auto all = before;
  const auto after = Take(resumed, kAll);
  all.insert(all.end(), after.begin(), after.end());
  EXPECT_EQ(all, WholeOrder(40, 1, 1));
}

TEST(TokenDataset, PrefetchDoesNotChangeWhatIsDelivered) {
  for (std::int64_t bytes : {0, 1, 95, 96, 200, 1 << 20}) {  // a batch has 2 × 6 × 8 = 96 bytes
    TokenDataset data =
        Make(31, {.global_batch_size = 2, .seed = 8, .epochs = 2, .prefetch = Bytes(bytes)});
    EXPECT_EQ(Take(data, kAll), WholeOrder(31, 8, 2)) << bytes;
  }
}

// Tells whoever waits for `reads`, and counts those beyond what is allowed.
class BoundedSource final : public CountingSource {
 public:
  using CountingSource::CountingSource;
  Status Read(std::int64_t first, std::span<std::int64_t> out) const override {
    const Status status = CountingSource::Read(first, out);
    if (reads > allowed) ++too_many;
    reads.notify_all();
    return status;
  }
  void WaitForReads(int count) const {
    for (int now = reads; now < count; now = reads) reads.wait(now);
  }
  std::atomic<int> allowed = 0;
  mutable std::atomic<int> too_many = 0;
};

// The thread reads as much ahead as the bound allows, and not a batch more.
TEST(TokenDataset, PrefetchIsBoundedInBytes) {
  constexpr int kSamples = 100;
  for (const auto& [bytes, batches] : {std::pair{96 * 3, 3}, {96 * 4 - 1, 3}, {96, 1}, {95, 0}}) {
    const auto source = std::make_shared<BoundedSource>(kSamples * kLength + 1);
    ASSERT_OK_AND_ASSIGN(auto data, TokenDataset::Create(source, {.sequence_length = kLength,
                                                                  .global_batch_size = 2,
                                                                  .prefetch = Bytes(bytes)}));
    EXPECT_EQ(source->reads, 0) << "nothing is read before the first Next";
    // A thread that reads too much does so while the batch before is still held.
    std::set<const std::int64_t*> buffers;
    for (int taken = 1; taken <= kSamples / 2; ++taken) {
      source->allowed = 2 * (taken + batches);
      const TokenBatch* batch = data.Next();
      ASSERT_NE(batch, nullptr);
      buffers.insert(batch->tokens.data());
      source->WaitForReads(std::min(2 * (taken + batches), kSamples));
    }
    EXPECT_EQ(source->too_many, 0) << bytes;
    EXPECT_EQ(buffers.size(), static_cast<std::size_t>(1 + batches)) << bytes;
  }
}

/// Notes the CPUs of the thread that reads.
class BindingSource final : public CountingSource {
 public:
  using CountingSource::CountingSource;
  Status Read(std::int64_t first, std::span<std::int64_t> out) const override {
    if (ThisThreadBinding().value() != expected) ++elsewhere;
    return CountingSource::Read(first, out);
  }
  CpuSet expected;
  mutable std::atomic<int> elsewhere = 0;
};

TEST(TokenDataset, ReadsAheadOnTheCpusOfLoaders) {
  const CpuSet all = ThisThreadBinding().value();
  for (const CpuSet& cpus : {CpuSet(), CpuSet{all.front()}, CpuSet{all[all.size() - 1]}}) {
    const auto source = std::make_shared<BindingSource>(20 * kLength + 1);
    source->expected = cpus.empty() ? all : cpus;
    ASSERT_OK_AND_ASSIGN(auto data, TokenDataset::Create(source, {.sequence_length = kLength,
                                                                  .global_batch_size = 2,
                                                                  .loader_cpus = cpus}));
    EXPECT_EQ(Take(data, kAll).size(), 20u);
    EXPECT_EQ(source->elsewhere, 0);
  }
  EXPECT_EQ(ThisThreadBinding().value(), all);
  TokenDataset nowhere = Make(20, {.global_batch_size = 2, .loader_cpus = {9999}});
  EXPECT_EQ(nowhere.Next(), nullptr);
  EXPECT_THAT(nowhere.status(), StatusIs(StatusCode::kFailedPrecondition,
                                         HasSubstr("the thread that reads ahead: cannot bind")));
}

TEST(TokenDataset, UsesItsMemoryAgain) {
  TokenDataset data = Make(1000, {.global_batch_size = 2, .prefetch = Bytes(96 * 2)});
  std::vector<const std::int64_t*> buffers;
  while (const TokenBatch* batch = data.Next()) {
    if (std::find(buffers.begin(), buffers.end(), batch->tokens.data()) == buffers.end()) {
      buffers.push_back(batch->tokens.data());
    }
  }
  EXPECT_EQ(buffers.size(), 3u);
}

// Lets a reader stand still inside Read until it is let go.
class GatedSource final : public CountingSource {
 public:
  using CountingSource::CountingSource;
  Status Read(std::int64_t first, std::span<std::int64_t> out) const override {
    gate.wait();
    return CountingSource::Read(first, out);
  }
  mutable std::latch gate{1};
};

TEST(TokenDataset, MayBeDestroyedAtAnyTime) {
  for (int batches = 0; batches < 8; ++batches) {
    TokenDataset data = Make(10, {.global_batch_size = 2, .prefetch = Bytes(96 * 2)});
    Take(data, batches);
  }
  const auto source = std::make_shared<GatedSource>(41);
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    source->gate.count_down();
  });
  {
    ASSERT_OK_AND_ASSIGN(auto data, TokenDataset::Create(source, {.sequence_length = kLength,
                                                                  .global_batch_size = 2}));
    std::thread reader([&] { EXPECT_NE(data.Next(), nullptr); });
    reader.join();
  }
  release.join();
}

TEST(TokenDataset, MayBeMovedWhileItReadsAhead) {
  TokenDataset data = Make(50, {.global_batch_size = 2, .seed = 4});
  auto ids = Take(data, 3);
  TokenDataset moved = std::move(data);
  const auto rest = Take(moved, kAll);
  ids.insert(ids.end(), rest.begin(), rest.end());
  EXPECT_EQ(ids, WholeOrder(50, 4, 1));
}

TEST(TokenDataset, TheEndOfAnEpochIsTheStartOfTheNext) {
  TokenDataset data = Make(6, {.global_batch_size = 3, .epochs = 2});
  Take(data, 2);
  EXPECT_EQ(data.state(), (DatasetState{data.plan_digest(), 1, 0}));
  ASSERT_OK(data.Restore({data.plan_digest(), 0, 6}));
  EXPECT_EQ(data.state(), (DatasetState{data.plan_digest(), 1, 0}));
  EXPECT_EQ(Take(data, kAll).size(), 6u);
  EXPECT_EQ(data.state(), (DatasetState{data.plan_digest(), 2, 0}));
  ASSERT_OK(data.Restore(data.state()));
  EXPECT_EQ(data.Next(), nullptr);
  EXPECT_OK(data.status());
}

TEST(TokenDataset, RestoreGoesBackAsWellAsForth) {
  TokenDataset data = Make(20, {.global_batch_size = 2, .seed = 6});
  const auto all = Take(data, kAll);
  ASSERT_OK(data.Restore({data.plan_digest(), 0, 7}));
  EXPECT_EQ(Take(data, kAll), std::vector(all.begin() + 7, all.end()));
}

TEST(TokenDataset, RefusesAStateThatIsNotItsOwn) {
  TokenDataset data = Make(20, {.global_batch_size = 2, .seed = 6});
  TokenDataset other = Make(20, {.global_batch_size = 2, .seed = 7});
  Take(other, 1);
  EXPECT_THAT(data.Restore(other.state()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("another plan")));
  for (const DatasetState& state :
       {DatasetState{data.plan_digest(), 0, 21}, DatasetState{data.plan_digest(), 1, 1},
        DatasetState{data.plan_digest(), 2, 0}, DatasetState{data.plan_digest(), -1, 0},
        DatasetState{data.plan_digest(), 0, -1}}) {
    EXPECT_THAT(data.Restore(state), StatusIs(StatusCode::kOutOfRange)) << ToJson(state);
  }
  EXPECT_EQ(Take(data, kAll), WholeOrder(20, 6, 1));  // it goes on as if nothing had happened
}

TEST(TokenDataset, PlanDigestIsOfWhatDecidesTheOrder) {
  const auto digest = [](TokenDatasetOptions options) {
    auto data = TokenDataset::Create(SourceOf(20), options);
    EXPECT_OK(data.status());
    return data->plan_digest();
  };
  const TokenDatasetOptions options = {.sequence_length = 4, .global_batch_size = 2, .seed = 6};
  TokenDatasetOptions same = options;
  same.global_batch_size = 4;
  same.shard = {Rank(1), WorldSize(2)};
  same.epochs = 5;
  same.prefetch = Bytes(0);
  EXPECT_EQ(digest(same), digest(options));
  TokenDatasetOptions other = options;
  other.seed = 7;
  EXPECT_NE(digest(other), digest(options));
  other = options;
  other.sequence_length = 5;
  EXPECT_NE(digest(other), digest(options));
  other = options;
  other.order = SampleOrder::kSequential;
  EXPECT_NE(digest(other), digest(options));
  // A saved state must fit in every later version.
  EXPECT_EQ(digest(options), 13403885744561165196u);
}

class Listener final : public LogSink {
 public:
  void Write(Severity severity, std::string_view component, std::string_view message) override {
    text = StrCat(Name(severity), " ", component, " ", message);
  }
  std::string text;
};

TEST(TokenDataset, AnErrorEndsTheLoopAndIsKept) {
  for (std::int64_t prefetch : {0, 1 << 20}) {
    for (bool throws : {false, true}) {
      const auto source = std::make_shared<BrokenSource>(41);
      source->bad_from = 20;
      source->throws = throws;
      Listener listener;
      ASSERT_OK_AND_ASSIGN(auto data,
                           TokenDataset::Create(source, {.sequence_length = kLength,
                                                         .global_batch_size = 2,
                                                         .order = SampleOrder::kSequential,
                                                         .prefetch = Bytes(prefetch),
                                                         .log = &listener}));
      int batches = 0;
      while (data.Next() != nullptr) ++batches;
      EXPECT_EQ(batches, 2);
      EXPECT_THAT(data.status(), StatusIs(throws ? StatusCode::kInternal : StatusCode::kDataLoss,
                                          HasSubstr("sample 5 for rank 0")));
      EXPECT_THAT(data.status(), StatusIs(data.status().code(), HasSubstr("disk on fire")));
      EXPECT_THAT(listener.text, HasSubstr("disk on fire"));
      EXPECT_EQ(data.Next(), nullptr);
      EXPECT_EQ(data.state().delivered, 4);
      source->bad_from = 1000;
      ASSERT_OK(data.Restore(data.state()));
      EXPECT_EQ(Take(data, kAll).size(), 6u);
    }
  }
}

TEST(TokenDataset, RefusesOptionsThatMakeNoSense) {
  const auto expect_refused = [](TokenDatasetOptions options, const char* reason) {
    EXPECT_THAT(TokenDataset::Create(SourceOf(10), options).status(),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(reason)));
  };
  expect_refused({.sequence_length = 0}, "sequence length 0");
  expect_refused({.sequence_length = -5}, "sequence length -5");
  expect_refused({.sequence_length = 4, .global_batch_size = 0}, "global batch size 0");
  expect_refused({.sequence_length = 4, .global_batch_size = 3, .shard = {Rank(0), WorldSize(4)}},
                 "world size 4");
  expect_refused({.sequence_length = 4, .shard = {Rank(2), WorldSize(2)}}, "rank 2");
  expect_refused({.sequence_length = 4, .shard = {Rank(0), WorldSize(0)}}, "world of 0");
  expect_refused({.sequence_length = 4, .epochs = 0}, "epochs");
  expect_refused({.sequence_length = 4, .prefetch = Bytes(-1)}, "prefetch");
  expect_refused({.sequence_length = 41}, "too short");
  EXPECT_THAT(TokenDataset::Create(nullptr, {}).status(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK(TokenDataset::Create(SourceOf(10), {.sequence_length = 40}).status());
}

TEST(TokenDataset, RefusesBatchesThatDoNotFitInMemory) {
  EXPECT_THAT(TokenDataset::Create(std::make_shared<CountingSource>(std::int64_t{1} << 50),
                                   {.sequence_length = std::int64_t{1} << 40,
                                    .global_batch_size = std::int64_t{1} << 40})
                  .status(),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("memory")));
}

TEST(TokenDataset, ComparesVocabularies) {
  TokenDataset data = Make(10, {.global_batch_size = 1});
  EXPECT_EQ(data.vocabulary_size(), 41);
  EXPECT_OK(data.CheckVocabulary(41));
  EXPECT_OK(data.CheckVocabulary(64));
  EXPECT_THAT(data.CheckVocabulary(40),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("larger than the model's 40")));
}

TEST(TokenDataset, OpensFiles) {
  const TempDir directory;
  WriteCountingFile(directory / "a", 101, {.vocabulary_size = 1000});
  ASSERT_OK_AND_ASSIGN(auto data, TokenDataset::Open(directory / "a", {.sequence_length = kLength,
                                                                       .global_batch_size = 5}));
  EXPECT_EQ(data.sample_count(), 25);
  EXPECT_EQ(Sorted(Take(data, kAll)), Sorted(WholeOrder(25, 0, 1)));
  EXPECT_THAT(TokenDataset::Open(directory / "gone", {}).status(), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(TokenDataset::Open(directory / "a", {.sequence_length = 101}).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("101 tokens, too short")));
}

TEST(TokenDataset, TellsHowLongNextWaitedOnce) {
  const TempDir dir;
  WriteCountingFile(dir / "a", 1000, {.dtype = DType::kUInt16, .vocabulary_size = 1000});
  ASSERT_OK_AND_ASSIGN(auto data, TokenDataset::Open(dir / "a", {.sequence_length = 9}));
  EXPECT_EQ(data.TakeWait().wait, Duration::zero());
  ASSERT_NE(data.Next(), nullptr);
  const DataWait first = data.TakeWait();
  EXPECT_GT(first.wait, Duration::zero());
  EXPECT_GE(first.elapsed, first.wait);
  EXPECT_EQ(data.TakeWait().wait, Duration::zero()) << "told already";
}

}  // namespace
}  // namespace ait
