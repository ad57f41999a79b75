// SPDX-License-Identifier: Apache-2.0
#include "ait/data/format/write_shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "ait/data/format/formats.h"
#include "ait/data/storage/local_storage.h"
#include "data/data_test_support.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::NamesIn;
using ::ait::testing::ReadBytes;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::WriteBytes;
using ::testing::HasSubstr;

// Samples of two fields with random bytes; some are bad if asked for.
class RandomSamples : public SampleSource {
 public:
  RandomSamples(std::int64_t count, std::vector<std::int64_t> bad = {}) : bad_(std::move(bad)) {
    std::mt19937 random(7);
    for (std::int64_t i = 0; i < count; ++i) {
      std::string bytes(random() % 9000, '\0');
      for (char& c : bytes) c = static_cast<char>(random());
      values_.push_back(std::move(bytes));
    }
  }

  const std::string& name() const override { return name_; }
  std::int64_t sample_count() const override { return std::ssize(values_); }
  std::uint64_t digest() const override { return 17 + values_.size(); }
  std::int64_t size_bytes(std::int64_t id) const override {
    return std::ssize(values_[static_cast<std::size_t>(id)]) + 3;
  }
  void Read(std::span<SampleRead> reads) const override {
    for (SampleRead& read : reads) {
      if (std::find(bad_.begin(), bad_.end(), read.id) != bad_.end()) {
        read.status = DataLossError("random: sample ", read.id, " is damaged");
        continue;
      }
      read.sample = {};
      read.sample.id = read.id;
      read.sample.key = KeyOf(read.id);
      read.sample.Set(
          {.name = "bin", .value = ByteView::Copy(values_[static_cast<std::size_t>(read.id)])});
      read.sample.Set({.name = "cls", .value = ByteView::Copy(std::to_string(read.id % 10))});
    }
  }
  static std::string KeyOf(std::int64_t id) { return StrCat("s/", 100'000 + id); }
  const std::string& value(std::int64_t id) const { return values_[static_cast<std::size_t>(id)]; }

 private:
  const std::string name_ = "random";
  const std::vector<std::int64_t> bad_;
  std::vector<std::string> values_;
};

constexpr std::int64_t kShardBytes = 128 << 10;

WriteShardsOptions Into(const std::string& directory) {
  return {.directory = directory, .shard_bytes = kShardBytes, .threads = 1};
}

// The bytes of all files of a directory, by name.
std::vector<std::pair<std::string, std::string>> Everything(const std::string& directory) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& name : NamesIn(directory)) {
    // Its lines come in the order in which shards are complete.
    if (name != ".packing.jsonl") all.emplace_back(name, ReadBytes(directory + "/" + name));
  }
  return all;
}

std::vector<std::string> Keys(const std::string& directory) {
  const std::shared_ptr<const Storage> storage = LocalStorage::Create({}).value();
  const auto samples = OpenSamples(storage, directory).value();
  std::vector<std::string> keys;
  for (std::int64_t id = 0; id < samples->sample_count(); ++id) {
    std::vector<SampleRead> reads = {{.id = id}};
    samples->Read(reads);
    EXPECT_OK(reads[0].status);
    keys.push_back(reads[0].sample.key);
  }
  return keys;
}

TEST(WriteShardsTest, EverySampleIsInTheShardsOnceAndInOrder) {
  const TempDir dir;
  const RandomSamples source(200);
  ASSERT_OK_AND_ASSIGN(const WriteReport report, WriteShards(source, Into(dir / "out")));
  EXPECT_EQ(report.samples, 200);
  EXPECT_GT(report.shards.size(), 5u);
  EXPECT_TRUE(report.left_out.empty());
  const std::shared_ptr<const Storage> storage = LocalStorage::Create({}).value();
  ASSERT_OK_AND_ASSIGN(const auto samples, OpenSamples(storage, dir / "out"));
  ASSERT_EQ(samples->sample_count(), 200);
  for (std::int64_t id = 0; id < 200; ++id) {
    std::vector<SampleRead> reads = {{.id = id}};
    samples->Read(reads);
    ASSERT_OK(reads[0].status);
    EXPECT_EQ(reads[0].sample.key, RandomSamples::KeyOf(id));
    ASSERT_NE(reads[0].sample.Find("bin"), nullptr);
    EXPECT_EQ(reads[0].sample.Find("bin")->value.text(), source.value(id));
  }
}

