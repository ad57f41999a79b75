// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "data/bad_sample_internal.h"
#include "data/loader/loader_core_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

// Samples that are tried in the place of one bad or excluded sample.
constexpr std::int64_t kMostAttempts = 1000;

}  // namespace

/// Adds arrays to a batch, with buffers used before where there are some of the size.
class LoaderCore::Builder final : public BatchBuilder {
 public:
  Builder(LoaderCore& core, BatchWork& work) : core_(core), work_(work) {}

  using BatchBuilder::Add;
  StatusOr<std::span<std::byte>> Add(std::string_view name, DType dtype,
                                     std::span<const std::int64_t> shape) override {
    std::vector<std::int64_t> dimensions(shape.begin(), shape.end());
    const std::int64_t count = ElementCount(dimensions);
    if (count < 0 || count > (std::int64_t{1} << 46)) {
      return InvalidArgumentError("array \"", name, "\" of a batch has a shape that is none");
    }
    if (work_.batch.Find(name) != nullptr) {
      return InvalidArgumentError("array \"", name, "\" is in the batch already");
    }
    const auto bytes = static_cast<std::size_t>(count) * static_cast<std::size_t>(SizeOf(dtype));
    AIT_ASSIGN_OR_RETURN(HostBuffer buffer, Take(bytes));
    BatchArray& array = work_.batch.arrays.emplace_back();
    array.name = name;
    array.dtype = dtype;
    array.shape = std::move(dimensions);
    array.buffer = std::move(buffer);
    return array.buffer.bytes().first(bytes);
  }

