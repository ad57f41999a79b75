// SPDX-License-Identifier: Apache-2.0
// Bad samples in a loader: who is delivered in their place, what is counted, what is listed.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ait/data/loader/data_loader.h"
#include "ait/data/plan/data_plan.h"
#include "data/loader/loader_test_support.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::HashOf;
using ::testing::HasSubstr;
using testing::NumberSource;
using testing::ScatteredPlan;
using testing::StatusIs;

/// A source in which some samples give an error.
std::shared_ptr<NumberSource> Damaged(std::set<std::int64_t> bad, const Status& status,
                                      std::int64_t count = 100) {
  const auto source = std::make_shared<NumberSource>(count);
  source->on_read = [bad = std::move(bad), status](std::int64_t id) {
    return bad.contains(id) ? status : OkStatus();
  };
  return source;
}

const Status kDamage = DataLossError("shard0 at byte 300: the checksum is wrong");

struct Delivery {
  std::vector<std::uint64_t> hashes;
  std::vector<std::int64_t> planned, delivered;
  std::vector<float> weights;
  Status status;
  LoaderStatistics statistics;
};

Delivery RunAll(std::shared_ptr<const SampleSource> source, LoaderOptions options,
                std::int64_t count = 100) {
  auto loader = DataLoader::Create(std::make_shared<ScatteredPlan>(count, 10), {std::move(source)},
                                   std::move(options));
  EXPECT_OK(loader);
  Delivery run;
  while (const DataBatch* batch = loader->Next()) {
    run.hashes.push_back(HashOf(*batch));
    const BatchArray* x = batch->Find("x");
    for (std::size_t i = 0; i < batch->samples.size(); ++i) {
      run.planned.push_back(batch->planned[i].id);
      run.delivered.push_back(batch->samples[i].id);
      run.weights.push_back(batch->weights[i]);
      // What is delivered is whole, and what it says it is.
      EXPECT_EQ(x->As<std::int64_t>()[i * 4], batch->samples[i].id);
      EXPECT_EQ(batch->samples[i].key, "key" + std::to_string(batch->samples[i].id));
    }
  }
  run.status = loader->status();
  run.statistics = loader->statistics();
  return run;
}

TEST(DataLoaderBadTest, TheFirstOneEndsTheDataByDefault) {
  for (const int threads : {0, 1, 4}) {
    const Delivery run = RunAll(Damaged({33}, kDamage), {.threads = threads});
    EXPECT_THAT(run.status, StatusIs(StatusCode::kDataLoss, HasSubstr("bad sample 33")));
    EXPECT_THAT(run.status,
                StatusIs(StatusCode::kDataLoss, HasSubstr("numbers0/shard3 at byte 300")));
    EXPECT_THAT(run.status, StatusIs(StatusCode::kDataLoss, HasSubstr("checksum")));
    // All batches before the one with sample 33: position p with 7919 p = 33 mod 100.
    std::int64_t position = 0;
    while (position * 7919 % 100 != 33) ++position;
    EXPECT_EQ(run.hashes.size(), static_cast<std::size_t>(position / 10));
  }
}

TEST(DataLoaderBadTest, OthersStandInTheSameForAnyThreadsAndRanks) {
  const std::set<std::int64_t> bad = {3, 33, 34, 77};
  std::vector<std::uint64_t> expected;
  for (const int threads : {0, 1, 3, 8}) {
    for (const std::int64_t budget : {1, 1 << 20}) {
      const Delivery run = RunAll(
          Damaged(bad, kDamage),
          {.threads = threads, .budget = Bytes(budget), .bad_samples = {.max_bad_samples = 50}});
      ASSERT_OK(run.status);
      if (expected.empty()) expected = run.hashes;
      EXPECT_EQ(run.hashes, expected);
      ASSERT_EQ(run.delivered.size(), 100U);
      for (std::size_t i = 0; i < run.delivered.size(); ++i) {
        EXPECT_FALSE(bad.contains(run.delivered[i]));
        EXPECT_EQ(run.delivered[i] != run.planned[i], bad.contains(run.planned[i]));
        EXPECT_EQ(run.weights[i], 1.0F);
      }
      EXPECT_GE(run.statistics.bad_samples, 4);
      EXPECT_EQ(run.statistics.stand_ins, 4);
    }
  }
  // Two ranks deliver what one does.
  std::vector<std::int64_t> one, two(100);
  one = RunAll(Damaged(bad, kDamage), {.bad_samples = {.max_bad_samples = 50}}).delivered;
  for (int rank = 0; rank < 2; ++rank) {
    const Delivery run = RunAll(Damaged(bad, kDamage), {.shard = {Rank(rank), WorldSize(2)},
                                                        .bad_samples = {.max_bad_samples = 50}});
    ASSERT_EQ(run.delivered.size(), 50U);
    for (std::size_t i = 0; i < 50; ++i) {
      two[i / 5 * 10 + static_cast<std::size_t>(rank) * 5 + i % 5] = run.delivered[i];
    }
  }
  EXPECT_EQ(two, one);
}

