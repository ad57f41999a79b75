// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "ait/data/crc32c.h"
#include "data/format/key_set_internal.h"
#include "data/format/record_window_internal.h"
#include "data/format/tar_walk_internal.h"
#include "data/format/webdataset_internal.h"

namespace ait::inline v0::internal {
namespace {

// Samples of a tar in one pass. A sample is handed out when the member after it has been seen, so
// that one that is cut off is never taken for whole.
class TarStream final : public SampleStream {
 public:
  TarStream(std::shared_ptr<const StoredObject> object, const ShardOptions& options,
            std::unique_ptr<ObjectStream> blocks, std::shared_ptr<const ShardIndex> index)
      : object_(std::move(object)),
        options_(options),
        index_(std::move(index)),
        window_(std::move(blocks), 0),
        record_(options.key_rule),
        links_(*object_) {}

  StatusOr<bool> Next(Sample& sample) override {
    // Before more is read, so that the block they lie in can be used again.
    for (SampleField& field : sample.fields) field.value = ByteView();
    if (!broken_.ok()) return broken_;
    StatusOr<bool> is_there = Collect();
    if (!is_there.ok()) return broken_ = is_there.status();
    if (!*is_there) return false;
    const std::int64_t record = records_++;
    if (const Status status = Deliver(record, sample); !status.ok()) {
      return AtOffset(object_->info(), record_offset_, status);
    }
    sample.id = record;
    return true;
  }

 private:
  const ObjectInfo& info() const { return object_->info(); }

  // Finds the members of the next sample, `record_bytes_` bytes from `record_offset_` on. They lie
  // at the beginning of the window, or in `held_` if `is_passed_`. False at the end of the archive.
  StatusOr<bool> Collect();
  // Goes on behind a member that ends at byte `end` of the window and belongs to no sample, or to
  // one that would be too large with it: nothing need be kept from there on.
  Status Pass(std::int64_t end);
  Status Deliver(std::int64_t record, Sample& sample);
  Status CheckKey() {
    if (index_ != nullptr || keys_.Insert(record_.key())) return OkStatus();
    return AtOffset(info(), record_offset_,
                    InvalidArgumentError("sample '", record_.key(),
                                         "' ended before: the files of a sample must lie together; "
                                         "sort them when packing"));
  }

