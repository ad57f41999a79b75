// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/guard.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "ait/memory/tracking.h"
#include "memory/mapping_internal.h"

namespace ait::inline v0 {
namespace {

using internal::kPage;
using internal::MapAligned;
using internal::Unmap;

constexpr std::byte kFresh{0xcd};
constexpr std::byte kAround{0xfd};
constexpr std::size_t kKeptErrors = 100;

std::size_t Up(std::size_t bytes, std::size_t step) { return (bytes + step - 1) / step * step; }

std::string Address(std::uintptr_t address) {
  char digits[16];
  return "0x" +
         std::string(digits, std::to_chars(digits, digits + sizeof(digits), address, 16).ptr);
}

/// "a block of 100 bytes at 0x7f… (labelled "loader")".
std::string Describe(std::uintptr_t begin, std::size_t bytes, const std::string& label) {
  return StrCat("a block of ", bytes, " bytes at ", Address(begin),
                label.empty() ? "" : StrCat(" (labelled \"", label, "\")"));
}

/// The first byte that is not as it was left, or nullopt.
std::optional<std::size_t> FirstWritten(const std::byte* bytes, std::size_t count) {
  const std::byte* const found =
      std::find_if(bytes, bytes + count, [](std::byte byte) { return byte != kAround; });
  if (found == bytes + count) return std::nullopt;
  return static_cast<std::size_t>(found - bytes);
}

}  // namespace

std::shared_ptr<GuardResource> GuardResource::Create(const GuardOptions& options) {
  return std::shared_ptr<GuardResource>(new GuardResource(options));
}

GuardResource::~GuardResource() {
  for (const auto& [begin, block] : blocks_) {
    if (!block.is_freed) {
      if (Status status = CheckAround(begin, block); !status.ok()) Report(status);
      Report(FailedPreconditionError("leak: ", Describe(begin, block.bytes, block.label),
                                     " was not given back"));
    }
    Unmap(block.map, block.map_bytes);
  }
}

std::vector<Status> GuardResource::errors() const {
  const std::lock_guard lock(mutex_);
  return errors_;
}

std::int64_t GuardResource::error_count() const {
  const std::lock_guard lock(mutex_);
  return error_count_;
}

void GuardResource::Report(const Status& error) {
  {
    const std::lock_guard lock(mutex_);
    if (errors_.size() < kKeptErrors) errors_.push_back(error);
    ++error_count_;
  }
  Log(options_.log, Severity::kError, "memory", Message(error));
  if (options_.on_error != nullptr) options_.on_error(error);
}

StatusOr<void*> GuardResource::DoAllocate(std::size_t bytes, std::size_t alignment) {
  // One guard page on each side; a large alignment takes as much before the block.
  const std::size_t front = std::max(alignment, kPage);
  const std::size_t rounded = Up(bytes, std::min(alignment, kPage));
  Block made = {.page_bytes = Up(rounded, kPage), .bytes = bytes, .alignment = alignment};
  made.map_bytes = front + made.page_bytes + kPage;
  made.label = MemoryLabel::Current();
  void* map = MapAligned(made.map_bytes, front, -1);
  if (map == nullptr) {
    std::vector<Block> dropped;
    {
      const std::lock_guard lock(mutex_);
      dropped = TakeQuarantineAbove(0);
    }
    for (const Block& block : dropped) Unmap(block.map, block.map_bytes);
    map = MapAligned(made.map_bytes, front, -1);
  }
  bool is_guarded = false;
  if (map != nullptr) {
    made.map = static_cast<std::byte*>(map);
    made.pages = made.map + front;
    is_guarded = mprotect(made.map, front, PROT_NONE) == 0 &&
                 mprotect(made.pages + made.page_bytes, kPage, PROT_NONE) == 0;
  }
  if (!is_guarded) {
    const int error = errno;
    if (map != nullptr) Unmap(map, made.map_bytes);
    return ResourceExhaustedError("cannot allocate ", bytes, " bytes with guard pages: ",
                                  std::generic_category().message(error),
                                  "; each block takes two of the process's mappings "
                                  "(vm.max_map_count), and address space (ulimit -v)");
  }
  std::byte* const begin =
      options_.edge == GuardedEdge::kBegin ? made.pages : made.pages + made.page_bytes - rounded;
  std::memset(made.pages, static_cast<int>(kAround), made.page_bytes);
  std::memset(begin, static_cast<int>(kFresh), bytes);
  const std::lock_guard lock(mutex_);
  blocks_.insert_or_assign(reinterpret_cast<std::uintptr_t>(begin), std::move(made));
  return static_cast<void*>(begin);
}

Status GuardResource::CheckAround(std::uintptr_t begin, const Block& block) {
  const auto pages = reinterpret_cast<std::uintptr_t>(block.pages);
  const std::size_t before = begin - pages;
  const std::size_t behind = block.page_bytes - before - block.bytes;
  if (const auto at = FirstWritten(block.pages, before)) {
    return DataLossError("overwritten: ", before - *at, " bytes before the beginning of ",
                         Describe(begin, block.bytes, block.label), ", something was written");
  }
  if (const auto at = FirstWritten(block.pages + before + block.bytes, behind)) {
    return DataLossError("overwritten: ", *at, " bytes behind the end of ",
                         Describe(begin, block.bytes, block.label), ", something was written");
  }
  return OkStatus();
}

Status GuardResource::Check() const {
  const std::lock_guard lock(mutex_);
  for (const auto& [begin, block] : blocks_) {
    if (!block.is_freed) AIT_RETURN_IF_ERROR(CheckAround(begin, block));
  }
  return OkStatus();
}

/// What is wrong with giving back `address`, which is no block that is out.
Status GuardResource::WrongPointer(std::uintptr_t address) const {
  const auto next = blocks_.upper_bound(address);
  if (next != blocks_.begin()) {
    const auto& [begin, block] = *std::prev(next);
    if (begin == address) {
      return FailedPreconditionError("double free: ", Describe(begin, block.bytes, block.label),
                                     " was given back before");
    }
    if (address - begin < block.bytes) {
      return InvalidArgumentError("wrong pointer: ", Address(address), " was given back, which is ",
                                  address - begin, " bytes inside ",
                                  Describe(begin, block.bytes, block.label),
                                  block.is_freed ? ", itself freed" : "");
    }
  }
  return InvalidArgumentError("foreign pointer: ", Address(address),
                              " was given back, which is no block of this resource (or one freed "
                              "long ago: quarantine is ",
                              options_.quarantine, " bytes)");
}

/// Takes the oldest out of quarantine until it has at most `bytes`; the caller unmaps them.
std::vector<GuardResource::Block> GuardResource::TakeQuarantineAbove(std::size_t bytes) {
  std::vector<Block> taken;
  while (quarantined_bytes_ > bytes) {
    const auto oldest = blocks_.find(quarantined_.front());
    quarantined_.pop_front();
    quarantined_bytes_ -= oldest->second.map_bytes;
    taken.push_back(std::move(oldest->second));
    blocks_.erase(oldest);
  }
  return taken;
}

void GuardResource::DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) {
  const auto begin = reinterpret_cast<std::uintptr_t>(block);
  std::vector<Status> errors;
  std::vector<Block> evicted;
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(begin);
    if (found == blocks_.end() || found->second.is_freed) {
      errors.push_back(WrongPointer(begin));
    } else {
      Block& freed = found->second;
      if (freed.bytes != bytes || freed.alignment != alignment) {
        errors.push_back(InvalidArgumentError(
            "wrong size: ", Describe(begin, freed.bytes, freed.label), ", aligned to ",
            freed.alignment, ", was given back as ", bytes, " bytes aligned to ", alignment));
      }
      if (Status status = CheckAround(begin, freed); !status.ok()) errors.push_back(status);
      // The addresses stay taken and the memory goes back. Were it refused (no mapping is left), the
      // block would only be less guarded.
      (void)mprotect(freed.pages, freed.page_bytes, PROT_NONE);
      (void)madvise(freed.pages, freed.page_bytes, MADV_DONTNEED);
      freed.is_freed = true;
      quarantined_.push_back(begin);
      quarantined_bytes_ += freed.map_bytes;
      evicted = TakeQuarantineAbove(
          static_cast<std::size_t>(std::max(options_.quarantine, Bytes(0)).value()));
    }
  }
  for (const Block& old : evicted) Unmap(old.map, old.map_bytes);
  for (const Status& error : errors) Report(error);
}

}  // namespace ait::inline v0
