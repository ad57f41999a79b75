// SPDX-License-Identifier: Apache-2.0
// Cases of the communicator's contract: memory of peers, and results told while they are made.

#include <algorithm>
#include <atomic>
#include <numeric>
#include <span>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "contract/communicator_contract_cases.h"

namespace ait::testing {
namespace {

/// Memory that the peers reach, where there is such; else any.
StatusOr<HostBuffer> SharedBuffer(const Group& group, std::size_t bytes) {
  MemoryHandle memory = group->memory();
  if (!memory || memory.properties().sharing != Sharing::kProcesses) {
    memory = HeapResource::Create();
  }
  return HostBuffer::Create(memory, bytes);
}

/// Every rank reads what the others wrote and writes to all of them; or all are told that they
/// cannot.
Status PeersReachBuffersInSharedMemory(Group group) {
  const auto size = static_cast<std::size_t>(group->size().value());
  const auto self = static_cast<std::size_t>(group->rank().value());
  AIT_ASSIGN_OR_RETURN(HostBuffer block, SharedBuffer(group, 2 * size * sizeof(std::int64_t)));
  const std::span<std::int64_t> own = block.As<std::int64_t>();
  std::ranges::fill(own, 100 + static_cast<std::int64_t>(self));
  AIT_ASSIGN_OR_RETURN(const std::vector<void*> addresses, group->PeerAddresses(View(own)));
  std::int64_t reached[] = {static_cast<std::int64_t>(addresses.size())};
  AIT_RETURN_IF_ERROR(group->AllReduce(View(reached), ReduceOp::kMin).Wait());
  AIT_RETURN_IF_ERROR(Expect(reached[0] == static_cast<std::int64_t>(addresses.size()),
                             "all ranks get addresses, or none does"));
  if (addresses.empty()) {
    return Expect(size > 1, "a rank alone reaches itself");
  }
  AIT_RETURN_IF_ERROR(group->Barrier().Wait());
  for (std::size_t peer = 0; peer < size; ++peer) {
    auto* theirs = static_cast<std::int64_t*>(addresses[peer]);
    AIT_RETURN_IF_ERROR(Expect(theirs[size] == 100 + static_cast<std::int64_t>(peer),
                               "a peer's memory holds what it wrote"));
    theirs[self] = static_cast<std::int64_t>(1000 * self + peer);
  }
  group->ForgetPeerPages();
  for (std::size_t peer = 0; peer < size; ++peer) {
    const auto* theirs = static_cast<const std::int64_t*>(addresses[peer]);
    AIT_RETURN_IF_ERROR(Expect(theirs[self] == static_cast<std::int64_t>(1000 * self + peer),
                               "pages that are forgotten keep what they hold"));
  }
  AIT_RETURN_IF_ERROR(group->Barrier().Wait());
  for (std::size_t peer = 0; peer < size; ++peer) {
    AIT_RETURN_IF_ERROR(Expect(own[peer] == static_cast<std::int64_t>(1000 * peer + self),
                               "this rank has what the peers wrote"));
  }
  return group->Barrier().Wait();  // nobody frees its block before
}

Status AddressesOfUnequalBuffersAreRefused(Group group) {
  std::vector<float> own(static_cast<std::size_t>(10 + group->rank().value()));
  return ExpectError(group->PeerAddresses(View(own)).status(), StatusCode::kInvalidArgument,
                     {"rank 1", "44", "40"});
}

/// Every element of the output is told once, and is final then; also in place and where buffers lie
/// on a heap.
Status ReducedElementsAreTold(Group group) {
  if (!group->reports_reduced()) return OkStatus();
  const int size = group->size().value();
  for (const bool shared : {false, true}) {
    for (const std::int64_t part : {std::int64_t{0}, std::int64_t{64}, std::int64_t{300000}}) {
      const auto count = static_cast<std::size_t>(part * size);
      std::vector<float> heap(count);
      AIT_ASSIGN_OR_RETURN(HostBuffer block,
                           SharedBuffer(group, std::max<std::size_t>(64, count * sizeof(float))));
      const std::span<float> input = shared ? block.As<float>().first(count) : std::span(heap);
      std::ranges::fill(input, static_cast<float>(group->rank().value() + 1));
      const Buffer whole = View(input);
      const Buffer output = whole.Slice(part * group->rank().value(), part);
      const float sum = static_cast<float>(size * (size + 1)) / 2;
      std::vector<int> told(static_cast<std::size_t>(part));
      std::atomic<bool> is_right = true;
      const Work work = group->ReduceScatter(
          whole, output, ReduceOp::kSum,
          {.on_reduced = [&](std::int64_t begin, std::int64_t length) {
            is_right = is_right && begin % 64 == 0;
            for (std::int64_t i = begin; i < begin + length; ++i) {
              ++told[static_cast<std::size_t>(i)];
              is_right = is_right && static_cast<const float*>(output.data)[i] == sum;
            }
          }});
      AIT_RETURN_IF_ERROR(work.Wait());
      AIT_RETURN_IF_ERROR(Expect(is_right, "what is told is final, and aligned"));
      AIT_RETURN_IF_ERROR(Expect(std::ranges::all_of(told, [](int times) { return times == 1; }),
                                 "every element is told once"));
      AIT_RETURN_IF_ERROR(group->Barrier().Wait());
    }
  }
  return OkStatus();
}

}  // namespace

std::vector<ContractCase> ReachCases() {
  return {
      {"PeersReachBuffersInSharedMemory", PeersReachBuffersInSharedMemory},
      {"AddressesOfUnequalBuffersAreRefused", AddressesOfUnequalBuffersAreRefused, 2},
      {"ReducedElementsAreTold", ReducedElementsAreTold},
  };
}

}  // namespace ait::testing
