// SPDX-License-Identifier: Apache-2.0
#include "ait/data/loader/data_loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ait/data/plan/data_plan.h"
#include "data/loader/loader_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::HashesOf;
using testing::HashOf;
using ::testing::HasSubstr;
using testing::NumberSource;
using testing::ScatteredPlan;
using testing::StatusIs;

using Sources = std::vector<std::shared_ptr<const SampleSource>>;

Sources Numbers(std::int64_t count, std::int32_t sources = 1) {
  Sources result;
  for (std::int32_t i = 0; i < sources; ++i) {
    result.push_back(std::make_shared<NumberSource>((count + sources - 1) / sources, i));
  }
  return result;
}

Status AddNoise(Sample& sample, SampleRandom& random) {
  const double noise = random.Uniform();
  sample.Set(ArrayField("noise", DType::kFloat64, {}, std::as_bytes(std::span(&noise, 1))));
  return OkStatus();
}

TEST(DataLoaderTest, DeliversThePlanInItsOrder) {
  auto loader = DataLoader::Create(std::make_shared<ScatteredPlan>(100, 8), Numbers(100));
  ASSERT_OK(loader);
  std::int64_t position = 0;
  while (const DataBatch* batch = loader->Next()) {
    const BatchArray* x = batch->Find("x");
    ASSERT_NE(x, nullptr);
    const auto rows = static_cast<std::int64_t>(batch->samples.size());
    EXPECT_EQ(x->shape, (std::vector<std::int64_t>{rows, 4}));
    EXPECT_EQ(batch->weights, std::vector<float>(batch->samples.size(), 1.0F));
    for (std::int64_t row = 0; row < rows; ++row, ++position) {
      const auto i = static_cast<std::size_t>(row);
      const std::int64_t id = position * 7919 % 100;
      EXPECT_EQ(batch->planned[i].id, id);
      EXPECT_EQ(batch->planned[i].position, position);
      EXPECT_EQ(batch->samples[i].id, id);
      EXPECT_EQ(batch->samples[i].key, "key" + std::to_string(id));
      EXPECT_EQ(x->As<std::int64_t>()[i * 4 + 3], id);
      // The text stayed with the sample, the array did not.
      ASSERT_EQ(batch->samples[i].fields.size(), 1U);
      EXPECT_EQ(batch->samples[i].fields[0].value.text(), "n" + std::to_string(id));
    }
    EXPECT_EQ(loader->state(), batch->after);
  }
  EXPECT_OK(loader->status());
  EXPECT_EQ(position, 100);
  EXPECT_EQ(loader->Next(), nullptr);
  EXPECT_EQ(loader->state(), (DatasetState{.plan_digest = 0xda7a, .epoch = 1}));
}