TEST(WriteShardsTest, NoShardIsLargerThanAsked) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const WriteReport report,
                       WriteShards(RandomSamples(100), Into(dir / "out")));
  for (const std::string& file : report.shards) {
    EXPECT_LE(std::filesystem::file_size(dir / "out/" + file),
              static_cast<std::uintmax_t>(kShardBytes));
  }
  WriteShardsOptions few = Into(dir / "few");
  few.shard_samples = 7;
  ASSERT_OK_AND_ASSIGN(const WriteReport by_count, WriteShards(RandomSamples(100), few));
  EXPECT_GE(by_count.shards.size(), 15u);
}

TEST(WriteShardsTest, TheShardsDoNotDependOnTheThreads) {
  const TempDir dir;
  ASSERT_OK(WriteShards(RandomSamples(150), Into(dir / "1")));
  for (const int threads : {2, 5}) {
    WriteShardsOptions options = Into(dir / std::to_string(threads));
    options.threads = threads;
    ASSERT_OK(WriteShards(RandomSamples(150), options));
    EXPECT_EQ(Everything(dir / "1"), Everything(dir / std::to_string(threads)));
  }
}

TEST(WriteShardsTest, AStoppedRunGoesOnWhereItWas) {
  const TempDir dir;
  ASSERT_OK(WriteShards(RandomSamples(150), Into(dir / "whole")));
  for (int stop_after = 1; stop_after < 6; stop_after += 2) {
    WriteShardsOptions options = Into(dir / StrCat("stopped", stop_after));
    options.progress = [&](const WriteProgress& progress) { return progress.shards < stop_after; };
    EXPECT_THAT(WriteShards(RandomSamples(150), options), StatusIs(StatusCode::kCancelled));
    options.progress = {};
    ASSERT_OK_AND_ASSIGN(const WriteReport report, WriteShards(RandomSamples(150), options));
    EXPECT_EQ(report.resumed_shards, stop_after);
    EXPECT_EQ(report.samples, 150);
    EXPECT_EQ(Everything(dir / "whole"), Everything(options.directory));
  }
}

TEST(WriteShardsTest, WhatAKilledRunLeftIsNotBelieved) {
  const TempDir dir;
  ASSERT_OK(WriteShards(RandomSamples(100), Into(dir / "out")));
  const auto whole = Everything(dir / "out");
  const std::string log = ReadBytes(dir / "out/.packing.jsonl");
  // A line that was cut off, a shard that is shorter than its line says, and one that is gone.
  WriteBytes(dir / "out/.packing.jsonl", log.substr(0, log.size() - 9));
  std::filesystem::resize_file(dir / "out/00001.tar", 5'000);
  std::filesystem::remove(dir / "out/00002.tar");
  ASSERT_OK_AND_ASSIGN(const WriteReport report,
                       WriteShards(RandomSamples(100), Into(dir / "out")));
  EXPECT_EQ(report.resumed_shards, std::ssize(report.shards) - 3);
  EXPECT_EQ(Everything(dir / "out"), whole);
}

TEST(WriteShardsTest, ShardsOfSomethingElseAreReplacedOnlyIfAsked) {
  const TempDir dir;
  ASSERT_OK(WriteShards(RandomSamples(100), Into(dir / "out")));
  WriteShardsOptions options = Into(dir / "out");
  EXPECT_THAT(WriteShards(RandomSamples(20), options),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("other samples")));
  EXPECT_EQ(Keys(dir / "out").size(), 100u) << "refusing changes nothing";
  options.existing = ExistingShards::kReplace;
  ASSERT_OK(WriteShards(RandomSamples(20), options));
  EXPECT_EQ(Keys(dir / "out").size(), 20u);
}