  void Drop(std::string_view field) override { dropped_.emplace_back(field); }
  const std::vector<std::string>& dropped() const { return dropped_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  StatusOr<HostBuffer> Take(std::size_t bytes) {
    if (bytes == 0) return HostBuffer();
    const std::int64_t samples = work_.size.load(std::memory_order_relaxed);
    Lock lock(core_.mutex_);
    work_.is_refused = true;
    if (core_.IsHalted()) return AbortedError("the loader stops");
    std::optional<HostBuffer> found = core_.pool_.Take(bytes);
    const auto size = static_cast<std::int64_t>(found ? found->size_bytes() : bytes);
    if (!core_.Grow(work_, samples + bytes_ + size)) {
      if (found) core_.pool_.Put(*std::move(found));
      return AbortedError("no room for ", bytes, " bytes more in the budget of the loader now");
    }
    work_.is_refused = false;
    if (!found) core_.MakeRoomInPool(size);
    bytes_ += size;
    core_.SetActual(work_, samples + bytes_);
    if (found) return *std::move(found);
    ++core_.statistics_.buffers_made;
    const Unlocked unlocked(core_, lock);
    return HostBuffer::Create(core_.options_.memory, bytes);
  }

  LoaderCore& core_;
  BatchWork& work_;
  std::vector<std::string> dropped_;
  std::int64_t bytes_ = 0;
};

/// Does a task and what follows from it for the same batch. `lock` is held before and after.
void LoaderCore::Run(Lock& lock, const Task& task, Activity& activity) {
  BatchWork& work = *task.work;
  ++work.active;
  ++active_;
  activity.work = &work;
  activity.stage = task.stage;
  if (task.stage == Stage::kReading) {
    const ReadGroup& group = work.groups[task.group];
    activity.source = group.source;
    activity.count = static_cast<std::int64_t>(group.end - group.begin);
    activity.sample.store(work.reads[group.begin].id, std::memory_order_relaxed);
    const Time begin = SystemClock().now();
    {
      const Unlocked unlocked(*this, lock);
      Read(work, group);
    }
    const Duration took = SystemClock().now() - begin;
    work.read += took;
    if (took > statistics_.longest_read) {
      statistics_.longest_read = took;
      const SampleSource& source = *sources_[static_cast<std::size_t>(group.source)];
      statistics_.longest_read_what = StrCat(activity.count, " samples of ", source.name(),
                                             ", the first is ", work.reads[group.begin].id);
    }
    --work.groups_left;
  }
  const bool all_read = work.groups_left == 0 && work.next_group == work.groups.size();
  if (work.stage == Stage::kReading && all_read) {
    // What was read may be more than the source had said; it is there, so it is charged.
    const std::int64_t size = work.size.load(std::memory_order_relaxed);
    work.bytes_read = size;
    work.peak.store(size, std::memory_order_relaxed);
    if (!Grow(work, size)) {
      SetCharge(work, size);
      work.is_parked.store(true, std::memory_order_relaxed);
    }
    const auto expected =
        static_cast<std::int64_t>(static_cast<double>(work.estimate) * transformed_ratio_);
    const std::int64_t actual = std::clamp(expected, size, std::max(size, work.charge.load()));
    MakeRoomInPool(actual - work.actual.load());
    SetActual(work, actual);
    work.stage = Stage::kTransforming;
    if (!options_.transform) {
      work.done.store(work.reads.size(), std::memory_order_relaxed);
      work.next.store(work.reads.size(), std::memory_order_relaxed);
    } else if (idle_ > 0 && work.reads.size() > 1) {
      work_cv_.notify_all();
    }
  }
  if (work.stage == Stage::kTransforming) {
    activity.stage = Stage::kTransforming;
    if (work.next.load(std::memory_order_relaxed) < work.reads.size() && !work.is_parked) {
      const Time begin = SystemClock().now();
      {
        const Unlocked unlocked(*this, lock);
        TransformSamples(work, activity);
      }
      work.transform += SystemClock().now() - begin;
    }
    // The last to leave goes on, so that nobody looks at a batch that is used again.
    if (work.stage == Stage::kTransforming && work.active == 1 &&
        work.done.load() >= work.reads.size()) {
      work.stage = Stage::kCollating;
      Collate(lock, work, activity);
    }
  }
  if (task.stage == Stage::kCollating) Collate(lock, work, activity);
  activity.work = nullptr;
  --work.active;
  --active_;
  if (active_ == 0 && IsHalted()) ready_cv_.notify_all();
}

void LoaderCore::Read(BatchWork& work, const ReadGroup& group) {
  const SampleSource& source = *sources_[static_cast<std::size_t>(group.source)];
  const std::span reads(work.reads.data() + group.begin, group.end - group.begin);
  // A sample is used again and again, and what cannot be read keeps the key of the one before.
  for (SampleRead& read : reads) read.sample.key.clear();
  Status thrown;
  try {
    source.Read(reads);
  } catch (const std::bad_alloc&) {
    thrown = ResourceExhaustedError("source ", source.name(), " has no memory to read samples");
  } catch (const std::exception& error) {
    thrown = InternalError("source ", source.name(), " threw: ", error.what());
  } catch (...) {
    thrown = InternalError("source ", source.name(), " threw what is no std::exception");
  }
  std::int64_t size = 0;
  for (SampleRead& read : reads) {
    if (!thrown.ok()) read.status = thrown;
    if (read.status.ok()) {
      read.sample.id = read.id;
      size += read.sample.size_bytes();
    } else {
      read.sample.fields.clear();
    }
  }
  work.size.fetch_add(size, std::memory_order_relaxed);
}

void LoaderCore::TransformSamples(BatchWork& work, Activity& activity) {
  const std::size_t count = work.reads.size();
  while (!IsHalted() && !work.is_parked.load(std::memory_order_relaxed)) {
    const std::size_t i = work.next.fetch_add(1, std::memory_order_relaxed);
    if (i >= count) return;
    SampleRead& read = work.reads[i];
    activity.sample.store(read.id, std::memory_order_relaxed);
    if (read.status.ok() && i < work.excluded_begin) {
      const std::int64_t before = read.sample.size_bytes();
      TransformOne(work.planned.samples[work.slots[i]], read);
      const std::int64_t grown = read.sample.size_bytes() - before;
      const std::int64_t both = 2 * before + grown;
      if (both > largest_.load(std::memory_order_relaxed)) {
        largest_.store(both, std::memory_order_relaxed);
      }
      const std::int64_t size = work.size.fetch_add(grown, std::memory_order_relaxed) + grown;
      if (size > work.actual.load(std::memory_order_relaxed)) Grown(work);
    }
    work.done.fetch_add(1);
  }
}

/// Counts what the samples of a batch have become, which is more than was thought. It is there
/// already, so it is charged; and if that is too much, the batch goes no further.
void LoaderCore::Grown(BatchWork& work) {
  std::vector<HostBuffer> trash;
  Lock lock(mutex_);
  const std::int64_t size = work.size.load(std::memory_order_relaxed);
  const std::int64_t before = work.actual.load(std::memory_order_relaxed);
  if (size <= before) return;
  if (!Grow(work, size)) {
    SetCharge(work, size);
    work.is_parked.store(true, std::memory_order_relaxed);
  }
  // A little more than it is, so that not every sample comes here.
  const std::int64_t actual =
      std::min(size + size / 8, work.charge.load(std::memory_order_relaxed));
  MakeRoomInPool(actual - before);
  SetActual(work, actual);
  trash.swap(trash_);
  lock.unlock();
}

/// Runs the transform; what it throws becomes the status of the sample.
void LoaderCore::TransformOne(const PlannedSample& planned, SampleRead& read) const {
  try {
    SampleRandom random(options_.seed, planned.epoch, planned.source, read.id);
    read.status = options_.transform(read.sample, random);
  } catch (const std::bad_alloc&) {
    read.status = ResourceExhaustedError("a transform has no memory");
  } catch (const std::exception& error) {
    read.status = DataLossError("a transform threw: ", error.what());
  } catch (...) {
    read.status = DataLossError("a transform threw what is no std::exception");
  }
  if (!read.status.ok()) {
    const SamplePlace place = PlaceOf(planned.source, read.id);
    read.status = Annotate(read.status, StrCat("sample ", read.id, " \"", read.sample.key, "\" of ",
                                               place.url, " at byte ", place.offset_bytes));
    read.sample.fields.clear();
  }
}

/// Where a sample lies, even if the source throws when it is asked.
SamplePlace LoaderCore::PlaceOf(std::int32_t source, std::int64_t id) const {
  const SampleSource& asked = *sources_[static_cast<std::size_t>(source)];
  try {
    return asked.place(id);
  } catch (...) {
    return {.url = StrCat(asked.name(), "#", id)};
  }
}

bool LoaderCore::IsBad(const Status& status) const {
  if (IsBadSample(status)) return true;
  switch (status.code()) {
    case StatusCode::kCancelled:
    case StatusCode::kResourceExhausted:  // of this machine; no sample is to blame
      return false;
    default:
      return options_.bad_samples.storage_errors == StorageErrors::kAsBadSample;
  }
}

BadSample LoaderCore::Describe(const BatchWork& work, std::size_t slot, const SampleRead& read,
                               std::int64_t attempt) const {
  const PlannedSample& planned = work.planned.samples[slot];
  const SampleSource& source = *sources_[static_cast<std::size_t>(planned.source)];
  const SamplePlace place = PlaceOf(planned.source, read.id);
  return {.source = source.name(),
          .source_digest = digests_[static_cast<std::size_t>(planned.source)],
          .id = read.id,
          .key = read.sample.key,
          .shard = place.url,
          .offset_bytes = place.offset_bytes,
          .size_bytes = place.size_bytes,
          .code = CodeName(read.status.code()),
          .reason = Message(read.status),
          .rank = options_.shard.rank,
          .epoch = planned.epoch,
          .position = planned.position,
          .attempt = attempt};
}

void LoaderCore::AddBad(BatchWork& work, std::size_t slot, const SampleRead& read,
                        std::int64_t attempt) const {
  BadSample sample = Describe(work, slot, read, attempt);
  work.bad_places.insert(
      {work.planned.samples[slot].source, sample.epoch, sample.position, sample.attempt});
  work.bad.push_back({slot, std::move(sample)});
}

/// Whether a batch has more bad samples than all of the data may have.
bool LoaderCore::IsBeyondBudget(const BatchWork& work) const {
  return static_cast<std::int64_t>(work.bad_places.size()) > options_.bad_samples.max_bad_samples;
}

/// Puts others in the place of bad and excluded samples.
Status LoaderCore::Repair(BatchWork& work) {
  work.bad.clear();
  work.bad_places.clear();
  work.stand_ins = 0;
  for (std::size_t i = 0; i < work.reads.size(); ++i) {
    SampleRead& read = work.reads[i];
    const std::size_t slot = work.slots[i];
    work.batch.weights[slot] = work.planned.samples[slot].is_padding ? 0.0F : 1.0F;
    const bool is_excluded = i >= work.excluded_begin;
    if (read.status.ok() && !is_excluded) continue;
    if (!is_excluded) {
      if (!IsBad(read.status)) return read.status;
      AddBad(work, slot, read, 0);
      if (options_.bad_samples.max_bad_samples == 0) continue;  // the batch will not be delivered
    }
    AIT_RETURN_IF_ERROR(StandIn(work, i));
    if (options_.bad_samples.action == BadSampleAction::kDrop) work.batch.weights[slot] = 0.0F;
    ++work.stand_ins;
  }
  std::stable_sort(work.bad.begin(), work.bad.end(),
                   [](const BadRead& a, const BadRead& b) { return a.slot < b.slot; });
  return OkStatus();
}

/// Reads other samples of the same source until one is good. Which are tried depends on the place
/// in the plan alone. Where lengths matter, those that are longer come last.
Status LoaderCore::StandIn(BatchWork& work, std::size_t index) {
  const PlannedSample planned = work.planned.samples[work.slots[index]];
  const std::optional<std::int64_t> length = plan_->length(planned.source, planned.id);
  SampleRandom choice(plan_->digest() ^ 0x5374616e64496e21ULL, planned.epoch, planned.source,
                      planned.position);
  for (std::int64_t attempt = 1; attempt <= kMostAttempts && !IsHalted(); ++attempt) {
    AIT_ASSIGN_OR_RETURN(const bool is_settled, TryOther(work, index, attempt, length, choice));
    if (is_settled) return OkStatus();
  }
  for (std::int64_t attempt = 1; length && attempt <= kMostAttempts && !IsHalted(); ++attempt) {
    AIT_ASSIGN_OR_RETURN(const bool is_settled,
                         TryOther(work, index, kMostAttempts + attempt, {}, choice));
    if (!is_settled) continue;
    // A row has no room for it, so that it takes the place and nothing of the row.
    if (!work.planned.row_begins.empty()) MakeEmpty(work, index);
    return OkStatus();
  }
  const SampleSource& source = *sources_[static_cast<std::size_t>(planned.source)];
  if (IsHalted()) {
    work.is_refused = true;
    return AbortedError("the loader stops");
  }
  return DataLossError("none of ", kMostAttempts, " other samples of ", source.name(),
                       " can stand in for sample ", planned.id, " of epoch ", planned.epoch,
                       "; too many are bad or excluded");
}

/// Draws another sample, of at most `length`, and reads it. True if it stands in, or if nobody
/// needs to any more.
StatusOr<bool> LoaderCore::TryOther(BatchWork& work, std::size_t index, std::int64_t attempt,
                                    std::optional<std::int64_t> length, SampleRandom& choice) {
  const std::size_t slot = work.slots[index];
  const PlannedSample planned = work.planned.samples[slot];
  const std::int64_t count = sources_[static_cast<std::size_t>(planned.source)]->sample_count();
  const std::uint64_t digest = digests_[static_cast<std::size_t>(planned.source)];
  const std::int64_t taken = plan_->taken_count(planned.source, planned.epoch).value_or(count);
  const std::int64_t id = plan_->taken_id(planned.source, planned.epoch,
                                          choice.Below(std::max<std::int64_t>(taken, 1)));
  if (id == planned.id || id < 0 || id >= count || excluded_.contains({digest, id})) return false;
  if (length && plan_->length(planned.source, id).value_or(0) > *length) return false;
  SampleRead& read = work.reads[index];
  read.id = id;
  read.status = OkStatus();
  Read(work, {planned.source, index, index + 1});
  if (read.status.ok() && options_.transform) {
    const std::int64_t before = read.sample.size_bytes();
    TransformOne(planned, read);
    work.size.fetch_add(read.sample.size_bytes() - before, std::memory_order_relaxed);
  }
  if (read.status.ok()) return true;
  if (!IsBad(read.status)) return read.status;
  AddBad(work, slot, read, attempt);
  return IsBeyondBudget(work);  // counting them will end the data
}

/// Leaves nothing along the first dimension of the arrays of a sample, and gives it no weight.
void LoaderCore::MakeEmpty(BatchWork& work, std::size_t index) {
  SampleRead& read = work.reads[index];
  const std::int64_t before = read.sample.size_bytes();
  for (SampleField& field : read.sample.fields) {
    if (field.kind != FieldKind::kArray || field.shape.empty()) continue;
    field.shape[0] = 0;
    field.value = ByteView();
  }
  work.size.fetch_add(read.sample.size_bytes() - before, std::memory_order_relaxed);
  work.batch.weights[work.slots[index]] = 0.0F;
}

/// Copies what is left of samples that share their memory with much that is gone.
void LoaderCore::KeepOwn(BatchWork& work) {
  std::int64_t left = 0;
  for (const Sample& sample : work.batch.samples) left += sample.size_bytes();
  if (left > 0 && left <= work.bytes_read / 2) {
    const auto block = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(left));
    std::size_t at = 0;
    for (Sample& sample : work.batch.samples) {
      for (SampleField& field : sample.fields) {
        const std::size_t size = field.value.size_bytes();
        if (size == 0) continue;
        std::memcpy(block->data() + at, field.value.data(), size);
        field.value = ByteView(std::span(*block).subspan(at, size), block);
        at += size;
      }
    }
  }
  work.size.store(left, std::memory_order_relaxed);
}

