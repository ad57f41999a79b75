// SPDX-License-Identifier: Apache-2.0
#include "optim/state_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ait::inline v0::internal {

StatusOr<std::unique_ptr<StateFile>> StateFile::Create(const StateFileOptions& options) {
  AIT_RETURN_IF_ERROR(options.offload.Validate());
  std::unique_ptr<StateFile> file(new StateFile);
  AIT_RETURN_IF_ERROR(file->Open(options));
  return file;
}

StateFile::~StateFile() {
  io_.reset();  // waits; then nobody writes to the memory
  if (memory_ != nullptr) ::munmap(memory_, static_cast<std::size_t>(memory_bytes()));
}

std::int64_t StateFile::memory_bytes() const {
  return static_cast<std::int64_t>(slots_.size()) * chunk_bytes_;
}

Status StateFile::Open(const StateFileOptions& options) {
  chunk_bytes_ = RoundUp(options.offload.chunk.value(), kScratchPage);
  count_ = options.count;
  directory_ = options.offload.directory;
  if (count_ < 1 || count_ > (std::int64_t{1} << 62) / chunk_bytes_) {
    return InvalidArgumentError("optimizer state in ", directory_, " has ", count_, " chunks of ",
                                chunk_bytes_, " bytes");
  }
  AIT_ASSIGN_OR_RETURN(file_,
                       OpenScratchFile(directory_, "optimizer state", "StateOffload::directory"));
  AIT_RETURN_IF_ERROR(ReserveScratch(file_, file_bytes()));
  AIT_RETURN_IF_ERROR(
      MakeSlots(static_cast<int>(std::min<std::int64_t>(options.offload.chunks, count_))));
  return OpenIo(options);
}

Status StateFile::MakeSlots(int count) {
  const auto bytes = static_cast<std::size_t>(count * chunk_bytes_);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return ErrnoError(errno, "no memory for ", count, " chunks of ", chunk_bytes_, " bytes");
  }
  memory_ = static_cast<std::byte*>(memory);
  // A child made by fork while the device writes to the pages must not share them.
  ::madvise(memory, bytes, MADV_DONTFORK);
  slots_.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].data = memory_ + static_cast<std::int64_t>(i) * chunk_bytes_;
  }
  return OkStatus();
}

Status StateFile::OpenIo(const StateFileOptions& options) {
  // A slot has at most one request.
  AIT_ASSIGN_OR_RETURN(ScratchIo opened,
                       OpenScratchIo(file_, {.depth = std::max(2, static_cast<int>(slots_.size())),
                                             .page = memory_,
                                             .io = options.io,
                                             .buffered = options.buffered}));
  io_ = std::move(opened.io);
  description_ = std::move(opened.description);
  return OkStatus();
}

StateFile::Slot* StateFile::Find(std::int64_t chunk) {
  const auto found =
      std::ranges::find_if(slots_, [&](const Slot& slot) { return slot.chunk == chunk; });
  return found == slots_.end() ? nullptr : &*found;
}

// The slot to read into: an empty one, else the clean one that was used longest ago. Chunks
// [first_kept, first_kept + kept) stay, round and round.
StateFile::Slot* StateFile::FindFree(std::int64_t first_kept, std::int64_t kept) {
  Slot* best = nullptr;
  for (Slot& slot : slots_) {
    if (slot.condition == Condition::kEmpty) return &slot;
    if (slot.condition != Condition::kClean) continue;
    if ((slot.chunk - first_kept + count_) % count_ < kept) continue;
    if (best == nullptr || slot.last_use < best->last_use) best = &slot;
  }
  return best;
}

Status StateFile::Start(Slot& slot, FileRequest::Kind kind) {
  slot.request = {
      .kind = kind, .data = slot.data, .bytes = chunk_bytes_, .offset = slot.chunk * chunk_bytes_};
  slot.condition = kind == FileRequest::Kind::kRead ? Condition::kReading : Condition::kWriting;
  status_ = Annotate(io_->Start(slot.request), file_.place);
  return status_;
}