TEST(DataLoaderTest, ThreadsBudgetAndDepthChangeNothing) {
  const auto plan = std::make_shared<ScatteredPlan>(500, 16, 3, 3);
  std::vector<std::uint64_t> expected;
  for (int threads = 0; threads <= 8; ++threads) {
    for (const std::int64_t budget : {1, 5'000, 1 << 20}) {
      for (const int max_ahead : {1, 3, 64}) {
        auto loader = DataLoader::Create(plan, Numbers(500, 3),
                                         {.seed = 5,
                                          .transform = AddNoise,
                                          .threads = threads,
                                          .budget = Bytes(budget),
                                          .max_ahead = max_ahead});
        ASSERT_OK(loader);
        const std::vector<std::uint64_t> hashes = HashesOf(*loader);
        ASSERT_OK(loader->status());
        if (expected.empty()) expected = hashes;
        ASSERT_EQ(hashes, expected) << threads << " threads, " << budget << " bytes";
      }
    }
  }
  EXPECT_EQ(expected.size(), 96U);
}

TEST(DataLoaderTest, ResumesAtEveryBatchWithOtherRanksAndThreads) {
  const auto plan = std::make_shared<ScatteredPlan>(96, 12, 2);
  const auto deliver = [&](WorldSize size, int threads, const DatasetState& from, std::int64_t most,
                           DatasetState& to) {
    std::vector<std::int64_t> ids;
    std::vector<std::vector<std::int64_t>> by_rank;
    for (int rank = 0; rank < size.value(); ++rank) {
      auto loader =
          DataLoader::Create(plan, Numbers(96), {.shard = {Rank(rank), size}, .threads = threads});
      EXPECT_OK(loader);
      EXPECT_OK(loader->Restore(from));
      std::int64_t batches = 0;
      std::size_t at = 0;
      while (batches < most) {
        const DataBatch* batch = loader->Next();
        if (batch == nullptr) break;
        if (rank == 0) by_rank.emplace_back();
        for (const Sample& sample : batch->samples) by_rank[at].push_back(sample.id);
        ++at;
        ++batches;
      }
      EXPECT_OK(loader->status());
      to = loader->state();
    }
    for (const auto& batch : by_rank) ids.insert(ids.end(), batch.begin(), batch.end());
    return ids;
  };
  const DatasetState start{.plan_digest = plan->digest()};
  DatasetState end;
  const std::vector<std::int64_t> all = deliver(WorldSize(1), 2, start, 1000, end);
  ASSERT_EQ(all.size(), 192U);
  for (std::int64_t stop = 0; stop <= 16; ++stop) {
    DatasetState middle;
    std::vector<std::int64_t> ids = deliver(WorldSize(3), 3, start, stop, middle);
    const std::vector<std::int64_t> rest =
        deliver(WorldSize(1 + static_cast<int>(stop) % 4), 1, middle, 1000, end);
    ids.insert(ids.end(), rest.begin(), rest.end());
    EXPECT_EQ(ids, all) << "stopped after " << stop;
  }
}

TEST(DataLoaderTest, RestoreGoesBackAlsoAfterTheEndAndAfterCancel) {
  auto loader = DataLoader::Create(std::make_shared<ScatteredPlan>(64, 8), Numbers(64));
  ASSERT_OK(loader);
  const DatasetState start = loader->state();
  const std::vector<std::uint64_t> all = HashesOf(*loader);
  ASSERT_OK(loader->Restore(start));
  EXPECT_EQ(HashesOf(*loader), all);
  ASSERT_OK(loader->Restore(start));
  ASSERT_NE(loader->Next(), nullptr);
  loader->Cancel();
  EXPECT_EQ(loader->Next(), nullptr);
  EXPECT_THAT(loader->status(), StatusIs(StatusCode::kCancelled));
  ASSERT_OK(loader->Restore(start));
  EXPECT_EQ(HashesOf(*loader), all);
  EXPECT_THAT(loader->Restore({.plan_digest = 1}), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(loader->Restore({.plan_digest = 0xda7a, .epoch = 9}),
              StatusIs(StatusCode::kOutOfRange));
}

TEST(DataLoaderTest, AsReadyDeliversTheSameBatchesAndTellsWhichAreAhead) {
  const auto plan = std::make_shared<ScatteredPlan>(200, 10, 1);
  const auto source = std::make_shared<NumberSource>(200);
  std::vector<std::uint64_t> expected;
  {
    auto loader = DataLoader::Create(plan, {source});
    ASSERT_OK(loader);
    expected = HashesOf(*loader);
  }
  const auto slow = std::make_shared<NumberSource>(200);
  slow->on_read = [](std::int64_t id) {
    if (id == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return OkStatus();
  };
  const LoaderOptions options = {.threads = 3, .order = DeliveryOrder::kAsReady};
  auto loader = DataLoader::Create(plan, {slow}, options);
  ASSERT_OK(loader);
  std::vector<std::uint64_t> got;
  for (int i = 0; i < 7; ++i) {
    const DataBatch* batch = loader->Next();
    ASSERT_NE(batch, nullptr);
    got.push_back(HashOf(*batch));
  }
  // Another loader delivers the rest, and none twice.
  auto other = DataLoader::Create(plan, {source}, options);
  ASSERT_OK(other);
  ASSERT_OK(other->Restore(loader->state(), loader->delivered_ahead()));
  for (std::uint64_t hash : HashesOf(*other)) got.push_back(hash);
  EXPECT_OK(other->status());
  EXPECT_TRUE(other->delivered_ahead().empty());
  EXPECT_EQ(other->state().epoch, 1);
  std::sort(got.begin(), got.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(got, expected);
}

TEST(DataLoaderTest, AsReadyRunsNotFurtherAheadThanItMay) {
  const auto plan = std::make_shared<ScatteredPlan>(400, 4, 1);
  const auto slow = std::make_shared<NumberSource>(400);
  slow->on_read = [](std::int64_t id) {
    if (id == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return OkStatus();
  };
  for (const int max_ahead : {1, 2, 5}) {
    auto loader = DataLoader::Create(
        plan, {slow}, {.threads = 3, .max_ahead = max_ahead, .order = DeliveryOrder::kAsReady});
    ASSERT_OK(loader);
    int batches = 0;
    while (loader->Next() != nullptr) {
      ++batches;
      ASSERT_LT(loader->delivered_ahead().size(), static_cast<std::size_t>(max_ahead));
    }
    EXPECT_OK(loader->status());
    EXPECT_EQ(batches, 100);
    EXPECT_TRUE(loader->delivered_ahead().empty());
  }
}

TEST(DataLoaderTest, TheStateComesToTheEndOverBatchesThatWereAhead) {
  const auto plan = std::make_shared<ScatteredPlan>(30, 10);
  std::vector<DatasetState> after;
  {
    auto loader = DataLoader::Create(plan, Numbers(30));
    ASSERT_OK(loader);
    while (const DataBatch* batch = loader->Next()) after.push_back(batch->after);
  }
  ASSERT_EQ(after.size(), 3U);
  auto loader = DataLoader::Create(plan, Numbers(30), {.order = DeliveryOrder::kAsReady});
  ASSERT_OK(loader);
  ASSERT_OK(loader->Restore(loader->state(), std::span(after).subspan(1)));
  const DataBatch* batch = loader->Next();
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->after, after[0]);
  EXPECT_EQ(loader->Next(), nullptr);
  EXPECT_OK(loader->status());
  EXPECT_EQ(loader->state(), after[2]);
}

TEST(DataLoaderTest, WhatThrowsIsAnError) {
  const auto plan = std::make_shared<ScatteredPlan>(64, 8);
  const auto error_of = [&](LoaderOptions options, Sources sources) {
    auto loader = DataLoader::Create(plan, std::move(sources), std::move(options));
    EXPECT_OK(loader);
    while (loader->Next() != nullptr) {
    }
    return loader->status();
  };
  const Transform transform = [](Sample& sample, SampleRandom&) -> Status {
    if (sample.id == 20) throw std::runtime_error("no good");
    return OkStatus();
  };
  EXPECT_THAT(error_of({.transform = transform}, Numbers(64)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("no good")));
  const Collate collate = [](const CollateInput&, BatchBuilder&) -> Status { throw 1; };
  EXPECT_THAT(error_of({.collate = collate}, Numbers(64)), StatusIs(StatusCode::kInternal));
  const auto source = std::make_shared<NumberSource>(64);
  source->on_read = [](std::int64_t) -> Status { throw std::runtime_error("broken source"); };
  EXPECT_THAT(error_of({}, {source}), StatusIs(StatusCode::kInternal, HasSubstr("broken source")));
}

TEST(DataLoaderTest, ACollateFunctionOfItsOwn) {
  const Collate collate = [](const CollateInput& input, BatchBuilder& out) -> Status {
    const auto rows = static_cast<std::int64_t>(input.samples.size());
    auto bytes = out.Add("ids", DType::kInt64, {rows});
    AIT_RETURN_IF_ERROR(bytes.status());
    for (std::size_t i = 0; i < input.samples.size(); ++i) {
      reinterpret_cast<std::int64_t*>(bytes->data())[i] = input.samples[i].id * 10;
    }
    out.Drop("name");
    return OkStatus();
  };
  auto loader =
      DataLoader::Create(std::make_shared<ScatteredPlan>(64, 8), Numbers(64), {.collate = collate});
  ASSERT_OK(loader);
  const DataBatch* batch = loader->Next();
  ASSERT_NE(batch, nullptr);
  ASSERT_EQ(batch->arrays.size(), 1U);
  EXPECT_EQ(batch->Find("ids")->As<std::int64_t>()[1], 7919 % 64 * 10);
  EXPECT_EQ(batch->samples[0].Find("name"), nullptr);
  EXPECT_NE(batch->samples[0].Find("x"), nullptr);
}

TEST(DataLoaderTest, OptionsOutOfRangeAreRefused) {
  const auto plan = std::make_shared<ScatteredPlan>(64, 8);
  const auto error_of = [&](LoaderOptions options) {
    return DataLoader::Create(plan, Numbers(64), std::move(options)).status();
  };
  EXPECT_THAT(error_of({.threads = -1}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(error_of({.budget = Bytes(0)}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(error_of({.max_ahead = 0}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(error_of({.shard = {Rank(2), WorldSize(2)}}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(error_of({.bad_samples = {.max_bad_samples = -1}}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(DataLoader::Create(nullptr, Numbers(64)).status(),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(DataLoader::Create(plan, {}).status(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(DataLoader::Create(plan, {nullptr}).status(), StatusIs(StatusCode::kInvalidArgument));
}

TEST(DataLoaderTest, SourcesInAnotherOrderThanThePlansAreRefused) {
  const Sources sources = Numbers(64, 2);
  auto plan = DataPlan::Create({MakePlanSource(*sources[0]), MakePlanSource(*sources[1])},
                               {.global_batch_size = 4});
  ASSERT_OK(plan);
  const auto shared = std::make_shared<DataPlan>(*plan);
  EXPECT_OK(DataLoader::Create(shared, sources));
  EXPECT_THAT(DataLoader::Create(shared, {sources[1], sources[0]}).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("in its order")));
  EXPECT_THAT(DataLoader::Create(shared, {sources[0]}).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("made of more")));
}

TEST(DataLoaderTest, APlanForOtherSourcesIsRefused) {
  auto loader = DataLoader::Create(std::make_shared<ScatteredPlan>(64, 8), Numbers(32));
  ASSERT_OK(loader);
  while (loader->Next() != nullptr) {
  }
  EXPECT_THAT(loader->status(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("other sources")));
}

}  // namespace
}  // namespace ait
