// SPDX-License-Identifier: Apache-2.0
#include "data/format/shard_list_internal.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <utility>

#include "ait/data/crc32c.h"
#include "data/mix_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::int64_t kJoinGapBytes = 16 << 10;  // read over rather than left out
constexpr std::int64_t kJoinBytes = 8 << 20;      // of one read of several records

class ShardList final : public SampleSource {
 public:
  ShardList(ShardListOptions options, std::vector<ListedShard> shards,
            std::function<StatusOr<std::unique_ptr<ShardReader>>(std::size_t)> open)
      : options_(std::move(options)),
        shards_(std::move(shards)),
        open_(std::move(open)),
        slots_(shards_.size()) {
    std::int64_t begin = 0;
    for (const ListedShard& shard : shards_) {
      begins_.push_back(begin);
      begin += shard.sample_count;
    }
    sample_count_ = begin;
  }

  const std::string& name() const override { return options_.name; }
  std::int64_t sample_count() const override { return sample_count_; }
  std::uint64_t digest() const override { return options_.digest; }
  std::uint64_t version() const override { return Fold(options_.digest, options_.version); }
  std::span<const std::int64_t> block_begins() const override { return begins_; }

  void Read(std::span<SampleRead> reads) const override {
    std::vector<SampleRead*> order;
    order.reserve(reads.size());
    for (SampleRead& read : reads) {
      if (read.id < 0 || read.id >= sample_count_) {
        read.status = OutOfRangeError(name(), " has no sample ", read.id, " but ", sample_count_);
      } else {
        order.push_back(&read);
      }
    }
    std::sort(order.begin(), order.end(),
              [](const SampleRead* a, const SampleRead* b) { return a->id < b->id; });
    std::vector<std::int64_t> records;
    for (std::size_t i = 0; i < order.size();) {
      const std::size_t shard = ShardOf(order[i]->id);
      const std::int64_t end = begins_[shard] + shards_[shard].sample_count;
      records.clear();
      std::size_t last = i;
      for (; last < order.size() && order[last]->id < end; ++last) {
        records.push_back(order[last]->id - begins_[shard]);
      }
      const std::span<SampleRead* const> group = std::span(order).subspan(i, last - i);
      i = last;
      const StatusOr<std::shared_ptr<const ShardReader>> opened = Open(shard);
      if (!opened.ok()) {
        for (SampleRead* read : group) read->status = opened.status();
        continue;
      }
      ReadRecords(**opened, records, group);
      for (SampleRead* read : group) {
        // The format has no keys.
        if (read->status.ok() && read->sample.id >= 0) read->sample.key = StrCat(read->id);
        read->sample.id = read->id;
      }
    }
  }

  SamplePlace place(std::int64_t id) const override {
    const std::size_t shard = ShardOf(id);
    SamplePlace place = {.url = shards_[shard].url};
    const std::scoped_lock lock(mutex_);
    if (const ShardReader* opened = slots_[shard].shard.get()) {
      const RecordExtent extent = opened->extent(id - begins_[shard]);
      place.offset_bytes = extent.offset_bytes;
      place.size_bytes = extent.length_bytes;
    }
    return place;
  }

  std::int64_t size_bytes(std::int64_t id) const override {
    const ListedShard& shard = shards_[ShardOf(id)];
    return shard.size_bytes / std::max<std::int64_t>(1, shard.sample_count);
  }

  StatusOr<SampleSize> FindSize(std::int64_t id) const override {
    const std::size_t shard = ShardOf(id);
    AIT_ASSIGN_OR_RETURN(const auto opened, Open(shard));
    return SampleSize{.bytes = opened->extent(id - begins_[shard]).length_bytes};
  }

 private:
  struct Slot {
    std::mutex opening;  // held while the shard is opened, so that it is opened once
    std::shared_ptr<const ShardReader> shard;   // under mutex_
    std::list<std::size_t>::iterator position;  // in recent_ while `shard` is set
  };

  std::size_t ShardOf(std::int64_t id) const {
    // The last that begins at or before it; an empty shard begins where the next one does.
    return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), id) -
                                    begins_.begin() - 1);
  }

  std::shared_ptr<const ShardReader> Find(std::size_t index) const {
    const std::scoped_lock lock(mutex_);
    if (slots_[index].shard == nullptr) return nullptr;
    recent_.splice(recent_.begin(), recent_, slots_[index].position);
    return slots_[index].shard;
  }

  StatusOr<std::shared_ptr<const ShardReader>> Open(std::size_t index) const {
    if (auto found = Find(index)) return found;
    Slot& slot = slots_[index];
    const std::scoped_lock opening(slot.opening);
    if (auto found = Find(index)) return found;
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<const ShardReader> shard, open_(index));
    if (shard->record_count() != shards_[index].sample_count) {
      return DataLossError(shards_[index].url, " has ", shard->record_count(),
                           " samples, the index of ", name(), " says ",
                           shards_[index].sample_count);
    }
    std::vector<std::shared_ptr<const ShardReader>> closed;  // outside of the lock
    const std::scoped_lock lock(mutex_);
    recent_.push_front(index);
    slot.position = recent_.begin();
    slot.shard = shard;
    held_bytes_ += shards_[index].held_bytes;
    while (recent_.size() > 1 &&
           (static_cast<std::int64_t>(recent_.size()) > options_.max_open_shards ||
            held_bytes_ > options_.max_held_bytes)) {
      const std::size_t oldest = recent_.back();
      recent_.pop_back();
      held_bytes_ -= shards_[oldest].held_bytes;
      closed.push_back(std::move(slots_[oldest].shard));
    }
    return shard;
  }

  const ShardListOptions options_;
  const std::vector<ListedShard> shards_;
  const std::function<StatusOr<std::unique_ptr<ShardReader>>(std::size_t)> open_;
  std::vector<std::int64_t> begins_;
  std::int64_t sample_count_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<Slot> slots_;
  mutable std::list<std::size_t> recent_;  // open shards, the last used first
  mutable std::int64_t held_bytes_ = 0;
};

}  // namespace

