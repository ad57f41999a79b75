// SPDX-License-Identifier: Apache-2.0
#include "data/format/sharded_samples_internal.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <utility>

#include "ait/data/crc32c.h"
#include "ait/data/decode/compress.h"
#include "ait/data/format/index.h"
#include "data/format/unpacked_internal.h"

namespace ait::inline v0::internal {
namespace {

// Neighbouring records are read together if no more than this lies between them, up to so much.
constexpr std::int64_t kMaxGapBytes = 64 << 10;
constexpr std::int64_t kMaxJoinedBytes = 4 << 20;

// Mixes `value` into `hash` (the finaliser of SplitMix64, Steele et al., 2014).
std::uint64_t Mix(std::uint64_t hash, std::uint64_t value) {
  std::uint64_t z = (hash ^ value) + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

bool TakesIndex(std::string_view format) { return format == "webdataset" || format == "tfrecord"; }

// Whether a shard lies in memory while it is open. One whose object is another than that of the
// storage need not: columns of several arrays are put together when they are read.
StatusOr<bool> IsInMemory(const ShardReader& shard, const StoredObject& stored) {
  if (&shard.object() == &stored) return false;
  if (shard.format() == "arrow" || shard.format() == "parquet") return true;
  AIT_ASSIGN_OR_RETURN(const std::vector<std::byte> head, FileHead(stored, 4));
  return CompressionOf(head) != Compression::kNone;
}

// Tells objects of equal size apart, very likely: the header, and the last that was written.
StatusOr<std::uint64_t> DigestOfEnds(const StoredObject& object) {
  constexpr std::int64_t kEndBytes = 64 << 10;
  const std::int64_t size = object.info().size_bytes;
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(size, kEndBytes)));
  AIT_RETURN_IF_ERROR(object.ReadAt(0, bytes));
  const std::uint32_t head = Crc32c(bytes);
  AIT_RETURN_IF_ERROR(object.ReadAt(size - static_cast<std::int64_t>(bytes.size()), bytes));
  return Mix(head, Crc32c(bytes));
}

// Runs `work` for 0 ≤ i < count on several threads; the first error in order of i.
Status ForEach(std::size_t count, int threads, const std::function<Status(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t failed = count;
  Status status;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      if (Status one = work(i); !one.ok()) {
        const std::scoped_lock lock(mutex);
        if (i < failed) {
          failed = i;
          status = std::move(one);
        }
        next = count;  // those before i have all been started
      }
    }
  };
  std::vector<std::thread> helpers;
  const auto wanted = std::min(count, static_cast<std::size_t>(std::max(1, threads)));
  try {
    while (helpers.size() + 1 < wanted) helpers.emplace_back(run);
  } catch (const std::system_error&) {
    // Fewer threads do it as well.
  }
  run();
  for (std::thread& helper : helpers) helper.join();
  return status;
}

}  // namespace

StatusOr<std::shared_ptr<const SampleSource>> ShardedSamples::Create(
    std::shared_ptr<const Storage> storage, std::string name, std::vector<ShardFile> files,
    const SamplesOptions& options) {
  if (options.open_threads < 1) {
    return InvalidArgumentError(options.open_threads, " threads to open shards; 1 or more");
  }
  if (files.empty()) return NotFoundError("no shards in ", name);
  std::shared_ptr<ShardedSamples> samples(
      new ShardedSamples(std::move(storage), std::move(name), options));
  AIT_RETURN_IF_ERROR(samples->OpenAll(std::move(files)));
  return samples;
}

Status ShardedSamples::OpenAll(std::vector<ShardFile> files) {
  entries_.resize(files.size());
  slots_ = std::vector<Slot>(files.size());
  AIT_RETURN_IF_ERROR(ForEach(files.size(), options_.open_threads, [&](std::size_t i) {
    entries_[i].file = std::move(files[i]);
    return OpenEntry(entries_[i]);
  }));
  for (const Entry& entry : entries_) {
    if (entry.format != entries_[0].format) {
      return InvalidArgumentError("shards of several formats in ", name_, ": ",
                                  entries_[0].file.shard.url, " is ", entries_[0].format, ", ",
                                  entry.file.shard.url, " is ", entry.format);
    }
    begins_.push_back(begins_.back() + entry.count);
    digest_ = Mix(digest_, static_cast<std::uint64_t>(entry.count));
    digest_ = Mix(digest_, static_cast<std::uint64_t>(entry.file.shard.size_bytes));
    digest_ = Mix(digest_, entry.digest);
    version_ = Mix(version_, Crc32c(std::as_bytes(std::span(entry.file.shard.version))));
  }
  version_ = Mix(version_, digest_);
  return OkStatus();
}

