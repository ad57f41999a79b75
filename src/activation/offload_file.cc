// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "activation/offload_target_internal.h"
#include "ait/base/types.h"
#include "memory/region_allocator_internal.h"
#include "optim/scratch_file.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kChunk = std::int64_t{1} << 20;
constexpr std::size_t kDepth = 4;  // chunks on their way
constexpr std::int64_t kGrowth = std::int64_t{64} << 20;
constexpr std::size_t kMostBytes = std::size_t{1} << 50;  // of a file; never reached

struct Free {
  void operator()(std::byte* memory) const { ::free(memory); }
};

/// Moves bytes between any memory and a file by way of aligned chunks, several at a time.
/// **Thread-safety.** None.
class FileChannel {
 public:
  static StatusOr<std::unique_ptr<FileChannel>> Open(const ScratchFile& file, bool buffered) {
    std::unique_ptr<FileChannel> channel(new FileChannel);
    void* memory = nullptr;
    if (::posix_memalign(&memory, kScratchPage, kDepth * kChunk) != 0) {
      return ResourceExhaustedError("no memory for ", kDepth, " chunks of ", kChunk, " bytes");
    }
    channel->memory_.reset(static_cast<std::byte*>(memory));
    std::memset(memory, 0, kDepth * kChunk);
    AIT_ASSIGN_OR_RETURN(channel->io_, OpenScratchIo(file, {.depth = kDepth,
                                                            .page = channel->memory_.get(),
                                                            .buffered = buffered}));
    return channel;
  }

  Status Write(const OffloadPlace& place, const std::byte* from) {
    Status status;
    std::size_t next = 0;
    for (std::int64_t at = 0; at < place.bytes && status.ok(); at += kChunk) {
      status = WaitFor(next);
      if (!status.ok()) break;
      const std::int64_t bytes = std::min(kChunk, place.bytes - at);
      std::memcpy(Data(next), from + at, static_cast<std::size_t>(bytes));
      status = Start(next, FileRequest::Kind::kWrite, place.offset + at, bytes);
      next = (next + 1) % kDepth;
    }
    return WaitForAll(status);
  }

  Status Read(const OffloadPlace& place, std::byte* to) {
    Status status;
    const std::int64_t count = (place.bytes + kChunk - 1) / kChunk;
    const auto bytes_of = [&](std::int64_t i) {
      return std::min(kChunk, place.bytes - i * kChunk);
    };
    const auto slot_of = [](std::int64_t i) { return static_cast<std::size_t>(i) % kDepth; };
    const auto start = [&](std::int64_t i) {
      return Start(slot_of(i), FileRequest::Kind::kRead, place.offset + i * kChunk, bytes_of(i));
    };
    const auto depth = static_cast<std::int64_t>(kDepth);
    for (std::int64_t i = 0; i < std::min(count, depth) && status.ok(); ++i) status = start(i);
    for (std::int64_t i = 0; i < count && status.ok(); ++i) {
      status = WaitFor(slot_of(i));
      if (!status.ok()) break;
      std::memcpy(to + i * kChunk, Data(slot_of(i)), static_cast<std::size_t>(bytes_of(i)));
      if (i + depth < count) status = start(i + depth);
    }
    return WaitForAll(status);
  }

  const ScratchIo& io() const { return io_; }

 private:
  FileChannel() = default;

