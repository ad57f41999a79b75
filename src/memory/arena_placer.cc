// SPDX-License-Identifier: Apache-2.0
#include "memory/arena_placer_internal.h"

#include <linux/mempolicy.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "memory/mapping_internal.h"

namespace ait::inline v0::internal {
namespace {

std::string ErrorText(int error) { return std::generic_category().message(error); }

}  // namespace

Status ArenaPlacer::Prefer(std::byte* data, std::size_t bytes, int node) {
  if (!nodes_) {
    AIT_ASSIGN_OR_RETURN(nodes_, ReadNumaNodes(roots_));
  }
  AIT_RETURN_IF_ERROR(ResolveNodes(*nodes_, {.nodes = NodeSet({node})}, -1).status());
  const int error = ops_.Bind(data, bytes, MPOL_PREFERRED, NodeSet({node}));
  std::byte* const end = data + bytes;
  std::erase_if(parts_, [&](const Part& part) { return part.begin >= data && part.end <= end; });
  parts_.push_back({.begin = data, .end = end, .node = node, .is_bound = error == 0});
  return OkStatus();
}

std::vector<ArenaPlacer::Piece> ArenaPlacer::PiecesOf(std::byte* data, std::size_t bytes) const {
  std::byte* const end = data + bytes;
  std::vector<std::byte*> cuts = {data, end};
  for (const Part& part : parts_) {
    for (std::byte* const cut : {part.begin, part.end}) {
      if (data < cut && cut < end) cuts.push_back(cut);
    }
  }
  std::ranges::sort(cuts);
  std::vector<Piece> pieces;
  for (std::size_t i = 1; i < cuts.size(); ++i) {
    if (cuts[i - 1] == cuts[i]) continue;
    const Part* latest = nullptr;
    for (const Part& part : parts_) {
      if (part.begin <= cuts[i - 1] && cuts[i] <= part.end) latest = &part;
    }
    if (!pieces.empty() && pieces.back().part == latest) {
      pieces.back().end = cuts[i];
    } else {
      pieces.push_back({.begin = cuts[i - 1], .end = cuts[i], .part = latest});
    }
  }
  return pieces;
}

void ArenaPlacer::Map(std::byte* data, std::size_t bytes) {
  if (ops_.Populate(data, bytes) == 0) return;
  // A kernel before Linux 5.14.
  for (std::size_t at = 0; at < bytes; at += kPage) {
    static_cast<void>(*const_cast<const volatile std::byte*>(data + at));
  }
}

Status ArenaPlacer::Move(std::byte* data, std::size_t bytes, int node) {
  Map(data, bytes);
  constexpr std::size_t kAtOnce = 4096;
  std::vector<void*> pages;
  std::vector<int> status;
  std::size_t left = 0;
  for (std::size_t at = 0; at < bytes; at += kAtOnce * kPage) {
    const std::size_t end = std::min(at + kAtOnce * kPage, bytes);
    pages.clear();
    for (std::size_t page = at; page < end; page += kPage) pages.push_back(data + page);
    status.assign(pages.size(), 0);
    if (const int error = ops_.Move(pages, node, status); error != 0) {
      return PermissionDeniedError("cannot move ", bytes, " bytes of a shared arena to node ", node,
                                   ": move_pages: ", ErrorText(error),
                                   "; they lie where they were reserved. Give the node before they "
                                   "are, or the container CAP_SYS_NICE");
    }
    left += static_cast<std::size_t>(
        std::ranges::count_if(status, [&](int where) { return where != node; }));
  }
  if (left == 0) return OkStatus();
  return FailedPreconditionError(
      left, " of ", bytes / kPage, " pages of a shared arena could not be moved to node ", node,
      ": the node is full, or other processes use them; place memory before others attach");
}

Status ArenaPlacer::Reserve(std::byte* data, std::size_t bytes, const MakePages& reserve) {
  const std::vector<Piece> pieces = PiecesOf(data, bytes);
  const auto is_bound = [](const Piece& piece) {
    return piece.part == nullptr || piece.part->is_bound;
  };
  if (std::ranges::all_of(pieces, is_bound)) return reserve(data, bytes);
  for (const Piece& piece : pieces) {
    AIT_RETURN_IF_ERROR(
        is_bound(piece) ? reserve(piece.begin, static_cast<std::size_t>(piece.end - piece.begin))
                        : ReserveUnbound(piece, reserve));
  }
  return OkStatus();
}

Status ArenaPlacer::ReserveUnbound(const Piece& piece, const MakePages& reserve) {
  const auto bytes = static_cast<std::size_t>(piece.end - piece.begin);
  Status reserved;
  bool was_called = false;
  const auto here = [&] {
    was_called = true;
    reserved = reserve(piece.begin, bytes);
    if (reserved.ok()) Map(piece.begin, bytes);
  };
  // A node without CPUs, or whose CPUs this process may not use, is left to chance; Verify tells.
  const CpuSet& cpus = nodes_->cpus[piece.part->node];
  if (!cpus.empty()) (void)ops_.RunOn(cpus, here);
  return was_called ? reserved : reserve(piece.begin, bytes);
}

PlacementReport ArenaPlacer::Verify(std::byte* data, std::size_t bytes) {
  Map(data, bytes);
  PlacementReport all;
  for (const Piece& piece : PiecesOf(data, bytes)) {
    PlacementExpectation expected;
    if (piece.part != nullptr) expected.nodes = NodeSet({piece.part->node});
    AddReport(VerifyPlacement(ops_, piece.begin, static_cast<std::size_t>(piece.end - piece.begin),
                              expected, roots_),
              all);
  }
  return all;
}

}  // namespace ait::inline v0::internal