// Finds out how many records there are, by as little reading as possible.
Status ShardedSamples::OpenEntry(Entry& entry) const {
  if (!entry.file.index.url.empty()) {
    AIT_ASSIGN_OR_RETURN(const auto index, storage_->Open(entry.file.index.url));
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(std::min(kIndexHeaderBytes, index->info().size_bytes)));
    AIT_RETURN_IF_ERROR(index->ReadAt(0, bytes));
    AIT_ASSIGN_OR_RETURN(const ShardIndexHeader header,
                         ParseIndexHeader(bytes, index->info().size_bytes, index->info().url));
    if (header.shard_bytes != entry.file.shard.size_bytes) {
      return DataLossError(entry.file.shard.url, " has ", entry.file.shard.size_bytes,
                           " bytes, its index is of a shard of ", header.shard_bytes,
                           ": truncated or replaced; remove the index or write it anew");
    }
    if (header.key_rule == options_.shard.key_rule &&
        (options_.shard.format.empty() || options_.shard.format == header.format)) {
      entry.count = header.record_count;
      entry.digest = header.table_checksum;
      entry.format = header.format;
      return OkStatus();
    }
  }
  AIT_ASSIGN_OR_RETURN(const OpenedFile opened, OpenFile(entry));
  const std::shared_ptr<const ShardReader>& shard = opened.shard;
  entry.is_unpacked = opened.is_unpacked;
  if (opened.is_unpacked) entry.unpacked_bytes = shard->object().info().size_bytes;
  entry.count = shard->record_count();
  entry.format = shard->format();
  if (!TakesIndex(entry.format)) {
    // Opened again as quickly as the first time; a table of a billion rows would be for nothing.
    AIT_ASSIGN_OR_RETURN(entry.digest, DigestOfEnds(shard->object()));
    return OkStatus();
  }
  ShardIndex table;
  table.format = shard->format();
  table.shard_bytes = shard->object().info().size_bytes;  // unpacked, if it was compressed
  table.key_rule = options_.shard.key_rule;
  for (std::int64_t record = 0; record < entry.count; ++record) {
    table.extents.push_back(shard->extent(record));
  }
  const std::string bytes = SerializeIndex(table);
  entry.digest = Crc32c(std::as_bytes(std::span(bytes)));
  entry.table = MemoryObject(IndexPath(entry.file.shard.url), ByteView::Copy(bytes));
  return OkStatus();
}

StatusOr<ShardedSamples::OpenedFile> ShardedSamples::OpenFile(const Entry& entry) const {
  const ObjectInfo& expected = entry.file.shard;
  AIT_ASSIGN_OR_RETURN(const std::shared_ptr<const StoredObject> object,
                       storage_->Open(expected.url));
  const ObjectInfo& info = object->info();
  if (info.size_bytes != expected.size_bytes ||
      (!expected.version.empty() && info.version != expected.version)) {
    return AbortedError(expected.url, " has changed since the dataset was opened: it has ",
                        info.size_bytes, " bytes, it had ", expected.size_bytes);
  }
  std::shared_ptr<const StoredObject> index = entry.table;
  if (index == nullptr && !entry.file.index.url.empty()) {
    AIT_ASSIGN_OR_RETURN(index, storage_->Open(entry.file.index.url));
  }
  ShardOptions options = options_.shard;
  if (!entry.format.empty()) options.format = entry.format;  // known: not guessed once more
  // With format and table `OpenShard` does not look whether it is compressed.
  std::shared_ptr<const StoredObject> whole = object;
  if (entry.is_unpacked) {
    AIT_ASSIGN_OR_RETURN(whole, Unpacked(object, options));
  }
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<const ShardReader> shard,
                       OpenShard(std::move(whole), options, std::move(index)));
  bool is_unpacked = entry.is_unpacked;
  if (entry.format.empty()) {  // opened for the first time
    AIT_ASSIGN_OR_RETURN(is_unpacked, IsInMemory(*shard, *object));
  }
  return OpenedFile{.shard = std::move(shard), .is_unpacked = is_unpacked};
}

