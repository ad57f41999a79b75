// SPDX-License-Identifier: Apache-2.0
#include "data/token_array_internal.h"

#include <algorithm>
#include <array>

#include "data/widen_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::size_t kMostReads = 64;

}  // namespace

Status TokenArray::Attach(const Storage& storage) {
  AIT_ASSIGN_OR_RETURN(object_, storage.Open(file_->path()));
  AIT_ASSIGN_OR_RETURN(const std::string version, file_->Version());
  if (object_->info().version != version) {
    return AbortedError(file_->path(), " was changed while it was opened");
  }
  file_.reset();
  return OkStatus();
}

Status TokenArray::Widen(std::span<const std::byte> narrow, std::int64_t first,
                         std::span<std::int64_t> out, std::int64_t vocabulary_size) const {
  const std::uint64_t max = WidenAndMax(dtype_, narrow.data(), out);
  if (max < static_cast<std::uint64_t>(vocabulary_size)) return OkStatus();
  const auto bad = std::ranges::find_if(
      out, [&](std::int64_t token) { return token < 0 || token >= vocabulary_size; });
  return DataLossError("token ", *bad, " at position ", first + (bad - out.begin()), " of ",
                       object_->info().url, " is not in the vocabulary of ", vocabulary_size);
}

void TokenArray::ReadMany(std::span<TokenRead* const> reads, std::int64_t vocabulary_size,
                          std::span<std::byte> scratch) const {
  const auto token_bytes = static_cast<std::size_t>(SizeOf(dtype_));
  std::array<ObjectRead, kMostReads> parts;
  while (!reads.empty()) {
    if (reads.front()->out.size() > scratch.size() / token_bytes) {
      ReadLong(*reads.front(), vocabulary_size, scratch);
      reads = reads.subspan(1);
      continue;
    }
    std::size_t count = 0;
    std::size_t used = 0;
    for (; count < std::min(reads.size(), kMostReads); ++count) {
      const std::size_t bytes = reads[count]->out.size() * token_bytes;
      if (bytes > scratch.size() - used) break;
      parts[count].offset_bytes = offset_bytes_ + reads[count]->first * SizeOf(dtype_);
      parts[count].out = scratch.subspan(used, bytes);
      used += bytes;
    }
    object_->ReadMany(std::span(parts).first(count));
    for (std::size_t i = 0; i < count; ++i) {
      TokenRead& read = *reads[i];
      read.status = parts[i].status.ok()
                        ? Widen(parts[i].out, read.first, read.out, vocabulary_size)
                        : parts[i].status;
    }
    reads = reads.subspan(count);
  }
}

void TokenArray::ReadLong(TokenRead& read, std::int64_t vocabulary_size,
                          std::span<std::byte> scratch) const {
  const auto token_bytes = static_cast<std::size_t>(SizeOf(dtype_));
  std::int64_t first = read.first;
  std::span<std::int64_t> out = read.out;
  read.status = OkStatus();
  while (!out.empty() && read.status.ok()) {
    const auto part = out.first(std::min(out.size(), scratch.size() / token_bytes));
    const auto narrow = scratch.first(part.size() * token_bytes);
    read.status = object_->ReadAt(offset_bytes_ + first * SizeOf(dtype_), narrow);
    if (read.status.ok()) read.status = Widen(narrow, first, part, vocabulary_size);
    first += static_cast<std::int64_t>(part.size());
    out = out.subspan(part.size());
  }
}

}  // namespace internal
}  // namespace ait::inline v0
