// SPDX-License-Identifier: Apache-2.0
#include "ait/data/format/write_shards.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "ait/data/format/formats.h"
#include "ait/data/storage/local_storage.h"
#include "data/bad_sample_internal.h"
#include "data/format/format_entry_internal.h"
#include "data/format/format_util_internal.h"
#include "data/format/npy_header_internal.h"
#include "data/format/packing_log_internal.h"
#include "data/format/shard_check_internal.h"
#include "data/mix_internal.h"

namespace ait::inline v0 {
namespace {

using internal::IsBadSample;
using internal::PackedShard;
using internal::PackingLog;

constexpr std::int64_t kLeastShardBytes = std::int64_t{64} << 10;
constexpr std::int64_t kMostShardBytes = std::int64_t{1} << 31;
// What a shard has beside its samples, and a field beside its value: in tars a header, what pads it,
// and the header of an array; elsewhere names and lengths.
constexpr std::int64_t kShardOverheadBytes = 12 << 10;
constexpr std::int64_t kTarFieldBytes = 1152;
constexpr std::int64_t kFieldBytes = 96;
constexpr std::int64_t kProbes = 16;
constexpr std::int64_t kReadSamples = 256;  // at a time
constexpr std::int64_t kReadBytes = std::int64_t{16} << 20;

struct IdRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

bool IsInteger(DType dtype) { return !IsFloatingPoint(dtype) && dtype != DType::kBool; }

template <typename T>
std::string Digits(std::span<const std::byte> bytes) {
  T value = 0;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return std::to_string(value);
}

std::string DigitsOf(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kInt64:
      return Digits<std::int64_t>(bytes);
    case DType::kInt32:
      return Digits<std::int32_t>(bytes);
    case DType::kInt16:
      return Digits<std::int16_t>(bytes);
    case DType::kInt8:
      return Digits<std::int8_t>(bytes);
    case DType::kUInt32:
      return Digits<std::uint32_t>(bytes);
    case DType::kUInt16:
      return Digits<std::uint16_t>(bytes);
    default:
      return Digits<std::uint8_t>(bytes);
  }
}

// Arrays as the files that WebDataset has for them: one whole number as its digits, any other as
// npy, with ".npy" after the name.
Status ArraysToFiles(Sample& sample) {
  for (SampleField& field : sample.fields) {
    if (field.kind != FieldKind::kArray) continue;
    const std::span<const std::byte> bytes = field.value.bytes();
    if (internal::ArrayBytes(field.dtype, field.shape) != std::ssize(bytes)) {
      return InvalidArgumentError("field '", field.name, "' of sample '", sample.key,
                                  "' has not the bytes of its shape");
    }
    if (field.dtype == DType::kBFloat16) {
      return InvalidArgumentError("field '", field.name, "' of sample '", sample.key,
                                  "' is bfloat16, which npy has not; store float32");
    }
    if (field.shape.empty() && IsInteger(field.dtype)) {
      field = {.name = field.name, .value = ByteView::Copy(DigitsOf(field.dtype, bytes))};
      continue;
    }
    std::string file = internal::FormatNpyHeader(field.dtype, field.shape);
    file += field.value.text();
    field = {.name = StrCat(field.name, ".npy"), .value = ByteView::Copy(file)};
  }
  return OkStatus();
}

// How samples become larger when they are written: a row of text becomes many fields or numbers.
struct Growth {
  std::int64_t fields = 2;  // at most, of a source that does not say
  double values = 1;        // bytes of the fields for each byte of the record, at most
};

// Reads a few samples all over the source, the same each time.
StatusOr<Growth> ProbeGrowth(const SampleSource& source) {
  Growth growth;
  const std::int64_t count = source.sample_count();
  for (std::int64_t i = 0; i < std::min(kProbes, count); ++i) {
    SampleRead read = {.id = i * count / std::min(kProbes, count)};
    source.Read(std::span(&read, 1));
    if (IsBadSample(read.status)) continue;
    AIT_RETURN_IF_ERROR(read.status);
    const StatusOr<SampleSize> size = source.FindSize(read.id);
    if (!size.ok()) continue;
    growth.fields = std::max(growth.fields, std::ssize(read.sample.fields));
    growth.values =
        std::max(growth.values, static_cast<double>(read.sample.size_bytes()) /
                                    static_cast<double>(std::max<std::int64_t>(1, size->bytes)));
  }
  return growth;
}

StatusOr<std::vector<IdRange>> PlanShards(const SampleSource& source,
                                          const WriteShardsOptions& options) {
  AIT_ASSIGN_OR_RETURN(const Growth growth, ProbeGrowth(source));
  const std::int64_t field_bytes = options.format == "webdataset" ? kTarFieldBytes : kFieldBytes;
  const std::int64_t limit = options.shard_bytes - kShardOverheadBytes;
  std::vector<IdRange> ranges;
  std::int64_t bytes = 0;
  for (std::int64_t id = 0; id < source.sample_count(); ++id) {
    StatusOr<SampleSize> size = source.FindSize(id);
    if (!size.ok()) {  // a shard that is damaged as a whole is no reason to stop here
      if (!IsBadSample(size.status())) return size.status();
      size = SampleSize{.bytes = source.size_bytes(id)};
    }
    const std::int64_t more =
        size->fields > 0 ? size->bytes + (size->fields + 1) * field_bytes
                         : static_cast<std::int64_t>(
                               std::ceil(static_cast<double>(size->bytes) * growth.values)) +
                               (growth.fields + 1) * field_bytes;
    if (ranges.empty() || bytes + more > limit ||
        id - ranges.back().begin == options.shard_samples) {
      ranges.push_back({id, id});
      bytes = 0;
    }
    bytes += more;
    ranges.back().end = id + 1;
  }
  return ranges;
}

// Writes the shards of one call; several threads take one shard after the other.
class Job {
 public:
  Job(const SampleSource& source, const WriteShardsOptions& options,
      const internal::ShardFormat& format, std::vector<IdRange> ranges, PackingLog log)
      : source_(source),
        options_(options),
        format_(format),
        ranges_(std::move(ranges)),
        log_(std::move(log)) {
    for (const auto& [number, shard] : log_.shards()) {
      bad_samples_ += std::ssize(shard.left_out);
      Count(shard);
    }
    resumed_ = std::ssize(log_.shards());
  }