std::shared_ptr<const ShardReader> ShardedSamples::Find(std::size_t shard) const {
  slots_[shard].used = ++clock_;
  return slots_[shard].shard;
}

std::vector<std::shared_ptr<const ShardReader>> ShardedSamples::CloseFor(const Entry& entry) const {
  std::vector<std::shared_ptr<const ShardReader>> closed;
  while (true) {
    const bool lacks_memory = entry.is_unpacked && unpacked_count_ > 0 &&
                              (unpacked_count_ >= kMaxUnpackedShards ||
                               unpacked_bytes_ + entry.unpacked_bytes > kMaxUnpackedBytes);
    if (!lacks_memory && open_.size() < kMaxOpenShards) return closed;
    auto oldest = open_.end();
    for (auto it = open_.begin(); it != open_.end(); ++it) {
      if (lacks_memory && !entries_[*it].is_unpacked) continue;
      if (oldest == open_.end() || slots_[*it].used < slots_[*oldest].used) oldest = it;
    }
    const Entry& old = entries_[*oldest];
    unpacked_count_ -= old.is_unpacked ? 1 : 0;
    unpacked_bytes_ -= old.unpacked_bytes;
    closed.push_back(std::exchange(slots_[*oldest].shard, nullptr));
    open_.erase(oldest);
  }
}

StatusOr<std::shared_ptr<const ShardReader>> ShardedSamples::Acquire(std::size_t shard) const {
  Slot& slot = slots_[shard];
  const Entry& entry = entries_[shard];
  // Opened without the lock: two threads may do so at once, and one of the two is then dropped. In
  // memory it would be there twice until then.
  std::unique_lock<std::mutex> unpacking;
  if (entry.is_unpacked) unpacking = std::unique_lock(slot.unpacking);
  {
    const std::scoped_lock lock(mutex_);
    if (auto found = Find(shard); found != nullptr) return found;
  }
  AIT_ASSIGN_OR_RETURN(OpenedFile opened, OpenFile(entry));
  if (opened.shard->record_count() != entry.count) {
    return AbortedError(entry.file.shard.url, " has ", opened.shard->record_count(),
                        " samples, it had ", entry.count, " when the dataset was opened");
  }
  std::vector<std::shared_ptr<const ShardReader>> closed;  // outlives the lock
  const std::scoped_lock lock(mutex_);
  if (slot.shard != nullptr) return slot.shard;
  closed = CloseFor(entry);
  slot.shard = opened.shard;
  open_.push_back(shard);
  unpacked_count_ += entry.is_unpacked ? 1 : 0;
  unpacked_bytes_ += entry.unpacked_bytes;
  return slot.shard;
}

std::size_t ShardedSamples::ShardOf(std::int64_t id) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), id);
  return static_cast<std::size_t>(after - begins_.begin()) - 1;
}

void ShardedSamples::Read(std::span<SampleRead> reads) const {
  std::vector<std::size_t> order;
  order.reserve(reads.size());
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (reads[i].id >= 0 && reads[i].id < sample_count()) {
      order.push_back(i);
    } else {
      reads[i].status =
          OutOfRangeError(name_, " has no sample ", reads[i].id, " but ", sample_count());
    }
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return reads[a].id < reads[b].id; });
  for (std::size_t begin = 0; begin < order.size();) {
    const std::size_t shard = ShardOf(reads[order[begin]].id);
    std::size_t end = begin;
    while (end < order.size() && reads[order[end]].id < begins_[shard + 1]) ++end;
    ReadShard(shard, std::span(order).subspan(begin, end - begin), reads);
    begin = end;
  }
}