Status LoaderCore::CollateUnlocked(BatchWork& work) {
  const std::size_t count = work.reads.size();
  DataBatch& batch = work.batch;
  work.is_refused = false;
  batch.weights.resize(count);
  if (!work.is_repaired) AIT_RETURN_IF_ERROR(Repair(work));
  work.is_repaired = true;
  work.bytes_transformed = work.size.load(std::memory_order_relaxed);
  const bool is_delivered = !IsBeyondBudget(work);
  batch.samples.resize(count);
  batch.row_begins = work.planned.row_begins;
  batch.global_samples = work.planned.global_samples;
  batch.after = work.planned.after;
  batch.arrays.clear();
  if (count == 0 || !is_delivered) return OkStatus();
  for (std::size_t i = 0; i < count; ++i) {
    std::swap(batch.samples[work.slots[i]], work.reads[i].sample);
  }
  Builder builder(*this, work);
  const CollateInput input = {batch.samples, batch.weights, batch.row_begins};
  Status status;
  try {
    status = collate_(input, builder);
  } catch (const std::bad_alloc&) {
    status = ResourceExhaustedError("no memory to collate a batch of ", count, " samples");
  } catch (const std::exception& error) {
    status = InternalError("the collate function threw: ", error.what());
  } catch (...) {
    status = InternalError("the collate function threw what is no std::exception");
  }
  if (!status.ok()) {
    for (std::size_t i = 0; i < count; ++i) {
      std::swap(batch.samples[work.slots[i]], work.reads[i].sample);
    }

    return status;
  }
  const std::int64_t peak = work.size.load(std::memory_order_relaxed) + builder.bytes();
  work.peak.store(std::max(work.peak.load(), peak), std::memory_order_relaxed);
  for (const std::string& field : builder.dropped()) {
    for (Sample& sample : batch.samples) sample.Remove(field);
  }
  KeepOwn(work);
  work.size.fetch_add(builder.bytes(), std::memory_order_relaxed);
  return OkStatus();
}