TEST(WriteShardsTest, FilesThatAreNotItsOwnAreKept) {
  const TempDir dir;
  WriteShardsOptions options = Into(dir / "out");
  std::filesystem::create_directory(dir / "out");
  for (const char* name : {"00000.tar", "00007.tar", "00003.tar.aitidx", "index.json"}) {
    WriteBytes(dir / "out/" + name, "precious");
    EXPECT_THAT(WriteShards(RandomSamples(20), options),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr(name)));
    EXPECT_EQ(ReadBytes(dir / "out/" + name), "precious");
    std::filesystem::remove(dir / "out/" + name);
  }
  // No name that packing gives: not even --force takes it away, and it would be read as a shard.
  options.existing = ExistingShards::kReplace;
  WriteBytes(dir / "out/mine.tar", "precious");
  EXPECT_THAT(WriteShards(RandomSamples(20), options),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("mine.tar")));
  std::filesystem::remove(dir / "out/mine.tar");
  WriteBytes(dir / "out/notes.txt", "of no matter");
  ASSERT_OK(WriteShards(RandomSamples(20), options));
  EXPECT_EQ(ReadBytes(dir / "out/notes.txt"), "of no matter");
}

TEST(WriteShardsTest, ReplacingRemovesWhatAKilledRunDidNotNote) {
  const TempDir dir;
  WriteShardsOptions options = Into(dir / "out");
  ASSERT_OK(WriteShards(RandomSamples(100), options));
  const std::string log = ReadBytes(dir / "out/.packing.jsonl");
  WriteBytes(dir / "out/.packing.jsonl", log.substr(0, log.find('\n') + 1));
  EXPECT_THAT(WriteShards(RandomSamples(20), options), StatusIs(StatusCode::kFailedPrecondition));
  options.existing = ExistingShards::kReplace;
  ASSERT_OK(WriteShards(RandomSamples(20), options));
  EXPECT_EQ(Keys(dir / "out").size(), 20u);
  // Another format leaves nothing of the first, and the other way round.
  options.format = "mds";
  ASSERT_OK(WriteShards(RandomSamples(20), options));
  EXPECT_EQ(NamesIn(dir / "out"),
            (std::vector<std::string>{".packing.jsonl", "index.json", "shard.00000.mds"}));
  options.format = "webdataset";
  ASSERT_OK(WriteShards(RandomSamples(20), options));
  EXPECT_EQ(Keys(dir / "out").size(), 20u);
}

TEST(WriteShardsTest, TheSourceIsNotReplacedByItsShards) {
  const TempDir dir;
  ASSERT_OK(WriteShards(RandomSamples(50), Into(dir / "out")));
  const auto before = Everything(dir / "out");
  const std::shared_ptr<const Storage> storage = LocalStorage::Create({}).value();
  ASSERT_OK_AND_ASSIGN(const auto samples, OpenSamples(storage, dir / "out"));
  for (const std::string& directory : {dir / "out", dir / "out/../out/"}) {
    WriteShardsOptions options = Into(directory);
    options.existing = ExistingShards::kReplace;
    EXPECT_THAT(WriteShards(*samples, options),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("lies in")));
  }
  EXPECT_EQ(Everything(dir / "out"), before);
}

// Opens a collection anew.
std::shared_ptr<const SampleSource> Opened(const std::string& url, const std::string& format = "") {
  std::shared_ptr<const Storage> storage = LocalStorage::Create({}).value();
  return OpenSamples(std::move(storage), url, {.shard = {.format = format}}).value();
}

