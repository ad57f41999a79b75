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

const ArenaPlacer::Part* ArenaPlacer::PartOf(const std::byte* data, std::size_t bytes) const {
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    if (part->begin <= data && data + bytes <= part->end) return &*part;
  }
  return nullptr;
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

Status ArenaPlacer::Reserve(std::byte* data, std::size_t bytes,
                            const std::function<Status()>& reserve) {
  const Part* const part = PartOf(data, bytes);
  if (part == nullptr || part->is_bound) return reserve();
  Status reserved;
  bool was_called = false;
  const auto here = [&] {
    was_called = true;
    reserved = reserve();
    if (reserved.ok()) Map(data, bytes);
  };
  // A node without CPUs, or whose CPUs this process may not use, is left to chance; Verify tells.
  const CpuSet& cpus = nodes_->cpus[part->node];
  if (!cpus.empty()) (void)ops_.RunOn(cpus, here);
  return was_called ? reserved : reserve();
}

PlacementReport ArenaPlacer::Verify(std::byte* data, std::size_t bytes) {
  Map(data, bytes);
  const Part* const part = PartOf(data, bytes);
  PlacementExpectation expected;
  if (part != nullptr) expected.nodes = NodeSet({part->node});
  return VerifyPlacement(ops_, data, bytes, expected, roots_);
}

}  // namespace ait::inline v0::internal
