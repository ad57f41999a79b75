// SPDX-License-Identifier: Apache-2.0
// The code of docs/loader.md, docs/preparing-data.md, docs/resuming.md, docs/transforms.md,
// docs/bad-data.md, docs/data-cache.md, docs/data-engines.md, docs/data-formats.md and
// docs/webdataset.md, on a few small images.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/comm/world.h"
#include "ait/data/cache/tiered_cache.h"
#include "ait/data/decode/array_ops.h"
#include "ait/data/decode/field_transforms.h"
#include "ait/data/decode/image_transforms.h"
#include "ait/data/decode/jpeg.h"
#include "ait/data/format/formats.h"
#include "ait/data/loader/bad_samples.h"
#include "ait/data/loader/data_loader.h"
#include "ait/data/plan/data_plan.h"
#include "ait/data/plan/plan_agreement.h"
#include "ait/data/storage/local_storage.h"
#include "support/document.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::ExpectCodeIsCompiled;

/// The folder that the programs run in, with a place for shards.
class DataPages : public ::testing::Test {
 protected:
  DataPages() {
    std::filesystem::current_path(folder_.path());
    for (const char* name : {"out", "train", "run"}) std::filesystem::create_directory(name);
  }
  ~DataPages() override { std::filesystem::current_path(old_folder_); }

  /// Two shards of images, each with a class.
  static void WriteTrainingShards() {
    const std::vector<std::uint8_t> pixels(8 * 8 * 3, 90);
    const auto jpeg = EncodeJpeg(
        {.data = pixels.data(), .height = 8, .width = 8, .channels = 3, .row_bytes = 8 * 3});
    ASSERT_OK(jpeg);
    for (const char* path : {"train/00000.tar", "train/00001.tar"}) {
      ASSERT_OK_AND_ASSIGN(const auto shard, CreateShard(path));
      for (int i = 0; i < 10; ++i) {
        Sample sample{.key = "cat/" + std::to_string(1000 + i)};
        sample.Set({.name = "jpg", .value = ByteView::Copy(*jpeg)});
        sample.Set({.name = "cls", .value = ByteView::Copy("3")});
        ASSERT_OK(shard->Append(sample));
      }
      ASSERT_OK(shard->Commit());
    }
  }
  static std::shared_ptr<const SampleSource> Images() {
    WriteTrainingShards();
    return *OpenSamples(*LocalStorage::Create(), "train/");
  }

 private:
  const std::filesystem::path old_folder_ = std::filesystem::current_path();
  const ait::testing::TempDir folder_;
};

int used = 0;
template <typename... Arguments>
void Train(const Arguments&...) {
  ++used;
}
template <typename Argument>
void Use(const Argument&) {
  ++used;
}
void Print(std::string_view) { ++used; }

Status Scale(SampleField& field, double gain) {
  return gain > 0 && !field.value.is_empty() ? OkStatus() : InvalidArgumentError("no signal");
}

// clang-format off: as the pages show it
Transform ForTraining() {
  Transform train = Chain({
      DecodeImage({.random_crop = RandomCropOptions{.height = 224, .width = 224}}),
      RandomFlip(),
      Normalize({.normalization = ImageNetNormalization()}),
      ParseInteger({.field = "cls", .output = "label", .end = 1000}),
      Select({"image", "label"}),
  });
  return train;
}

Transform WithNoise() {
  Transform noise = [](Sample& sample, SampleRandom& random) -> Status {
    SampleField* field = sample.Find("signal");
    if (field == nullptr) return InvalidArgumentError("sample ", sample.key, " has no signal");
    const double gain = random.Uniform(0.8, 1.2);
    return Scale(*field, gain);
  };
  return noise;
}

StatusOr<std::vector<std::int64_t>> LengthsOf(std::span<const SampleField* const> token_fields, double pad_id) {
  AIT_ASSIGN_OR_RETURN(PaddedStack batch, StackPadded(token_fields, {.multiple = 8, .value = pad_id}));
  // batch.values (n, longest), batch.mask (n, longest) of bool, batch.lengths
  return batch.lengths;
}