TEST(WriteShardsTest, ThePlanDoesNotDependOnWhatWasReadBefore) {
  const TempDir dir;
  // Two shards of tiny samples and large ones: their means are far from the sizes.
  std::filesystem::create_directory(dir / "in");
  for (const char* name : {"a.jsonl", "b.jsonl"}) {
    std::string lines;
    for (int i = 0; i < 300; ++i) {
      lines += R"({"text":")" + std::string(i % 50 == 0 ? 30'000 : 1, 'x') + "\"}\n";
    }
    WriteBytes(dir / "in/" + name, lines);
  }
  WriteShardsOptions options = Into(dir / "whole");
  options.format = "mds";
  ASSERT_OK(WriteShards(*Opened(dir / "in"), options));
  options.directory = dir / "out";
  options.progress = [](const WriteProgress& progress) { return progress.shards < 2; };
  EXPECT_THAT(WriteShards(*Opened(dir / "in"), options), StatusIs(StatusCode::kCancelled));
  options.progress = {};
  const auto samples = Opened(dir / "in");
  std::vector<SampleRead> reads = {{.id = 0}, {.id = 400}};
  samples->Read(reads);
  ASSERT_OK_AND_ASSIGN(const WriteReport report, WriteShards(*samples, options));
  EXPECT_EQ(report.resumed_shards, 2);
  EXPECT_EQ(Everything(dir / "out"), Everything(dir / "whole"));
}

// Its sizes are other ones each time, as those of a program's source may be.
class FickleSamples : public RandomSamples {
 public:
  explicit FickleSamples(std::int64_t more) : RandomSamples(100), more_(more) {}
  std::int64_t size_bytes(std::int64_t id) const override {
    return RandomSamples::size_bytes(id) + more_;
  }

 private:
  const std::int64_t more_;
};

TEST(WriteShardsTest, AnotherPlanIsNotTakenForTheSame) {
  const TempDir dir;
  ASSERT_OK(WriteShards(FickleSamples(0), Into(dir / "out")));
  EXPECT_THAT(WriteShards(FickleSamples(5'000), Into(dir / "out")),
              StatusIs(StatusCode::kFailedPrecondition));
}

TEST(WriteShardsTest, AFileThatWasChangedIsNoticedAtTheSameSize) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "in");
  WriteBytes(dir / "in/a.jpg", "picture");
  WriteBytes(dir / "in/a.cls", "2");
  ASSERT_OK(WriteShards(*Opened(dir / "in"), Into(dir / "out")));
  ASSERT_OK_AND_ASSIGN(WriteReport report, WriteShards(*Opened(dir / "in"), Into(dir / "out")));
  EXPECT_EQ(report.resumed_shards, 1);
  WriteBytes(dir / "in/a.cls", "9");
  EXPECT_THAT(WriteShards(*Opened(dir / "in"), Into(dir / "out")),
              StatusIs(StatusCode::kFailedPrecondition));
  // Of shards, too, whose digest does not see the contents.
  ASSERT_OK(WriteShards(*Opened(dir / "out"), Into(dir / "again")));
  std::string bytes = ReadBytes(dir / "out/00000.tar");
  bytes[512] = '7';
  WriteBytes(dir / "out/00000.tar", bytes);
  EXPECT_THAT(WriteShards(*Opened(dir / "out"), Into(dir / "again")),
              StatusIs(StatusCode::kFailedPrecondition));
  // And of files with an index.
  std::filesystem::create_directory(dir / "tokens");
  WriteBytes(dir / "tokens/a.idx", ait::testing::MegatronIndexBytes(8, 2, {3, 4}));
  WriteBytes(dir / "tokens/a.bin", std::string(14, 'x'));
  const std::uint64_t version = Opened(dir / "tokens")->version();
  WriteBytes(dir / "tokens/a.bin", std::string(14, 'y'));
  EXPECT_NE(Opened(dir / "tokens")->version(), version);
}