void ReadRecords(const ShardReader& shard, std::span<const std::int64_t> records,
                 std::span<SampleRead* const> reads) {
  struct Join {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::size_t first = 0;  // of `order`
    std::size_t last = 0;
    ByteView bytes;
  };
  std::vector<std::size_t> order;
  order.reserve(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    reads[i]->status = shard.CheckRecordSize(records[i]);
    if (reads[i]->status.ok()) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return shard.extent(records[a]).offset_bytes < shard.extent(records[b]).offset_bytes;
  });
  std::vector<Join> joins;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const RecordExtent extent = shard.extent(records[order[i]]);
    const std::int64_t end = extent.offset_bytes + extent.length_bytes;
    if (joins.empty() || extent.offset_bytes > joins.back().end + kJoinGapBytes ||
        end - joins.back().begin > kJoinBytes) {
      joins.push_back({.begin = extent.offset_bytes, .end = end, .first = i});
    }
    joins.back().end = std::max(joins.back().end, end);
    joins.back().last = i + 1;
  }
  std::vector<ObjectRead> transfers;
  for (Join& join : joins) {
    const auto size = static_cast<std::size_t>(join.end - join.begin);
    auto bytes = std::make_shared_for_overwrite<std::byte[]>(size);
    transfers.push_back({.offset_bytes = join.begin, .out = std::span(bytes.get(), size)});
    join.bytes = ByteView(transfers.back().out, std::move(bytes));
  }
  shard.object().ReadMany(transfers);
  for (std::size_t j = 0; j < joins.size(); ++j) {
    const Join& join = joins[j];
    for (std::size_t i = join.first; i < join.last; ++i) {
      SampleRead& read = *reads[order[i]];
      read.status = transfers[j].status;
      if (!read.status.ok()) continue;
      const RecordExtent extent = shard.extent(records[order[i]]);
      read.sample.id = -1;
      read.status =
          shard.Decode(records[order[i]],
                       join.bytes.Slice(static_cast<std::size_t>(extent.offset_bytes - join.begin),
                                        static_cast<std::size_t>(extent.length_bytes)),
                       read.sample);
    }
  }
}

std::uint64_t VersionOf(std::span<const ObjectInfo> objects) {
  std::uint64_t version = 0;
  for (const ObjectInfo& object : objects) {
    version = Fold(version, Crc32c(std::as_bytes(std::span(object.version))));
  }
  return version;
}

std::shared_ptr<const SampleSource> SourceOfShards(
    ShardListOptions options, std::vector<ListedShard> shards,
    std::function<StatusOr<std::unique_ptr<ShardReader>>(std::size_t)> open) {
  return std::make_shared<ShardList>(std::move(options), std::move(shards), std::move(open));
}

StatusOr<std::shared_ptr<const SampleSource>> SourceOfShard(std::string name,
                                                            std::unique_ptr<ShardReader> shard,
                                                            std::uint64_t version) {
  const ObjectInfo& info = shard->object().info();
  std::vector<std::byte> ends(
      static_cast<std::size_t>(std::min<std::int64_t>(info.size_bytes, 64 << 10)));
  const auto length = static_cast<std::int64_t>(ends.size());
  AIT_RETURN_IF_ERROR(shard->object().ReadAt(0, ends));
  const std::uint32_t head = Crc32c(ends);
  AIT_RETURN_IF_ERROR(shard->object().ReadAt(info.size_bytes - length, ends));
  std::uint64_t digest = Fold(static_cast<std::uint64_t>(info.size_bytes), head);
  digest = Fold(Fold(digest, Crc32c(ends)), static_cast<std::uint64_t>(shard->record_count()));
  std::vector<ListedShard> listed;
  version = Fold(version, VersionOf(std::span(&info, 1)));
  listed.push_back(
      {.url = info.url, .sample_count = shard->record_count(), .size_bytes = info.size_bytes});
  // Opened once: with one shard nothing is closed before the end.
  auto only = std::make_shared<std::unique_ptr<ShardReader>>(std::move(shard));
  return SourceOfShards(
      {.name = std::move(name), .digest = digest, .version = version}, std::move(listed),
      [only](std::size_t) -> StatusOr<std::unique_ptr<ShardReader>> { return std::move(*only); });
}

}  // namespace internal
}  // namespace ait::inline v0
