// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_signatures.h"

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kWord = 8;

}  // namespace

StatusOr<NcclSignatures> NcclSignatures::Create(const std::shared_ptr<NcclArena>& arena, int size) {
  const std::int64_t bytes = kSlots * (3 * std::int64_t{size} + 1) * kWord;
  std::optional<NcclArena::Piece> piece = arena->Take(bytes);
  if (!piece) {
    return ResourceExhaustedError("no room for the signatures of a group of ", size, " ranks (",
                                  bytes,
                                  " bytes); drop groups, or raise NcclOptions::host_staging");
  }
  return NcclSignatures(*std::move(piece), size);
}

Status NcclSignatures::Gather(int slot, const NcclComm& comm, Stream& stream,
                              std::uint64_t signature, const KeepGoing& keep_going) {
  const std::int64_t own = At(slot, size_);
  std::memcpy(piece_.on_host(own), &signature, sizeof(signature));
  AIT_RETURN_IF_ERROR(stream.Copy(piece_.on_device(own), piece_.on_host(own), Bytes(kWord)));
  AIT_RETURN_IF_ERROR(EnqueueAllGather(comm, stream.native(), piece_.on_device(own),
                                       piece_.on_device(At(slot, 0)), kWord, keep_going));
  return stream.Copy(piece_.on_host(At(slot, 0)), piece_.on_device(At(slot, 0)),
                     Bytes(size_ * kWord));
}

std::span<const std::uint64_t> NcclSignatures::Gathered(int slot) const {
  return {reinterpret_cast<const std::uint64_t*>(piece_.on_host(At(slot, 0))),
          static_cast<std::size_t>(size_)};
}

Status NcclSignatures::ExchangeCounts(int slot, const NcclComm& comm, Stream& stream,
                                      const Operation& operation, const KeepGoing& keep_going) {
  const std::int64_t sent = At(slot, size_ + 1);
  const std::int64_t received = At(slot, 2 * std::int64_t{size_} + 1);
  const Bytes bytes(size_ * kWord);
  std::memcpy(piece_.on_host(sent), operation.counts.data(),
              static_cast<std::size_t>(bytes.value()));
  AIT_RETURN_IF_ERROR(stream.Copy(piece_.on_device(sent), piece_.on_host(sent), bytes));
  const std::vector<std::int64_t> words(static_cast<std::size_t>(size_), kWord);
  AIT_RETURN_IF_ERROR(EnqueueExchange(comm, stream.native(), piece_.on_device(sent), words,
                                      piece_.on_device(received), words, keep_going));
  return stream.Copy(piece_.on_host(received), piece_.on_device(received), bytes);
}

std::span<const std::uint64_t> NcclSignatures::ExchangedCounts(int slot) const {
  return {
      reinterpret_cast<const std::uint64_t*>(piece_.on_host(At(slot, 2 * std::int64_t{size_} + 1))),
      static_cast<std::size_t>(size_)};
}

}  // namespace ait::inline v0::internal
