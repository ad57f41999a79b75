// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_DATA_FORMAT_SHARD_TEST_SUPPORT_H_
#define AIT_TESTS_DATA_FORMAT_SHARD_TEST_SUPPORT_H_

// What tests of formats share: the files of testdata/, all samples of a shard read in every way, and
// damage at every byte.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ait/data/format/formats.h"
#include "ait/data/format/shard.h"
#include "ait/data/sample_source.h"
#include "data/data_test_support.h"
#include "support/status_matchers.h"

namespace ait::testing {

inline std::string TestDataPath(const std::string& name) {
  return std::string(AIT_FORMAT_TEST_DATA) + "/" + name;
}
inline std::string TestData(const std::string& name) { return ReadBytes(TestDataPath(name)); }

inline std::shared_ptr<const StoredObject> ObjectOf(const std::string& name,
                                                    std::string_view bytes) {
  return MemoryObject(name, ByteView::Copy(bytes));
}

/// A file of testdata/, opened by its name and contents.
inline StatusOr<std::unique_ptr<ShardReader>> OpenTestShard(const std::string& name,
                                                            const ShardOptions& options = {}) {
  return OpenShard(ObjectOf(name, TestData(name)), options);
}

/// Numbers of an array field.
template <typename T>
std::vector<T> Numbers(const SampleField* field) {
  if (field == nullptr || field->kind != FieldKind::kArray || field->dtype != kDTypeOf<T>) {
    ADD_FAILURE() << "no array of this type";
    return {};
  }
  std::vector<T> numbers(field->value.size_bytes() / sizeof(T));
  if (!numbers.empty())
    std::memcpy(numbers.data(), field->value.data(), numbers.size() * sizeof(T));
  return numbers;
}

/// All of a sample as text, to compare by.
inline std::string Describe(const Sample& sample) {
  std::string text = sample.key + ":";
  for (const SampleField& field : sample.fields) {
    text += StrCat(" ", field.name, "(", static_cast<int>(field.kind), ",", Name(field.dtype));
    for (const std::int64_t size : field.shape) text += StrCat(",", size);
    text += StrCat(")=", field.value.text());
  }
  return text;
}

/// All samples of a shard, by streams of several block sizes and one by one, which must agree.
inline std::vector<Sample> ReadAll(const ShardReader& shard) {
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < shard.record_count(); ++i) {
    StatusOr<Sample> sample = shard.ReadRecord(i);
    EXPECT_OK(sample);
    if (!sample.ok()) return {};
    samples.push_back(*std::move(sample));
  }
  for (const std::int64_t block_bytes : {7, 64, 1 << 20}) {
    StatusOr<std::unique_ptr<SampleStream>> stream = shard.Stream({.block_bytes = block_bytes});
    EXPECT_OK(stream);
    if (!stream.ok()) return {};
    std::size_t count = 0;
    Sample sample;
    while (true) {
      const StatusOr<bool> is_there = (*stream)->Next(sample);
      EXPECT_OK(is_there);
      if (!is_there.ok() || !*is_there) break;
      if (count < samples.size()) {
        EXPECT_EQ(Describe(sample), Describe(samples[count]));
      }
      ++count;
    }
    EXPECT_EQ(count, samples.size()) << "in blocks of " << block_bytes;
  }
  return samples;
}

/// Opens and reads whatever `bytes` are, as a fuzzer does; the result does not matter.
inline Status ReadAnything(const std::string& name, std::string_view bytes,
                           ShardOptions options = {}) {
  options.max_unpacked_bytes = 1 << 24;
  options.max_record_bytes = 1 << 24;
  StatusOr<std::unique_ptr<ShardReader>> shard = OpenShard(ObjectOf(name, bytes), options);
  if (!shard.ok()) return shard.status();
  Status first;
  const std::int64_t count = std::min<std::int64_t>((*shard)->record_count(), 1000);
  for (std::int64_t i = 0; i < count; ++i) {
    const StatusOr<Sample> sample = (*shard)->ReadRecord(i);
    if (first.ok()) first = sample.status();
  }
  return first;
}

/// Every shorter file must be an error, and no flipped bit may end the process.
inline void TestDamage(const std::string& name, const ShardOptions& options = {}) {
  const std::string bytes = TestData(name);
  ASSERT_FALSE(bytes.empty()) << name;
  EXPECT_OK(ReadAnything(name, bytes, options));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ReadAnything(name, bytes.substr(0, size), options).ok())
        << name << " cut to " << size;
  }
  EXPECT_FALSE(ReadAnything(name, bytes + '\0', options).ok()) << name << " with a byte more";
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      static_cast<void>(ReadAnything(name, flipped, options));
    }
  }
}

/// The files below a directory, for collections.
class DirectoryStorage final : public Storage {
 public:
  std::string name() const override { return "files of a test"; }
  StatusOr<std::shared_ptr<const StoredObject>> Open(const std::string& url) const override {
    if (!std::filesystem::is_regular_file(url)) return NotFoundError("no file ", url);
    ++opened;
    return ObjectOf(url, ReadBytes(url));
  }
  StatusOr<ObjectInfo> Stat(const std::string& url) const override {
    AIT_ASSIGN_OR_RETURN(const auto object, Open(url));
    return object->info();
  }
  Status List(const std::string& prefix,
              const std::function<Status(const ObjectInfo&)>& visit) const override {
    for (const ObjectInfo& info : Objects(prefix)) AIT_RETURN_IF_ERROR(visit(info));
    return OkStatus();
  }
  static std::vector<ObjectInfo> Objects(const std::string& directory) {
    std::vector<ObjectInfo> objects;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
      if (!entry.is_regular_file()) continue;
      objects.push_back({.url = entry.path().string(),
                         .size_bytes = static_cast<std::int64_t>(entry.file_size())});
    }
    std::sort(objects.begin(), objects.end(),
              [](const ObjectInfo& a, const ObjectInfo& b) { return a.url < b.url; });
    return objects;
  }

  mutable int opened = 0;
};

/// All samples of a source, read in one call, and again backwards one by one.
inline std::vector<Sample> ReadAll(const SampleSource& source) {
  std::vector<SampleRead> reads(static_cast<std::size_t>(source.sample_count()));
  for (std::size_t i = 0; i < reads.size(); ++i) reads[i].id = static_cast<std::int64_t>(i);
  source.Read(reads);
  std::vector<Sample> samples;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    EXPECT_OK(reads[i].status);
    EXPECT_EQ(reads[i].sample.id, static_cast<std::int64_t>(i));
    samples.push_back(reads[i].sample);
  }
  for (std::size_t i = reads.size(); i-- > 0;) {
    SampleRead read = {.id = static_cast<std::int64_t>(i)};
    source.Read(std::span(&read, 1));
    EXPECT_OK(read.status);
    EXPECT_EQ(Describe(read.sample), Describe(samples[i]));
  }
  return samples;
}

}  // namespace ait::testing

#endif  // AIT_TESTS_DATA_FORMAT_SHARD_TEST_SUPPORT_H_