// Takes in what has ended; with `wait`, until something has.
Status StateFile::Collect(bool wait) {
  status_ = Annotate(wait ? io_->WaitForAny() : io_->Poll(), file_.place);
  for (Slot& slot : slots_) {
    const bool reading = slot.condition == Condition::kReading;
    if ((!reading && slot.condition != Condition::kWriting) || !slot.request.done) continue;
    slot.condition = Condition::kClean;
    const FileRequest& request = slot.request;
    if (request.error == 0 || !status_.ok()) continue;
    const std::string what =
        StrCat(reading ? "cannot read " : "cannot write ", request.bytes, " bytes at offset ",
               request.offset, " of the optimizer state in ", file_.place);
    status_ = request.error == FileRequest::kFileEnds
                  ? DataLossError(what, ": the file ends ", request.moved,
                                  " bytes after that; somebody has truncated it")
                  : ErrnoError(request.error, what);
  }
  return status_;
}

// Begins to write what was changed, except for the slot that is about to be used.
Status StateFile::WriteOthers(const Slot* used) {
  for (Slot& slot : slots_) {
    if (&slot == used || slot.condition != Condition::kDirty) continue;
    AIT_RETURN_IF_ERROR(Start(slot, FileRequest::Kind::kWrite));
  }
  return OkStatus();
}

// Begins to read the chunks behind `index` as far as there are slots: one is used, and one is left
// for what is being written.
Status StateFile::ReadAhead(std::int64_t index) {
  const auto slots = static_cast<std::int64_t>(slots_.size());
  const std::int64_t window = count_ <= slots ? slots : slots - 1;
  for (std::int64_t i = 1; i < window; ++i) {
    const std::int64_t next = (index + i) % count_;
    if (Find(next) != nullptr) continue;
    Slot* const slot = FindFree(index, window);
    if (slot == nullptr) break;
    slot->chunk = next;
    slot->last_use = uses_;
    AIT_RETURN_IF_ERROR(Start(*slot, FileRequest::Kind::kRead));
  }
  return OkStatus();
}

// Waits until a chunk is in memory and at rest.
Status StateFile::Fetch(std::int64_t index, Slot*& slot) {
  slot = Find(index);
  AIT_RETURN_IF_ERROR(WriteOthers(slot));
  AIT_RETURN_IF_ERROR(Collect(/*wait=*/false));
  while (slot == nullptr) {
    slot = FindFree(index, 1);
    if (slot == nullptr) {
      AIT_RETURN_IF_ERROR(Collect(/*wait=*/true));
      continue;
    }
    slot->chunk = index;
    AIT_RETURN_IF_ERROR(Start(*slot, FileRequest::Kind::kRead));
  }
  slot->last_use = ++uses_;
  AIT_RETURN_IF_ERROR(ReadAhead(index));
  while (slot->condition != Condition::kClean && slot->condition != Condition::kDirty) {
    AIT_RETURN_IF_ERROR(Collect(/*wait=*/true));
    AIT_RETURN_IF_ERROR(ReadAhead(index));
  }
  return OkStatus();
}

Status StateFile::Use(std::int64_t index, StateAccess access,
                      const std::function<Status(std::byte*)>& body) {
  AIT_RETURN_IF_ERROR(status_);
  if (index < 0 || index >= count_) {
    return OutOfRangeError("chunk ", index, " of optimizer state that has ", count_);
  }
  Slot* slot = nullptr;
  AIT_RETURN_IF_ERROR(Fetch(index, slot));
  if (access == StateAccess::kReadWrite) slot->condition = Condition::kDirty;
  return body(slot->data);
}

Status StateFile::Flush() {
  AIT_RETURN_IF_ERROR(status_);
  AIT_RETURN_IF_ERROR(WriteOthers(nullptr));
  const auto writing = [](const Slot& slot) { return slot.condition == Condition::kWriting; };
  while (std::ranges::any_of(slots_, writing)) AIT_RETURN_IF_ERROR(Collect(/*wait=*/true));
  return OkStatus();
}

}  // namespace ait::inline v0::internal