  std::byte* Data(std::size_t slot) const {
    return memory_.get() + static_cast<std::int64_t>(slot) * kChunk;
  }
  Status Start(std::size_t slot, FileRequest::Kind kind, std::int64_t offset, std::int64_t bytes) {
    requests_[slot] = {
        .kind = kind, .data = Data(slot), .bytes = RoundUp(bytes, kScratchPage), .offset = offset};
    return io_.io->Start(requests_[slot]);
  }
  Status WaitFor(std::size_t slot) {
    FileRequest& request = requests_[slot];
    while (!request.done) AIT_RETURN_IF_ERROR(io_.io->WaitForAny());
    const int error = std::exchange(request.error, 0);
    if (error == 0) return OkStatus();
    const char* const verb = request.kind == FileRequest::Kind::kRead ? "reading " : "writing ";
    if (error == FileRequest::kFileEnds) {
      return DataLossError("the file ends inside of the ", request.bytes, " bytes at offset ",
                           request.offset);
    }
    return ErrnoError(error, verb, request.bytes, " bytes at offset ", request.offset);
  }
  // Nothing is on its way afterwards, whatever the status.
  Status WaitForAll(Status status) {
    for (std::size_t slot = 0; slot < kDepth; ++slot) {
      const Status ended = WaitFor(slot);
      if (status.ok()) status = ended;
    }
    return status;
  }

  std::unique_ptr<std::byte, Free> memory_;
  std::array<FileRequest, kDepth> requests_;
  ScratchIo io_;  // destroyed first
};

class FileTarget final : public OffloadTarget {
 public:
  static StatusOr<std::unique_ptr<OffloadTarget>> Open(const std::string& directory) {
    std::unique_ptr<FileTarget> target(new FileTarget);
    AIT_ASSIGN_OR_RETURN(target->file_,
                         OpenScratchFile(directory, "saved tensors", "OffloadOptions::directory"));
    AIT_RETURN_IF_ERROR(ReserveScratch(target->file_, kScratchPage));
    target->reserved_ = kScratchPage;
    target->regions_.Allocate(kScratchPage, kScratchPage);  // the page that OpenScratchIo tries
    AIT_ASSIGN_OR_RETURN(target->writer_, FileChannel::Open(target->file_, /*buffered=*/false));
    AIT_ASSIGN_OR_RETURN(target->reader_,
                         FileChannel::Open(target->file_, target->writer_->io().buffered));
    return std::unique_ptr<OffloadTarget>(std::move(target));
  }

  StatusOr<OffloadPlace> Reserve(std::int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    const auto room = static_cast<std::size_t>(RoundUp(bytes, kScratchPage));
    const auto offset = regions_.Allocate(room, kScratchPage);
    if (!offset) return ResourceExhaustedError("no room for saved tensors in ", file_.place);
    const auto end = static_cast<std::int64_t>(*offset + room);
    if (end > reserved_) {
      std::int64_t grown = RoundUp(end, kGrowth);
      Status status = ReserveScratch(file_, grown);
      if (!status.ok()) status = ReserveScratch(file_, grown = end);
      if (!status.ok()) {
        regions_.Free(*offset, room);
        return status;
      }
      reserved_ = grown;
    }
    return OffloadPlace{.offset = static_cast<std::int64_t>(*offset), .bytes = bytes};
  }

  void Release(const OffloadPlace& place) override {
    const std::lock_guard lock(mutex_);
    regions_.Free(static_cast<std::size_t>(place.offset),
                  static_cast<std::size_t>(RoundUp(place.bytes, kScratchPage)));
  }

  Status Write(const OffloadPlace& place, const void* from) override {
    const std::lock_guard lock(writing_);
    return writer_->Write(place, static_cast<const std::byte*>(from));
  }
  Status Read(const OffloadPlace& place, void* to) override {
    const std::lock_guard lock(reading_);
    return reader_->Read(place, static_cast<std::byte*>(to));
  }
  std::string Describe() const override { return writer_->io().description; }

 private:
  FileTarget() = default;

  ScratchFile file_;
  std::mutex mutex_;
  RegionAllocator regions_{kMostBytes};
  std::int64_t reserved_ = 0;
  std::mutex writing_;
  std::unique_ptr<FileChannel> writer_;
  std::mutex reading_;
  std::unique_ptr<FileChannel> reader_;
};

}  // namespace

StatusOr<std::unique_ptr<OffloadTarget>> OpenFileTarget(const std::string& directory) {
  return FileTarget::Open(directory);
}

}  // namespace ait::inline v0::internal