TEST(DataLoaderBadTest, ADroppedSampleHasNoWeight) {
  const Delivery run =
      RunAll(Damaged({33}, kDamage),
             {.bad_samples = {.max_bad_samples = 5, .action = BadSampleAction::kDrop}});
  ASSERT_OK(run.status);
  for (std::size_t i = 0; i < run.weights.size(); ++i) {
    EXPECT_EQ(run.weights[i], run.planned[i] == 33 ? 0.0F : 1.0F);
    EXPECT_NE(run.delivered[i], 33);
  }
}

TEST(DataLoaderBadTest, ATransformMayFindASampleBadOrThrow) {
  for (const bool throws : {false, true}) {
    const Transform transform = [throws](Sample& sample, SampleRandom&) -> Status {
      if (sample.id != 33) return OkStatus();
      if (throws) throw std::runtime_error("half an image");
      return InvalidArgumentError("half an image");
    };
    const auto source = std::make_shared<NumberSource>(100);
    const Delivery fails = RunAll(source, {.transform = transform});
    EXPECT_THAT(Message(fails.status), HasSubstr("half an image"));
    EXPECT_THAT(Message(fails.status), HasSubstr("numbers0/shard3"));
    const Delivery goes_on =
        RunAll(source, {.transform = transform, .bad_samples = {.max_bad_samples = 9}});
    EXPECT_OK(goes_on.status);
    EXPECT_EQ(goes_on.statistics.stand_ins, 1);
  }
}

TEST(DataLoaderBadTest, BudgetsAreExceededAtTheSameBatchForAnyThreads) {
  std::set<std::int64_t> bad;
  for (std::int64_t id = 0; id < 100; id += 5) bad.insert(id);
  struct Case {
    BadSamplePolicy policy;
    std::string text;
  };
  for (const Case& c : {Case{{.max_bad_samples = 7}, "max_bad_samples"},
                        Case{{.max_bad_samples = 99, .max_bad_per_shard = 1}, "max_bad_per_shard"},
                        Case{{.max_bad_samples = 99, .max_bad_in_a_row = 0}, "max_bad_in_a_row"}}) {
    std::vector<std::uint64_t> expected;
    Status status;
    for (const int threads : {0, 1, 4, 8}) {
      const Delivery run =
          RunAll(Damaged(bad, kDamage), {.threads = threads, .bad_samples = c.policy});
      EXPECT_THAT(run.status, StatusIs(StatusCode::kDataLoss, HasSubstr(c.text)));
      if (threads == 0) {
        expected = run.hashes;
        status = run.status;
      }
      EXPECT_EQ(run.hashes, expected);
      EXPECT_EQ(run.status, status);
    }
  }
}

TEST(DataLoaderBadTest, WhoStandsInEndsNoRowOfBadOnes) {
  // Ten at positions after each other.
  std::set<std::int64_t> bad;
  for (std::int64_t position = 43; position < 53; ++position) bad.insert(position * 7919 % 100);
  BadSamplePolicy policy = {.max_bad_samples = 99, .max_bad_in_a_row = 9};
  EXPECT_THAT(RunAll(Damaged(bad, kDamage), {.bad_samples = policy}).status,
              StatusIs(StatusCode::kDataLoss, HasSubstr("max_bad_in_a_row")));
  policy.max_bad_in_a_row = 90;
  EXPECT_OK(RunAll(Damaged(bad, kDamage), {.bad_samples = policy}).status);
}

TEST(DataLoaderBadTest, WhatNextDoesIsWaitedFor) {
  class SlowLog final : public LogSink {
   public:
    void Write(Severity, std::string_view, std::string_view) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  };
  SlowLog log;
  const Delivery run =
      RunAll(Damaged({33}, kDamage), {.bad_samples = {.max_bad_samples = 9}, .log = &log});
  EXPECT_OK(run.status);
  EXPECT_GE(run.statistics.consumer_wait, std::chrono::milliseconds(50));
}