Transform DecodeAndCrop() { return ForTraining(); }

Status Load(std::shared_ptr<const BatchPlan> plan, std::shared_ptr<const SampleSource> source, World* world,
            std::string& saved) {
  auto loader = DataLoader::Create(plan, {source}, {
      .shard = world->shard(),                  // which rank of how many
      .seed = 1,                                // of the random numbers of transforms
      .transform = DecodeAndCrop(),             // any callable: Status(Sample&, SampleRandom&)
      .budget = MiB(512),                       // samples and batches, the one in use included
  });
  if (!loader.ok()) return loader.status();
  while (const DataBatch* batch = loader->Next()) {
    const BatchArray* images = batch->Find("image");
    Train(images->As<float>(), batch->weights);
    saved = ToJson(loader->state());            // goes into the checkpoint
  }
  return loader->status();                      // ok at the end
}

void AskForMore(LoaderOptions& options, std::shared_ptr<DeviceRuntime> gpus, void* stream, const DataBatch* batch) {
  options.collate = Stack({
      .padding = {{.field = "tokens", .value = -100, .multiple_of = 64, .mask = PaddingMask::kMask}},
      .required = {"image"},      // an error instead of a field that stays behind
  });
  options.device_copy = {.gpus = gpus, .device = Device(0), .consumer_stream = stream};
  /* Create, Next:
  …
  */
  Use(batch->Find("image")->device);        // in that stream
}

void Report(DataLoader* loader, StepMetrics& metrics) {
  const DataWait wait = loader->TakeWait();           // once a step
  AddTo(metrics, wait);                               // data_wait_us, data_wait_permille: metrics.jsonl
  Print(ToString(loader->statistics()));
}

Status PackOne(const std::vector<std::byte>& jpeg) {
  AIT_ASSIGN_OR_RETURN(auto shard, CreateShard("out/00000.tar", {.format = "webdataset"}));
  Sample sample{.key = "cat/0001"};
  sample.Set({.name = "jpg", .value = ByteView::Copy(jpeg)});
  sample.Set({.name = "cls", .value = ByteView::Copy("3")});
  AIT_RETURN_IF_ERROR(shard->Append(sample));
  return shard->Commit();                       // nothing has the name before
}

Status Resume(World* world, const std::shared_ptr<const SampleSource>& images) {
  AIT_ASSIGN_OR_RETURN(ait::DataPlan plan,
                       ait::DataPlan::Create({ait::MakePlanSource(*images)},
                                             {.global_batch_size = 256, .seed = 1, .epochs = 90}));
  ait::DatasetState state = plan.start();                   // or DatasetStateFromJson(checkpoint)
  AIT_RETURN_IF_ERROR(ait::AgreeOnPlan(*world->communicator(), plan, world->shard(), state));
  ait::PlannedBatch batch;
  while (true) {
    AIT_RETURN_IF_ERROR(plan.NextBatch(state, world->shard(), batch));
    if (batch.is_end) break;
    Train(batch);                                           // batch.samples: source, id, epoch
    state = batch.after;                                    // save this with the checkpoint
  }
  return OkStatus();
}

DataPlanOptions Mixed() {
  return {
    .stages = {{.shares = {{.weight = 7}, {.weight = 3}}, .mixture_end = ait::MixtureEnd::kLastExhausted}}
  };
}

LoaderOptions Tolerant() {
  LoaderOptions options = {.bad_samples = {
      .max_bad_samples = 100,                 // in all
      .max_bad_per_shard = 10,                // a shard with more than that is broken
      .max_bad_in_a_row = 20,                 // so is everything, if rows are bad one after the other
      .action = BadSampleAction::kReplace,
      .log_path = "run/bad.jsonl",
  }};
  return options;
}