TEST(WriteShardsTest, ShardsOfManySmallFieldsKeepTheLimit) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "in");
  for (int sample = 0; sample < 16; ++sample) {
    for (int field = 0; field < 20; ++field) {
      WriteBytes(StrCat(dir / "in", "/", sample, ".f", field), "x");
    }
  }
  std::filesystem::create_directory(dir / "lines");
  std::string lines;
  for (int i = 0; i < 400; ++i) {
    lines += StrCat(R"({"id":)", i, R"(,"text":")", std::string(i % 40 == 0 ? 100'000 : 1, 'x'),
                    "\"}\n");
  }
  WriteBytes(dir / "lines/a.jsonl", lines);
  const auto largest = [](const std::string& directory) {
    std::uintmax_t most = 0;
    for (const std::string& name : NamesIn(directory)) {
      most = std::max(most, std::filesystem::file_size(directory + "/" + name));
    }
    return static_cast<std::int64_t>(most);
  };
  WriteShardsOptions options = Into(dir / "tars");
  options.shard_bytes = 64 << 10;
  ASSERT_OK(WriteShards(*Opened(dir / "in", "folder"), options));
  EXPECT_LE(largest(options.directory), options.shard_bytes);
  options = Into(dir / "mds");
  options.format = "mds";
  ASSERT_OK(WriteShards(*Opened(dir / "lines"), options));
  EXPECT_LE(largest(options.directory), options.shard_bytes);
}

// Of two fields of 1 GiB, of which nobody reads a byte.
class HugeSamples final : public SampleSource {
 public:
  const std::string& name() const override { return name_; }
  std::int64_t sample_count() const override { return 1; }
  std::uint64_t digest() const override { return 1; }
  std::int64_t size_bytes(std::int64_t) const override { return kBytes * 2; }
  void Read(std::span<SampleRead> reads) const override {
    static const std::byte kByte = {};
    for (SampleRead& read : reads) {
      for (const char* name : {"a", "b"}) {
        const std::span<const std::byte> bytes(&kByte, std::size_t{kBytes});
        read.sample.Set({.name = name, .value = ByteView(bytes, nullptr)});
      }
    }
  }

 private:
  static constexpr std::int64_t kBytes = (std::int64_t{1} << 30) + 1;
  const std::string name_ = "huge";
};

TEST(WriteShardsTest, SamplesWithoutKeysAreNumberedThroughAllShards) {
  const TempDir dir;
  for (const char* kind : {"csv", "jsonl"}) {
    const std::string in = dir / kind;
    std::filesystem::create_directory(in);
    const std::string line =
        kind == std::string("csv") ? "id,text\n1,x\n2,y\n" : "{\"id\":1}\n{\"id\":2}\n";
    WriteBytes(StrCat(in, "/a.", kind), line);
    WriteBytes(StrCat(in, "/b.", kind), line);
    ASSERT_OK(WriteShards(*Opened(in), Into(in + ".tars")));
    EXPECT_EQ(Keys(in + ".tars"), (std::vector<std::string>{"0", "1", "2", "3"}));
    WriteShardsOptions options = Into(in + ".mds");
    options.format = "mds";
    options.shard_samples = 3;
    ASSERT_OK(WriteShards(*Opened(in), options));
    EXPECT_EQ(Keys(in + ".mds"), (std::vector<std::string>{"0", "1", "2", "3"}));
  }
}

TEST(WriteShardsTest, ArraysBecomeFilesInTars) {
  const TempDir dir;
  WriteBytes(dir / "in.jsonl", "{\"label\":7,\"xs\":[1,2,3],\"y\":0.5}\n");
  ASSERT_OK(WriteShards(*Opened(dir / "in.jsonl"), Into(dir / "out")));
  std::vector<SampleRead> reads = {{.id = 0}};
  Opened(dir / "out")->Read(reads);
  ASSERT_OK(reads[0].status);
  const Sample& sample = reads[0].sample;
  ASSERT_EQ(sample.fields.size(), 3u);
  ASSERT_NE(sample.Find("label"), nullptr);
  EXPECT_EQ(sample.Find("label")->value.text(), "7");
  ASSERT_NE(sample.Find("xs.npy"), nullptr);
  ASSERT_NE(sample.Find("y.npy"), nullptr);
  // The file is one that is read: a row for each number.
  WriteBytes(dir / "xs.npy", sample.Find("xs.npy")->value.text());
  const auto rows = Opened(dir / "xs.npy");
  ASSERT_EQ(rows->sample_count(), 3);
  reads = {{.id = 2}};
  rows->Read(reads);
  ASSERT_OK(reads[0].status);
  std::int64_t last = 0;
  ASSERT_EQ(reads[0].sample.fields[0].value.size_bytes(), sizeof(last));
  std::memcpy(&last, reads[0].sample.fields[0].value.data(), sizeof(last));
  EXPECT_EQ(last, 3);
}