TEST(DataLoaderBadTest, AnErrorOfTheStorageEndsTheDataUnlessItIsAllowed) {
  const std::vector<Status> errors = {NotFoundError("shard3 is missing"),
                                      AbortedError("shard3 has changed"),
                                      PermissionDeniedError("shard3 may not be read"),
                                      UnavailableError("the server does not answer"),
                                      DeadlineExceededError("the server is too slow"),
                                      InternalError("a defect")};
  std::set<std::int64_t> shard;
  for (std::int64_t id = 30; id < 40; ++id) shard.insert(id);
  for (const Status& error : errors) {
    const Delivery ends = RunAll(Damaged(shard, error), {.bad_samples = {.max_bad_samples = 99}});
    EXPECT_EQ(ends.status.code(), error.code());
    EXPECT_THAT(Message(ends.status), HasSubstr(Message(error)));
    const BadSamplePolicy allowed = {.max_bad_samples = 99,
                                     .max_bad_per_shard = 40,
                                     .storage_errors = StorageErrors::kAsBadSample};
    const Delivery goes_on = RunAll(Damaged(shard, error), {.bad_samples = allowed});
    EXPECT_OK(goes_on.status);
    EXPECT_EQ(goes_on.statistics.stand_ins, 10);
    BadSamplePolicy few = allowed;
    few.max_bad_per_shard = 9;
    EXPECT_THAT(RunAll(Damaged(shard, error), {.bad_samples = few}).status,
                StatusIs(StatusCode::kDataLoss, HasSubstr("max_bad_per_shard")));
  }
  // A lack of memory is nobody's fault but the machine's.
  EXPECT_THAT(RunAll(Damaged({3}, ResourceExhaustedError("no memory")),
                     {.bad_samples = {.max_bad_samples = 99,
                                      .storage_errors = StorageErrors::kAsBadSample}})
                  .status,
              StatusIs(StatusCode::kResourceExhausted));
}

TEST(DataLoaderBadTest, ASourceWithoutAGoodSampleEndsTheData) {
  std::set<std::int64_t> all;
  for (std::int64_t id = 0; id < 100; ++id) all.insert(id);
  const Delivery run =
      RunAll(Damaged(all, kDamage), {.bad_samples = {.max_bad_samples = kUnlimitedBadSamples,
                                                     .max_bad_in_a_row = kUnlimitedBadSamples}});
  EXPECT_THAT(run.status, StatusIs(StatusCode::kDataLoss, HasSubstr("can stand in")));
  EXPECT_TRUE(run.hashes.empty());
}

TEST(DataLoaderBadTest, ListsThemOnceAndLeavesThemOutNextTime) {
  testing::TempDir directory;
  const std::string path = directory / "bad.jsonl";
  const LoaderOptions options = {.bad_samples = {.max_bad_samples = 20, .log_path = path}};
  const Delivery first = RunAll(Damaged({33, 34}, kDamage), options);
  ASSERT_OK(first.status);
  ASSERT_OK_AND_ASSIGN(const std::vector<BadSample> list, ReadBadSampleLog(path));
  ASSERT_GE(list.size(), 2U);
  EXPECT_EQ(list[0].source, "numbers0");
  EXPECT_EQ(list[0].shard, "numbers0/shard3");
  EXPECT_EQ(list[0].size_bytes, 100);
  EXPECT_EQ(list[0].code, "DATA_LOSS");
  EXPECT_THAT(list[0].reason, HasSubstr("checksum"));
  EXPECT_EQ(list[0].rank, Rank(0));
  // A run that goes over the same places again adds nothing.
  ASSERT_OK(RunAll(Damaged({33, 34}, kDamage), options).status);
  ASSERT_OK_AND_ASSIGN(const std::vector<BadSample> again, ReadBadSampleLog(path));
  EXPECT_EQ(again, list);
  // Left out, they are not even read, and what is delivered is the same.
  const auto source = Damaged({33, 34}, InternalError("it was read"));
  const Delivery excluded = RunAll(source, {.bad_samples = {.exclude = SamplesOf(list)}});
  EXPECT_OK(excluded.status);
  EXPECT_EQ(excluded.hashes, first.hashes);
  EXPECT_EQ(excluded.statistics.bad_samples, 0);
  EXPECT_EQ(excluded.statistics.stand_ins, 2);
}