/// Makes the batch ready, or leaves it for later if there is no room. `lock` is held before and
/// after; nobody else works on the batch meanwhile but those that just leave it.
void LoaderCore::Collate(Lock& lock, BatchWork& work, Activity& activity) {
  activity.stage = Stage::kCollating;
  const Time begin = SystemClock().now();
  Status status;
  {
    const Unlocked unlocked(*this, lock);
    try {
      status = CollateUnlocked(work);
    } catch (const std::bad_alloc&) {
      status = ResourceExhaustedError("no memory for a batch of ", work.reads.size(), " samples");
    } catch (const std::exception& error) {
      status = InternalError("the plan threw when it was asked for stand-ins: ", error.what());
    } catch (...) {
      status = InternalError("the plan threw what is no std::exception");
    }
  }
  work.collate += SystemClock().now() - begin;
  if (!status.ok()) {
    for (BatchArray& array : work.batch.arrays) pool_.Put(std::move(array.buffer));
    work.batch.arrays.clear();
    SetActual(work, work.size.load(std::memory_order_relaxed));
    MakeRoomInPool(0);
    if (work.is_refused) return;
    work.status = status;
  }
  const std::int64_t size = work.size.load(std::memory_order_relaxed);
  const auto peak = static_cast<double>(work.peak.load(std::memory_order_relaxed));
  const auto transformed = static_cast<double>(work.bytes_transformed);
  const auto estimate = static_cast<double>(std::max<std::int64_t>(work.estimate, 1));
  transformed_ratio_ = std::max(transformed_ratio_ * 0.999, transformed / estimate);
  ratio_ = std::max({1.0, ratio_ * 0.999, peak / estimate});
  work.batch.planned.swap(work.planned.samples);
  work.stage = Stage::kReady;
  ++ready_;
  SetActual(work, size);
  SetCharge(work, size);
  MakeRoomInPool(0);
  if (IsOldest(work) || options_.order == DeliveryOrder::kAsReady) ready_cv_.notify_all();
}

}  // namespace internal
}  // namespace ait::inline v0