  StatusOr<WriteReport> Run() {
    AIT_ASSIGN_OR_RETURN(storage_, LocalStorage::Create({}));
    const int threads = ThreadCount();
    std::vector<std::thread> helpers;
    try {
      for (int i = 1; i < threads; ++i) helpers.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {
      // Fewer threads than asked for do the same work.
    }
    Work();
    for (std::thread& helper : helpers) helper.join();
    AIT_RETURN_IF_ERROR(status_);
    return Finish();
  }

 private:
  int ThreadCount() const {
    const auto cpus = static_cast<int>(std::thread::hardware_concurrency());
    const int wanted = options_.threads > 0 ? options_.threads : std::clamp(cpus, 1, 16);
    return static_cast<int>(
        std::min<std::int64_t>(wanted, std::max<std::int64_t>(1, std::ssize(ranges_) - resumed_)));
  }

  std::string FileName(std::int64_t number) const {
    return internal::PackedFileName(
        {.prefix = std::string(format_.file_prefix), .extension = std::string(format_.extension)},
        number);
  }

  // Runs on every thread, until the shards are written or one of them has failed.
  void Work() {
    while (true) {
      const std::int64_t number = next_.fetch_add(1);
      if (number >= std::ssize(ranges_)) return;
      {
        const std::scoped_lock lock(mutex_);
        if (!status_.ok()) return;
        if (log_.shards().contains(number)) continue;
      }
      StatusOr<PackedShard> shard = Guarded(number);
      const std::scoped_lock lock(mutex_);
      if (shard.ok()) shard = Note(*std::move(shard));
      if (!shard.ok()) {
        if (status_.ok()) status_ = shard.status();
        return;
      }
    }
  }

  StatusOr<PackedShard> Guarded(std::int64_t number) try {
    return Write(number);
  } catch (const std::bad_alloc&) {
    return ResourceExhaustedError("no memory to write ", FileName(number));
  } catch (const std::exception& error) {  // of a source that the program wrote
    return InternalError("the source ", source_.name(), " threw: ", error.what());
  }

  StatusOr<PackedShard> Write(std::int64_t number) {
    PackedShard shard{.number = number, .file = FileName(number)};
    const std::string path = StrCat(options_.directory, "/", shard.file);
    AIT_ASSIGN_OR_RETURN(const std::unique_ptr<ShardWriter> writer,
                         CreateShard(path, {.format = options_.format}));
    internal::ShardContents contents(options_.format);
    std::vector<SampleRead> reads;
    const IdRange range = ranges_[static_cast<std::size_t>(number)];
    for (std::int64_t id = range.begin; id < range.end;) {
      reads.clear();
      std::int64_t bytes = 0;
      for (; id < range.end && std::ssize(reads) < kReadSamples &&
             (reads.empty() || bytes + source_.size_bytes(id) <= kReadBytes);
           ++id) {
        bytes += source_.size_bytes(id);
        reads.push_back({.id = id});
      }
      source_.Read(reads);
      for (SampleRead& read : reads) {
        AIT_ASSIGN_OR_RETURN(const bool is_written, Append(read, *writer, shard));
        if (is_written) contents.Add(read.sample);
      }
    }
    shard.samples = writer->record_count();
    AIT_RETURN_IF_ERROR(Annotate(writer->Commit(), path));
    shard.values = contents.digest();
    AIT_ASSIGN_OR_RETURN(const auto object, storage_->Open(path));
    shard.bytes = object->info().size_bytes;
    if (options_.verify) AIT_RETURN_IF_ERROR(internal::CheckShard(*storage_, path, contents));
    return shard;
  }

  // False: the sample is bad and left out.
  StatusOr<bool> Append(SampleRead& read, ShardWriter& writer, PackedShard& shard) {
    if (read.status.ok()) {
      if (read.sample.size_bytes() > kMostShardBytes) {
        return InvalidArgumentError("sample ", read.id, " of ", source_.name(), " (key '",
                                    read.sample.key, "') has ", read.sample.size_bytes(),
                                    " bytes; at most ", kMostShardBytes, " can be written");
      }
      if (options_.format == "webdataset") AIT_RETURN_IF_ERROR(ArraysToFiles(read.sample));
      if (Status status = writer.Append(read.sample); !status.ok()) {
        return Annotate(status, StrCat("cannot write sample ", read.id, " of ", source_.name(),
                                       " (key '", read.sample.key, "') as ", options_.format));
      }
      return true;
    }
    if (!IsBadSample(read.status)) return read.status;
    if (bad_samples_.fetch_add(1) >= options_.max_bad_samples) {
      return Annotate(read.status,
                      StrCat("sample ", read.id, " of ", source_.name(), " is bad, and ",
                             options_.max_bad_samples, " bad samples may be left out"));
    }
    shard.left_out.push_back({source_.place(read.id), std::string(Message(read.status))});
    return false;
  }

  // With the mutex.
  StatusOr<PackedShard> Note(PackedShard shard) {
    AIT_RETURN_IF_ERROR(log_.Add(shard));
    Count(shard);
    if (options_.progress && !options_.progress(done_)) {
      return CancelledError("stopped after ", done_.shards, " of ", std::ssize(ranges_),
                            " shards; the same call goes on");
    }
    return shard;
  }

  void Count(const PackedShard& shard) {
    ++done_.shards;
    done_.shard_count = std::ssize(ranges_);
    done_.samples += shard.samples;
    done_.bytes += shard.bytes;
  }

  StatusOr<WriteReport> Finish() {
    WriteReport report{.samples = done_.samples, .bytes = done_.bytes, .resumed_shards = resumed_};
    for (const auto& [number, shard] : log_.shards()) {
      report.shards.push_back(shard.file);
      report.left_out.insert(report.left_out.end(), shard.left_out.begin(), shard.left_out.end());
    }
    if (format_.finish != nullptr) {
      AIT_RETURN_IF_ERROR(format_.finish(options_.directory, report.shards));
    }
    return report;
  }

  const SampleSource& source_;
  const WriteShardsOptions& options_;
  const internal::ShardFormat& format_;
  const std::vector<IdRange> ranges_;
  std::shared_ptr<const Storage> storage_;
  std::int64_t resumed_ = 0;
  std::atomic<std::int64_t> next_ = 0;
  std::atomic<std::int64_t> bad_samples_ = 0;

  std::mutex mutex_;  // for all below
  PackingLog log_;
  WriteProgress done_;
  Status status_;
};

Status CheckOptions(const WriteShardsOptions& options) {
  if (options.directory.empty()) return InvalidArgumentError("no directory for the shards");
  if (options.shard_bytes < kLeastShardBytes || options.shard_bytes > kMostShardBytes) {
    return InvalidArgumentError("shards of ", options.shard_bytes, " bytes; ", kLeastShardBytes,
                                " to ", kMostShardBytes, " are possible");
  }
  if (options.shard_samples < 1) {
    return InvalidArgumentError("shards of ", options.shard_samples, " samples; at least 1");
  }
  if (options.threads < 0 || options.max_bad_samples < 0) {
    return InvalidArgumentError("threads is ", options.threads, " and max_bad_samples ",
                                options.max_bad_samples, "; neither may be negative");
  }
  return OkStatus();
}

// Shards that replace what they are made of, or are read together with it the next time.
Status CheckPlaces(const SampleSource& source, const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path target = fs::weakly_canonical(directory, error);
  if (error) return OkStatus();  // says so when it is made
  for (const std::int64_t id : {std::int64_t{0}, source.sample_count() - 1}) {
    std::string url = source.place(id).url;
    if (url.starts_with("file://")) url.erase(0, 7);
    if (!fs::is_regular_file(url, error)) continue;  // of elsewhere, or of no file at all
    const fs::path file = fs::canonical(url, error);
    if (!error && std::mismatch(target.begin(), target.end(), file.begin(), file.end()).first ==
                      target.end()) {
      return InvalidArgumentError("the source ", url, " lies in ", directory,
                                  ", where its shards would go; choose another directory");
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<WriteReport> WriteShards(const SampleSource& source, const WriteShardsOptions& options) {
  AIT_RETURN_IF_ERROR(CheckOptions(options));
  const internal::ShardFormat* format = internal::ShardFormatNamed(options.format);
  if (format == nullptr || format->create == nullptr) {
    return InvalidArgumentError("shards of format '", options.format,
                                "' cannot be written; known: ", internal::ShardFormatNames());
  }
  if (source.sample_count() == 0) {
    return InvalidArgumentError(source.name(), " holds no samples");
  }
  AIT_RETURN_IF_ERROR(CheckPlaces(source, options.directory));
  StatusOr<std::vector<IdRange>> planned = [&]() -> StatusOr<std::vector<IdRange>> {
    try {
      return PlanShards(source, options);
    } catch (const std::exception& error) {  // of a source that the program wrote
      return InternalError("the source ", source.name(), " threw: ", error.what());
    }
  }();
  AIT_ASSIGN_OR_RETURN(std::vector<IdRange> ranges, std::move(planned));
  std::uint64_t digest = internal::Fold(0, source.version());
  for (const IdRange& range : ranges) {
    digest = internal::Fold(digest, static_cast<std::uint64_t>(range.end));
  }
  for (const auto word : {source.sample_count(), options.shard_bytes, options.shard_samples}) {
    digest = internal::Fold(digest, static_cast<std::uint64_t>(word));
  }
  AIT_ASSIGN_OR_RETURN(PackingLog log,
                       PackingLog::Open(options.directory,
                                        {.format = options.format,
                                         .prefix = std::string(format->file_prefix),
                                         .extension = std::string(format->extension),
                                         .digest = digest,
                                         .shards = std::ssize(ranges)},
                                        options.existing));
  return Job(source, options, *format, std::move(ranges), std::move(log)).Run();
}

}  // namespace ait::inline v0