TEST(WriteShardsTest, ASampleThatIsTooLargeIsNamed) {
  const TempDir dir;
  EXPECT_THAT(WriteShards(HugeSamples(), Into(dir / "out")),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("at most 2147483648")));
}

TEST(WriteShardsTest, BadSamplesAreLeftOutWithinTheBudgetAndNamed) {
  const TempDir dir;
  WriteShardsOptions options = Into(dir / "out");
  options.max_bad_samples = 1;
  EXPECT_THAT(WriteShards(RandomSamples(60, {3, 40}), options),
              StatusIs(StatusCode::kDataLoss, HasSubstr("sample 40 of random is bad")));
  options.max_bad_samples = 2;
  ASSERT_OK_AND_ASSIGN(const WriteReport report, WriteShards(RandomSamples(60, {3, 40}), options));
  EXPECT_EQ(report.samples, 58);
  ASSERT_EQ(report.left_out.size(), 2u);
  EXPECT_EQ(report.left_out[0].place.url, "random#3");
  EXPECT_THAT(report.left_out[1].reason, HasSubstr("sample 40 is damaged"));
}

TEST(WriteShardsTest, OneProcessWritesIntoADirectory) {
  const TempDir dir;
  WriteShardsOptions options = Into(dir / "out");
  Status second;
  options.progress = [&](const WriteProgress&) {
    second = WriteShards(RandomSamples(20), Into(dir / "out")).status();
    return false;
  };
  EXPECT_THAT(WriteShards(RandomSamples(20), options), StatusIs(StatusCode::kCancelled));
  EXPECT_THAT(second, StatusIs(StatusCode::kUnavailable));
}

TEST(WriteShardsTest, OptionsOutOfRangeAreRefused) {
  const TempDir dir;
  const RandomSamples source(3);
  const auto with = [&](auto change) {
    WriteShardsOptions options = Into(dir / "out");
    change(options);
    return WriteShards(source, options).status();
  };
  const auto refused = StatusIs(StatusCode::kInvalidArgument);
  EXPECT_THAT(with([](auto& o) { o.directory = ""; }), refused);
  EXPECT_THAT(with([](auto& o) { o.format = "no-such"; }), refused);
  EXPECT_THAT(with([](auto& o) { o.shard_bytes = 100; }), refused);
  EXPECT_THAT(with([](auto& o) { o.shard_bytes = std::int64_t{1} << 40; }), refused);
  EXPECT_THAT(with([](auto& o) { o.shard_samples = 0; }), refused);
  EXPECT_THAT(with([](auto& o) { o.threads = -1; }), refused);
  EXPECT_THAT(WriteShards(RandomSamples(0), Into(dir / "out")), refused);
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
}

// A source that a program wrote badly.
class ThrowingSamples final : public SampleSource {
 public:
  const std::string& name() const override { return name_; }
  std::int64_t sample_count() const override { return 5; }
  std::uint64_t digest() const override { return 0; }
  std::int64_t size_bytes(std::int64_t) const override { return 1; }
  void Read(std::span<SampleRead>) const override { throw std::runtime_error("oops"); }

 private:
  const std::string name_ = "throwing";
};

TEST(WriteShardsTest, WhatASourceThrowsBecomesAnError) {
  const TempDir dir;
  EXPECT_THAT(WriteShards(ThrowingSamples(), Into(dir / "out")),
              StatusIs(StatusCode::kInternal, HasSubstr("oops")));
}

}  // namespace
}  // namespace ait
