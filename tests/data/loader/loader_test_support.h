// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_DATA_LOADER_LOADER_TEST_SUPPORT_H_
#define AIT_TESTS_DATA_LOADER_LOADER_TEST_SUPPORT_H_

// A plan and a source that say openly what they do, for tests of the loader.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ait/data/loader/data_loader.h"
#include "ait/data/plan/batch_plan.h"
#include "ait/data/sample_source.h"

namespace ait::testing {

/// Epochs of `size` samples over `sources` sources, scattered by a multiplication; every batch has
/// `global_batch` of them but the last of an epoch.
class ScatteredPlan final : public BatchPlan {
 public:
  ScatteredPlan(std::int64_t size, std::int64_t global_batch, std::int64_t epochs = 1,
                std::int32_t sources = 1)
      : size_(size), global_batch_(global_batch), epochs_(epochs), sources_(sources) {}

  std::uint64_t digest() const override { return 0xda7a; }
  std::int64_t epoch_size(std::int64_t) const override { return size_; }
  Status NextBatch(const DatasetState& from, const Shard& shard,
                   PlannedBatch& batch) const override {
    if (from.plan_digest != digest()) return FailedPreconditionError("another plan");
    if (from.epoch > epochs_ || from.delivered > size_) return OutOfRangeError("beyond the end");
    batch.samples.clear();
    batch.row_begins.clear();
    batch.after = from;
    batch.global_samples = 0;
    batch.is_end = from.epoch >= epochs_;
    if (batch.is_end) return OkStatus();
    const std::int64_t count = std::min(global_batch_, size_ - from.delivered);
    const std::int64_t begin = count * shard.rank.value() / shard.size.value();
    const std::int64_t end = count * (shard.rank.value() + 1) / shard.size.value();
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t position = from.delivered + i;
      const std::int64_t sample = (position * 7919 + from.epoch * 31) % size_;
      batch.samples.push_back({.source = static_cast<std::int32_t>(sample % sources_),
                               .id = sample / sources_,
                               .epoch = from.epoch,
                               .position = position});
    }
    batch.global_samples = count;
    batch.after.delivered += count;
    if (batch.after.delivered == size_) {
      batch.after.delivered = 0;
      ++batch.after.epoch;
    }
    return OkStatus();
  }

 private:
  std::int64_t size_, global_batch_, epochs_;
  std::int32_t sources_;
};

/// Samples of one array "x" (int64, all numbers are 1000 * source + id) and a text "name".
class NumberSource : public SampleSource {
 public:
  explicit NumberSource(std::int64_t count, std::int32_t number = 0, std::int64_t width = 4)
      : name_("numbers" + std::to_string(number)), count_(count), number_(number), width_(width) {}

  const std::string& name() const override { return name_; }
  std::int64_t sample_count() const override { return count_; }
  std::uint64_t digest() const override {
    return 0x50000000U + static_cast<std::uint64_t>(number_);
  }
  std::int64_t size_bytes(std::int64_t) const override { return width_ * 8 + 8; }
  SamplePlace place(std::int64_t id) const override {
    return {.url = name_ + "/shard" + std::to_string(id / 10),
            .offset_bytes = id % 10 * 100,
            .size_bytes = 100};
  }
  void Read(std::span<SampleRead> reads) const override {
    for (SampleRead& read : reads) {
      read.status = ReadOne(read);
      if (read.status.ok() && on_read) read.status = on_read(read.id);
    }
  }
  std::int64_t Number(std::int64_t id) const { return number_ * 1000 + id; }

  std::function<Status(std::int64_t)> on_read;

 protected:
  virtual Status ReadOne(SampleRead& read) const {
    const std::vector<std::int64_t> values(static_cast<std::size_t>(width_), Number(read.id));
    read.sample.id = read.id;
    read.sample.key = "key" + std::to_string(read.id);
    read.sample.fields.clear();
    read.sample.fields.push_back(
        ArrayField("x", DType::kInt64, {width_}, std::as_bytes(std::span(values))));
    read.sample.fields.push_back({.name = "name",
                                  .value = ByteView::Copy("n" + std::to_string(read.id)),
                                  .kind = FieldKind::kText});
    return OkStatus();
  }

  const std::string name_;
  const std::int64_t count_;
  const std::int32_t number_;
  const std::int64_t width_;
};

/// Hash over everything that a batch delivers.
inline std::uint64_t HashOf(const DataBatch& batch) {
  std::uint64_t hash = 1469598103934665603ULL;
  const auto add = [&hash](std::span<const std::byte> bytes) {
    for (std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211U;
  };
  for (const BatchArray& array : batch.arrays) {
    add(std::as_bytes(std::span(array.name)));
    add(std::as_bytes(std::span(array.shape)));
    add(array.bytes());
  }
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    add(std::as_bytes(std::span(&batch.samples[i].id, 1)));
    add(std::as_bytes(std::span(&batch.weights[i], 1)));
    add(std::as_bytes(std::span(batch.samples[i].key)));
    for (const SampleField& field : batch.samples[i].fields) {
      add(std::as_bytes(std::span(field.name)));
      add(field.value.bytes());
    }
  }
  return hash;
}

/// Hashes of all batches to the end.
inline std::vector<std::uint64_t> HashesOf(DataLoader& loader) {
  std::vector<std::uint64_t> hashes;
  while (const DataBatch* batch = loader.Next()) hashes.push_back(HashOf(*batch));
  return hashes;
}

}  // namespace ait::testing

#endif  // AIT_TESTS_DATA_LOADER_LOADER_TEST_SUPPORT_H_