Status Exclude(LoaderOptions& options) {
  AIT_ASSIGN_OR_RETURN(const auto list, ReadBadSampleLog("run/bad.jsonl"));
  options.bad_samples.exclude = SamplesOf(list);
  return OkStatus();
}

Status ReadTwo(std::shared_ptr<const Storage> storage) {
  AIT_ASSIGN_OR_RETURN(auto samples, ait::OpenSamples(storage, "train/"));
  std::vector<ait::SampleRead> reads = {{.id = 17}, {.id = 4}};
  samples->Read(reads);
  if (reads[0].status.ok()) Use(*reads[0].sample.Find("jpg"));
  return reads[1].status;
}

Status ReadAndWriteTars() {
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<const Storage> files, LocalStorage::Create({}));
  AIT_ASSIGN_OR_RETURN(auto samples, OpenSamples(files, "train/"));         // every shard of a directory
  std::vector<SampleRead> reads = {{.id = 17}, {.id = 4}};
  samples->Read(reads);                                                      // each with its own status

  AIT_ASSIGN_OR_RETURN(auto stream, StreamSamples(files, {"train/00000.tar", "train/00001.tar"}));
  Sample sample;
  while (*stream->Next(sample)) Use(sample);                                 // one pass, no index needed

  AIT_ASSIGN_OR_RETURN(auto writer, CreateShard("out/00000.tar"));
  AIT_RETURN_IF_ERROR(writer->Append(sample));
  AIT_RETURN_IF_ERROR(writer->Commit());                                     // and out/00000.tar.aitidx
  return reads[0].status;
}

Status Cached(std::shared_ptr<const Storage> remote) {
  auto cache = ait::TieredCache::Create(remote, {.memory_bytes = 16LL << 30,
                                                 .disk_bytes = 500LL << 30,
                                                 .disk_directory = "/nvme/ait-cache"});
  if (!cache.ok()) return cache.status();
  auto object = (*cache)->Open("s3://bucket/train/shard-00000.tar");   // asks the storage for the version
  auto progress = (*cache)->Warm("s3://bucket/train/", {.threads = 16});
  return object.ok() ? progress.status() : object.status();
}

void Choose() {
  auto files = ait::LocalStorage::Create({});                          // or {.engine = ait::LocalEngine::kUring}
  auto choice = (*files)->Explain("train/shard-00000.tar");
  std::puts(ait::ToString(*choice).c_str());
}
// clang-format on

TEST_F(DataPages, TransformsIsThis) { ExpectCodeIsCompiled(AIT_DOCS "/transforms.md", AIT_SOURCE); }
TEST_F(DataPages, LoaderIsThis) { ExpectCodeIsCompiled(AIT_DOCS "/loader.md", AIT_SOURCE); }
TEST_F(DataPages, PreparingDataIsThis) {
  ExpectCodeIsCompiled(AIT_DOCS "/preparing-data.md", AIT_SOURCE);
}
TEST_F(DataPages, ResumingIsThis) { ExpectCodeIsCompiled(AIT_DOCS "/resuming.md", AIT_SOURCE); }
TEST_F(DataPages, BadDataIsThis) { ExpectCodeIsCompiled(AIT_DOCS "/bad-data.md", AIT_SOURCE); }
TEST_F(DataPages, DataFormatsIsThis) {
  ExpectCodeIsCompiled(AIT_DOCS "/data-formats.md", AIT_SOURCE);
}
TEST_F(DataPages, WebDatasetIsThis) { ExpectCodeIsCompiled(AIT_DOCS "/webdataset.md", AIT_SOURCE); }

TEST_F(DataPages, DataCacheIsThis) {
  EXPECT_NE(&Cached, nullptr) << "it needs a bucket";
  ExpectCodeIsCompiled(AIT_DOCS "/data-cache.md", AIT_SOURCE);
}
TEST_F(DataPages, DataEnginesIsThis) {
  EXPECT_NE(&Choose, nullptr) << "it needs a shard";
  ExpectCodeIsCompiled(AIT_DOCS "/data-engines.md", AIT_SOURCE);
}