void ShardedSamples::ReadShard(std::size_t shard, std::span<const std::size_t> wanted,
                               std::span<SampleRead> reads) const {
  const StatusOr<std::shared_ptr<const ShardReader>> opened = Acquire(shard);
  if (!opened.ok()) {
    for (const std::size_t i : wanted) reads[i].status = opened.status();
    return;
  }
  const ShardReader& from = **opened;
  std::vector<std::size_t> sized;
  sized.reserve(wanted.size());
  for (const std::size_t i : wanted) {
    reads[i].status = from.CheckRecordSize(reads[i].id - begins_[shard]);
    if (reads[i].status.ok()) sized.push_back(i);
  }
  const std::span<const std::size_t> order = sized;
  const auto extent_of = [&](std::size_t i) { return from.extent(reads[i].id - begins_[shard]); };

  // Runs of neighbours, each one read.
  struct Run {
    std::size_t begin = 0;  // of `order`
    std::size_t end = 0;
    ByteView bytes;
  };
  std::vector<Run> runs;
  std::vector<ObjectRead> object_reads;
  for (std::size_t begin = 0; begin < order.size();) {
    const RecordExtent first = extent_of(order[begin]);
    std::int64_t run_end = first.offset_bytes + first.length_bytes;
    std::size_t end = begin + 1;
    for (; end < order.size(); ++end) {
      const RecordExtent next = extent_of(order[end]);
      const std::int64_t next_end = next.offset_bytes + next.length_bytes;
      if (next.offset_bytes < first.offset_bytes || next.offset_bytes > run_end + kMaxGapBytes ||
          next_end - first.offset_bytes > kMaxJoinedBytes) {
        break;
      }
      run_end = std::max(run_end, next_end);
    }
    const auto length = static_cast<std::size_t>(run_end - first.offset_bytes);
    auto bytes = std::make_shared_for_overwrite<std::byte[]>(length);
    const std::span<std::byte> out(bytes.get(), length);
    object_reads.push_back({.offset_bytes = first.offset_bytes, .out = out});
    runs.push_back({begin, end, ByteView(out, std::move(bytes))});
    begin = end;
  }

  if (object_reads.size() == 1) {
    object_reads[0].status =
        from.object().ReadAt(object_reads[0].offset_bytes, object_reads[0].out);
  } else {
    from.object().ReadMany(object_reads);
  }
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (const std::size_t i : order.subspan(runs[r].begin, runs[r].end - runs[r].begin)) {
      SampleRead& read = reads[i];
      read.status = object_reads[r].status;
      if (!read.status.ok()) continue;
      const RecordExtent extent = extent_of(i);
      const ByteView record = runs[r].bytes.Slice(
          static_cast<std::size_t>(extent.offset_bytes - object_reads[r].offset_bytes),
          static_cast<std::size_t>(extent.length_bytes));
      read.sample.id = -1;
      read.status = from.Decode(read.id - begins_[shard], record, read.sample);
      if (read.sample.id >= 0) read.sample.key = StrCat(read.id);  // the format has no keys
      read.sample.id = read.id;
    }
  }
}

SamplePlace ShardedSamples::place(std::int64_t id) const {
  if (id < 0 || id >= sample_count()) return {.url = StrCat(name_, "#", id)};
  const std::size_t shard = ShardOf(id);
  SamplePlace place = {.url = entries_[shard].file.shard.url};
  if (const auto opened = Acquire(shard); opened.ok()) {
    const RecordExtent extent = (*opened)->extent(id - begins_[shard]);
    place.offset_bytes = extent.offset_bytes;
    place.size_bytes = extent.length_bytes;
  }
  return place;
}

std::int64_t ShardedSamples::size_bytes(std::int64_t id) const {
  if (id < 0 || id >= sample_count()) return 0;
  const std::size_t shard = ShardOf(id);
  {
    const std::scoped_lock lock(mutex_);
    if (const auto& opened = slots_[shard].shard; opened != nullptr) {
      return opened->extent(id - begins_[shard]).length_bytes;
    }
  }
  // About as much as its neighbours, so that asking for the size reads nothing.
  return entries_[shard].file.shard.size_bytes / std::max<std::int64_t>(1, entries_[shard].count);
}

StatusOr<SampleSize> ShardedSamples::FindSize(std::int64_t id) const {
  const std::size_t shard = ShardOf(id);
  AIT_ASSIGN_OR_RETURN(const auto opened, Acquire(shard));
  return SampleSize{.bytes = opened->extent(id - begins_[shard]).length_bytes};
}

}  // namespace ait::inline v0::internal