  const std::shared_ptr<const StoredObject> object_;
  const ShardOptions options_;
  const std::shared_ptr<const ShardIndex> index_;
  RecordWindow window_;
  WebDatasetRecord record_;
  TarLinks links_;
  TarParser parser_;
  KeySet keys_;
  std::int64_t record_offset_ = 0;  // where the last sample begins
  std::int64_t record_bytes_ = 0;   // to the end of its last member
  std::int64_t seen_bytes_ = 0;     // of the window, before what the next sample is looked for in
  bool is_passed_ = false;          // the window has moved on from the sample
  ByteView held_;                   // the sample then, if it is not too large
  std::int64_t records_ = 0;
  std::int64_t zero_blocks_ = 0;
  Status broken_;
};

StatusOr<bool> TarStream::Collect() {
  held_ = ByteView();
  is_passed_ = false;
  record_.Clear();
  record_bytes_ = 0;
  AIT_RETURN_IF_ERROR(window_.Advance(static_cast<std::size_t>(std::exchange(seen_bytes_, 0))));
  std::int64_t at = 0;  // within the window
  std::int64_t need = kTarBlock;
  TarMember member;
  while (true) {
    const std::int64_t rest = info().size_bytes - window_.offset_bytes() - at;
    if (rest == 0) break;
    AIT_ASSIGN_OR_RETURN(const auto bytes, window_.Ensure(static_cast<std::size_t>(at + need)));
    if (static_cast<std::int64_t>(bytes.size()) < at + need) return TarEndsWithoutMark(info());
    const StatusOr<TarStep> step =
        parser_.Parse(bytes.subspan(static_cast<std::size_t>(at)), member);
    if (!step.ok()) return AtOffset(info(), window_.offset_bytes() + at, step.status());
    if (*step == TarStep::kNeedBytes) {
      if (parser_.need_bytes() > rest) return TarEndsWithoutMark(info());
      need = NextTarNeed(parser_.need_bytes(), rest);
      continue;
    }
    need = kTarBlock;
    if (*step == TarStep::kZeroBlock) {
      if (!record_.is_empty() && zero_blocks_ == 1) {
        // Both blocks of the end are there: the sample before them is whole.
        seen_bytes_ = at - kTarBlock;
        zero_blocks_ = 0;
        return true;
      }
      ++zero_blocks_;
      at += kTarBlock;
      if (record_.is_empty()) {
        AIT_RETURN_IF_ERROR(window_.Advance(static_cast<std::size_t>(at)));
        at = 0;
      }
      continue;
    }
    if (zero_blocks_ == 1) {
      return TarLoneZeroBlock(info(), window_.offset_bytes() + at - kTarBlock);
    }
    zero_blocks_ = 0;
    if (member.total_bytes() > rest) {
      return TarMemberBeyondEnd(info(), window_.offset_bytes() + at, member);
    }
    const WebDatasetRecord::Take take = record_.Offer(member, at + member.header_bytes);
    if (take == WebDatasetRecord::Take::kOther) {
      seen_bytes_ = at;
      return true;
    }
    if (take == WebDatasetRecord::Take::kTaken && record_bytes_ == 0) {  // its first
      record_offset_ = window_.offset_bytes();
      AIT_RETURN_IF_ERROR(CheckKey());
    }
    at += member.total_bytes();
    const std::int64_t length = window_.offset_bytes() + at - record_offset_;
    if (take == WebDatasetRecord::Take::kTaken) record_bytes_ = length;
    if (record_.is_empty() || length > options_.max_record_bytes) {
      AIT_RETURN_IF_ERROR(Pass(at));
      at = 0;
    }
  }
  if (zero_blocks_ < 2) return TarEndsWithoutMark(info());
  seen_bytes_ = at;
  if (index_ != nullptr && records_ != static_cast<std::int64_t>(index_->extents.size())) {
    return DataLossError(info().url, " has ", records_, " samples, its index has ",
                         index_->extents.size(), ": write the index anew");
  }
  return false;
}

Status TarStream::Pass(std::int64_t end) {
  if (!record_.is_empty() && !is_passed_) {
    is_passed_ = true;
    // The header of the member behind it has been seen, so that all of it is in the window.
    if (record_bytes_ <= options_.max_record_bytes) {
      held_ = window_.View(static_cast<std::size_t>(record_bytes_));
    }
  }
  return window_.Advance(static_cast<std::size_t>(end));
}

Status TarStream::Deliver(std::int64_t record, Sample& sample) {
  if (record_bytes_ > options_.max_record_bytes) {
    return InvalidArgumentError("sample '", record_.key(), "' has ", record_bytes_,
                                " bytes, at most ", options_.max_record_bytes, " are believed");
  }
  ByteView bytes = std::move(held_);
  if (!is_passed_) {
    const auto length = static_cast<std::size_t>(record_bytes_);
    AIT_RETURN_IF_ERROR(window_.Ensure(length).status());
    bytes = window_.View(length);
  }
  if (index_ != nullptr) {
    if (record >= static_cast<std::int64_t>(index_->extents.size())) {
      return DataLossError("sample '", record_.key(), "' is not in the index");
    }
    const RecordExtent& extent = index_->extents[static_cast<std::size_t>(record)];
    if (extent.offset_bytes != record_offset_ || extent.length_bytes != record_bytes_) {
      return DataLossError("sample '", record_.key(), "' has ", record_bytes_,
                           " bytes here, in the index record ", record, " has ",
                           extent.length_bytes, " from byte ", extent.offset_bytes);
    }
    if (options_.check == ShardCheck::kContents && !index_->checksums.empty() &&
        Crc32c(bytes.bytes()) != index_->checksums[static_cast<std::size_t>(record)]) {
      return DataLossError("the bytes of sample '", record_.key(),
                           "' have another checksum than in the index: damaged, or changed since "
                           "it was written");
    }
  }
  return record_.Fill(bytes, links_, options_.max_record_bytes, sample);
}

}  // namespace

StatusOr<std::unique_ptr<SampleStream>> StreamTar(std::shared_ptr<const StoredObject> object,
                                                  const ShardOptions& options,
                                                  const StreamOptions& stream_options,
                                                  std::shared_ptr<const ShardIndex> index) {
  AIT_RETURN_IF_ERROR(CheckTarSize(object->info()));
  StreamOptions all = stream_options;
  all.offset_bytes = 0;
  all.length_bytes = object->info().size_bytes;
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<ObjectStream> blocks, object->Stream(all));
  return std::make_unique<TarStream>(std::move(object), options, std::move(blocks),
                                     std::move(index));
}

}  // namespace ait::inline v0::internal