TEST_F(DataPages, TransformsStackUnequalLengths) {
  const std::vector<std::int32_t> tokens(12, 5);
  const auto bytes = std::as_bytes(std::span(tokens));
  const SampleField longer = ArrayField("tokens", DType::kInt32, {12}, bytes);
  const SampleField shorter = ArrayField("tokens", DType::kInt32, {3}, bytes.first(12));
  const std::vector<const SampleField*> fields = {&longer, &shorter};
  ASSERT_OK_AND_ASSIGN(const auto lengths, LengthsOf(fields, 0));
  EXPECT_THAT(lengths, ::testing::ElementsAre(12, 3));
}

TEST_F(DataPages, TransformsMayBeYourOwn) {
  Sample sample{.key = "quiet"};
  SampleRandom random(1, 0, 0, 0);
  EXPECT_FALSE(WithNoise()(sample, random).ok());
  sample.Set({.name = "signal", .value = ByteView::Copy("1234")});
  EXPECT_OK(WithNoise()(sample, random));
}

TEST_F(DataPages, LoaderDeliversWhatThePlanSays) {
  ASSERT_OK_AND_ASSIGN(const auto world, World::FromEnvironment());
  const auto images = Images();
  ASSERT_OK_AND_ASSIGN(const auto plan, DataPlan::Create({MakePlanSource(*images)},
                                                         {.global_batch_size = 4, .seed = 1}));
  std::string saved;
  used = 0;
  ASSERT_OK(Load(std::make_shared<const DataPlan>(plan), images, world.get(), saved));
  EXPECT_EQ(used, 5);
  EXPECT_OK(DatasetStateFromJson(saved));

  ASSERT_OK_AND_ASSIGN(DataLoader loader,
                       DataLoader::Create(std::make_shared<const DataPlan>(plan), {images}));
  ASSERT_NE(loader.Next(), nullptr);
  StepMetrics metrics;
  Report(&loader, metrics);
  EXPECT_FALSE(metrics.counters.empty());
  EXPECT_NE(&AskForMore, nullptr) << "it needs a GPU";
}

TEST_F(DataPages, PreparingDataPacksASample) {
  ASSERT_OK(PackOne(std::vector<std::byte>(3, std::byte{7})));
  ASSERT_OK_AND_ASSIGN(const auto samples, OpenSamples(*LocalStorage::Create(), "out/"));
  EXPECT_EQ(samples->sample_count(), 1);
}

TEST_F(DataPages, ResumingGoesThroughAllEpochs) {
  ASSERT_OK_AND_ASSIGN(const auto world, World::FromEnvironment());
  used = 0;
  ASSERT_OK(Resume(world.get(), Images()));
  EXPECT_EQ(used, (20 * 90 + 255) / 256);
  EXPECT_EQ(Mixed().stages.size(), 1u);
}

TEST_F(DataPages, BadDataListsAndExcludes) {
  LoaderOptions options = Tolerant();
  const BadSample bad = {.source = "train", .source_digest = 7, .id = 4, .code = "DATA_LOSS"};
  ASSERT_OK_AND_ASSIGN(BadSampleLog log, BadSampleLog::Open(options.bad_samples.log_path));
  ASSERT_OK(log.Append(bad));
  ASSERT_OK(Exclude(options));
  EXPECT_EQ(options.bad_samples.exclude, (std::vector<SampleId>{{.source_digest = 7, .id = 4}}));
}

TEST_F(DataPages, FormatsReadAndWrite) {
  WriteTrainingShards();
  EXPECT_OK(ReadTwo(*LocalStorage::Create()));
  used = 0;
  EXPECT_OK(ReadAndWriteTars());
  EXPECT_EQ(used, 20);
}

}  // namespace
}  // namespace ait