TEST(DataLoaderBadTest, RestoreCountsNoPlaceTwice) {
  auto loader =
      DataLoader::Create(std::make_shared<ScatteredPlan>(100, 10), {Damaged({33}, kDamage)},
                         {.bad_samples = {.max_bad_samples = 3}});
  ASSERT_OK(loader);
  const DatasetState start = loader->state();
  for (int i = 0; i < 10; ++i) {
    while (loader->Next() != nullptr) {
    }
    ASSERT_OK(loader->status());
    ASSERT_OK(loader->Restore(start));
  }
}

/// Samples of which the first few are much larger than they say.
class Swelling final : public NumberSource {
 public:
  using NumberSource::NumberSource;

 protected:
  Status ReadOne(SampleRead& read) const override {
    AIT_RETURN_IF_ERROR(NumberSource::ReadOne(read));
    if (read.id / 4 != 1) return OkStatus();
    const std::vector<std::byte> bytes(50'000);
    read.sample.Set(ArrayField("x", DType::kUInt8, {50'000}, bytes));
    return OkStatus();
  }
};

TEST(DataLoaderBadTest, ABatchThatIsGivenUpKeepsItsBadSamples) {
  DataPlanOptions order;
  order.global_batch_size = 4;
  order.order = SampleOrder::kSequential;
  for (const BadSampleAction action : {BadSampleAction::kReplace, BadSampleAction::kDrop}) {
    std::vector<std::uint64_t> expected;
    for (const int threads : {0, 2}) {
      const auto source = std::make_shared<Swelling>(24);
      auto plan = DataPlan::Create({MakePlanSource(*source)}, order);
      ASSERT_OK(plan);
      std::atomic<DataLoader*> asked = nullptr;
      source->on_read = [&](std::int64_t id) -> Status {
        if (id == 9 || id == 10) return kDamage;
        // The second batch comes when the one behind it is ready, and leaves it no room.
        DataLoader* const at = id == 4 ? asked.exchange(nullptr) : nullptr;
        for (int i = 0; i < 10'000 && at != nullptr; ++i) {
          const LoaderStatistics now = at->statistics();
          if (now.batches == 1 && now.ready >= 1) break;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return OkStatus();
      };
      auto loader = DataLoader::Create(std::make_shared<DataPlan>(*plan), {source},
                                       {.threads = threads,
                                        .budget = Bytes(100'000),
                                        .max_ahead = 3,
                                        .bad_samples = {.max_bad_samples = 50, .action = action}});
      ASSERT_OK(loader);
      if (threads > 0) asked = &*loader;
      const std::vector<std::uint64_t> hashes = testing::HashesOf(*loader);
      ASSERT_OK(loader->status());
      if (threads == 0) expected = hashes;
      EXPECT_EQ(hashes, expected);
      const LoaderStatistics statistics = loader->statistics();
      EXPECT_EQ(statistics.stand_ins, 2);
      EXPECT_GE(statistics.bad_samples, 2);
      EXPECT_GE(statistics.given_up, threads > 0 ? 1 : 0);
    }
  }
}

TEST(DataLoaderBadTest, ABatchThatIsFilledUpCountsAPlaceOnce) {
  const auto source = Damaged({0}, kDamage, 3);
  auto plan = DataPlan::Create(
      {MakePlanSource(*source)},
      {.global_batch_size = 8, .order = SampleOrder::kSequential, .last_batch = LastBatch::kPad});
  ASSERT_OK(plan);
  auto loader = DataLoader::Create(std::make_shared<DataPlan>(*plan), {source},
                                   {.threads = 0, .bad_samples = {.max_bad_samples = 1}});
  ASSERT_OK(loader);
  const DataBatch* batch = loader->Next();
  ASSERT_NE(batch, nullptr) << loader->status();
  ASSERT_EQ(batch->samples.size(), 8U);
  ASSERT_NE(batch->Find("x"), nullptr);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_NE(batch->samples[i].id, 0);
    EXPECT_EQ(batch->weights[i], i < 3 ? 1.0F : 0.0F);
  }
  EXPECT_EQ(loader->statistics().bad_samples, 1);
}

TEST(DataLoaderBadTest, NobodyStandsInWhomThePlanLeavesOut) {
  const auto source = Damaged({4, 8, 20}, kDamage);
  PlanStage stage;
  stage.shares = {{.subset = {.end = 40, .stride = 4}}};
  for (const std::int64_t weight : {0, 1}) {
    stage.shares[0].weight = weight;
    auto plan = DataPlan::Create({MakePlanSource(*source)},
                                 {.global_batch_size = 5, .epochs = 20, .stages = {stage}});
    ASSERT_OK(plan);
    auto loader = DataLoader::Create(std::make_shared<DataPlan>(*plan), {source},
                                     {.bad_samples = {.max_bad_samples = 1'000}});
    ASSERT_OK(loader);
    while (const DataBatch* batch = loader->Next()) {
      for (const Sample& sample : batch->samples) {
        EXPECT_EQ(sample.id % 4, 0);
        EXPECT_LT(sample.id, 40);
      }
    }
    EXPECT_OK(loader->status());
    EXPECT_EQ(loader->statistics().stand_ins, 60);
  }
}

/// Arrays of as many numbers as a sample is long.
class Ragged final : public NumberSource {
 public:
  explicit Ragged(std::vector<std::int32_t> lengths)
      : NumberSource(static_cast<std::int64_t>(lengths.size())), lengths_(std::move(lengths)) {}
  std::int64_t Length(std::int64_t id) const { return lengths_[static_cast<std::size_t>(id)]; }
  PlanSource Plan() const {
    PlanSource plan = MakePlanSource(*this);
    plan.lengths = MakeSampleLengths(lengths_);
    return plan;
  }

 protected:
  Status ReadOne(SampleRead& read) const override {
    const std::vector<std::int64_t> values(static_cast<std::size_t>(Length(read.id)), read.id);
    read.sample.fields.clear();
    read.sample.Set(
        ArrayField("x", DType::kInt64, {Length(read.id)}, std::as_bytes(std::span(values))));
    return OkStatus();
  }

 private:
  const std::vector<std::int32_t> lengths_;
};

TEST(DataLoaderBadTest, AStandInBreaksNoPackedRow) {
  // The shortest of all is bad too: nobody has room in its place.
  std::vector<std::int32_t> lengths;
  for (int i = 0; i < 60; ++i) lengths.push_back(2 + i * 7 % 15);
  lengths[7] = 1;
  const auto source = std::make_shared<Ragged>(lengths);
  const std::set<std::int64_t> bad = {0, 7, 11, 30, 59};
  source->on_read = [&](std::int64_t id) { return bad.contains(id) ? kDamage : OkStatus(); };
  auto plan = DataPlan::Create(
      {source->Plan()},
      {.global_batch_size = 4, .epochs = 5, .packing = {.window_samples = 60, .row_budget = 16}});
  ASSERT_OK(plan);
  auto loader = DataLoader::Create(
      std::make_shared<DataPlan>(*plan), {source},
      {.collate = Stack({.padding = {{.field = "x", .length = 16}}, .required = {"x"}}),
       .bad_samples = {.max_bad_samples = 1'000}});
  ASSERT_OK(loader);
  int emptied = 0;
  while (const DataBatch* batch = loader->Next()) {
    for (std::size_t i = 0; i < batch->samples.size(); ++i) {
      const std::int64_t planned = batch->planned[i].id;
      if (batch->weights[i] == 0.0F) {
        ++emptied;
        EXPECT_EQ(planned, 7);
      } else {
        EXPECT_LE(source->Length(batch->samples[i].id), source->Length(planned));
      }
    }
  }
  EXPECT_OK(loader->status());
  EXPECT_EQ(emptied, 5);
}

TEST(DataLoaderBadTest, WhatCannotBeReadHasNoKey) {
  testing::TempDir directory;
  class Unreadable final : public NumberSource {
   public:
    using NumberSource::NumberSource;

   protected:
    Status ReadOne(SampleRead& read) const override {
      return read.id % 10 == 3 ? kDamage : NumberSource::ReadOne(read);
    }
  };
  const std::string path = directory / "bad.jsonl";
  ASSERT_OK(RunAll(std::make_shared<Unreadable>(100),
                   {.threads = 0, .bad_samples = {.max_bad_samples = 90, .log_path = path}})
                .status);
  ASSERT_OK_AND_ASSIGN(const std::vector<BadSample> list, ReadBadSampleLog(path));
  EXPECT_GE(list.size(), 10U);
  for (const BadSample& bad : list) EXPECT_EQ(bad.key, "") << bad.id;
}

TEST(DataLoaderBadTest, AListThatCannotBeWrittenEndsTheData) {
  const auto error_of = [](std::string path) {
    return DataLoader::Create(std::make_shared<ScatteredPlan>(100, 10), {Damaged({33}, kDamage)},
                              {.bad_samples = {.max_bad_samples = 3, .log_path = std::move(path)}})
        .status();
  };
  EXPECT_THAT(error_of("/dev/full"), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(error_of("/nowhere/bad.jsonl"), StatusIs(StatusCode::kNotFound));
}

}  // namespace
}  // namespace ait
