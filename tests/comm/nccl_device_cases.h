// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_COMM_NCCL_DEVICE_CASES_H_
#define AIT_TESTS_COMM_NCCL_DEVICE_CASES_H_

// What a rank does on device memory, whatever NCCL is behind. Sums are of numbers that any order
// adds exactly.

#include <cstdint>
#include <cstring>
#include <vector>

#include "ait/base/float16.h"
#include "ait/memory/buffer.h"
#include "comm/nccl_ranks.h"
#include "support/status_matchers.h"

namespace ait::testing {

/// `count` numbers of a rank: its number times 100, then counted up.
inline std::vector<int> NumbersOf(int rank, int count) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(100 * rank + i);
  return numbers;
}

inline Status EveryCollective(NcclRank rank) {
  Communicator& all = *rank.communicator;
  const int size = all.size().value();
  const int r = all.rank().value();
  std::vector<std::int64_t> counts;  // 1, 2, …; the second part is empty
  for (int i = 0; i < size; ++i) counts.push_back(i == 1 ? 0 : i + 1);
  std::vector<int> gathered;
  std::vector<int> gathered_equal;
  std::int64_t offset = 0;
  for (int i = 0; i < size; ++i) {
    const auto part = NumbersOf(i, static_cast<int>(counts[static_cast<std::size_t>(i)]));
    const auto equal = NumbersOf(i, 3);
    if (i < r) offset += static_cast<std::int64_t>(part.size());
    gathered.insert(gathered.end(), part.begin(), part.end());
    gathered_equal.insert(gathered_equal.end(), equal.begin(), equal.end());
  }
  const auto own = static_cast<int>(counts[static_cast<std::size_t>(r)]);
  const std::int64_t total = static_cast<std::int64_t>(gathered.size());
  const auto make = [&](const std::vector<int>& values) {
    return OnDevice<int>::Create(rank, values);
  };
  AIT_ASSIGN_OR_RETURN(auto mine, make(NumbersOf(r, own)));
  AIT_ASSIGN_OR_RETURN(auto three, make(NumbersOf(r, 3)));
  AIT_ASSIGN_OR_RETURN(auto whole, make(std::vector<int>(gathered.size())));
  AIT_ASSIGN_OR_RETURN(auto equal, make(std::vector<int>(gathered_equal.size())));

  AIT_RETURN_IF_ERROR(all.AllGather(three.view(), equal.view()).Wait());
  AIT_RETURN_IF_ERROR(equal.Expect("all-gather", gathered_equal));
  AIT_RETURN_IF_ERROR(all.AllGather(mine.view(), whole.view(), counts).Wait());
  AIT_RETURN_IF_ERROR(whole.Expect("all-gather of parts", gathered));

  // Everybody has the same now, so a sum is a multiple.
  const auto times = [&](const std::vector<int>& values, std::int64_t from, std::int64_t length) {
    std::vector<int> result;
    for (std::int64_t i = 0; i < length; ++i) {
      result.push_back(size * values[static_cast<std::size_t>(from + i)]);
    }
    return result;
  };
  AIT_RETURN_IF_ERROR(all.ReduceScatter(equal.view(), three.view(), ReduceOp::kSum).Wait());
  AIT_RETURN_IF_ERROR(three.Expect("reduce-scatter", times(gathered_equal, 3 * r, 3)));
  AIT_RETURN_IF_ERROR(all.ReduceScatter(whole.view(), mine.view(), counts, ReduceOp::kSum).Wait());
  AIT_RETURN_IF_ERROR(mine.Expect("reduce-scatter of parts", times(gathered, offset, own)));
  AIT_RETURN_IF_ERROR(all.AllReduce(whole.view(), ReduceOp::kSum).Wait());
  AIT_RETURN_IF_ERROR(whole.Expect("all-reduce", times(gathered, 0, total)));

  for (int root = 0; root < size; ++root) {
    AIT_ASSIGN_OR_RETURN(auto x, make(NumbersOf(r, 5)));
    AIT_RETURN_IF_ERROR(all.Broadcast(x.view(), Rank(root)).Wait());
    AIT_RETURN_IF_ERROR(x.Expect("broadcast", NumbersOf(root, 5)));
    AIT_ASSIGN_OR_RETURN(auto part, make(NumbersOf(r, own)));
    AIT_ASSIGN_OR_RETURN(auto at_root, make(std::vector<int>(gathered.size())));
    AIT_RETURN_IF_ERROR(all.Gather(part.view(), at_root.view(), counts, Rank(root)).Wait());
    if (r == root) AIT_RETURN_IF_ERROR(at_root.Expect("gather", gathered));
    AIT_ASSIGN_OR_RETURN(auto back, make(std::vector<int>(static_cast<std::size_t>(own))));
    AIT_RETURN_IF_ERROR(all.Scatter(at_root.view(), back.view(), counts, Rank(root)).Wait());
    AIT_RETURN_IF_ERROR(back.Expect("scatter", NumbersOf(r, own)));
  }
  std::vector<int> sent;
  std::vector<int> received;
  for (int peer = 0; peer < size; ++peer) {
    sent.push_back(10 * r + peer);
    received.push_back(10 * peer + r);
  }
  AIT_ASSIGN_OR_RETURN(auto out, make(sent));
  AIT_ASSIGN_OR_RETURN(auto in, make(std::vector<int>(sent.size())));
  AIT_RETURN_IF_ERROR(all.AllToAll(out.view(), in.view()).Wait());
  AIT_RETURN_IF_ERROR(in.Expect("all-to-all", received));
  return all.Barrier().Wait();
}

template <typename T>
Status ReducesTo(const NcclRank& rank, ReduceOp op, T given, T expected) {
  AIT_ASSIGN_OR_RETURN(auto x, OnDevice<T>::Create(rank, std::vector<T>(257, given)));
  AIT_RETURN_IF_ERROR(rank.communicator->AllReduce(x.view(), op).Wait());
  return x.Expect(StrCat("all-reduce (", Name(op), ") of ", Name(kDTypeOf<T>)),
                  std::vector<T>(257, expected));
}

template <typename T>
Status ReductionsOf(const NcclRank& rank) {
  const int size = rank.communicator->size().value();
  const auto own = static_cast<T>(static_cast<float>(rank.communicator->rank().value() + 1));
  const auto value = [](int x) { return static_cast<T>(static_cast<float>(x)); };
  int product = 1;
  for (int i = 1; i <= size; ++i) product *= i;
  AIT_RETURN_IF_ERROR(ReducesTo<T>(rank, ReduceOp::kSum, own, value(size * (size + 1) / 2)));
  AIT_RETURN_IF_ERROR(ReducesTo<T>(rank, ReduceOp::kMax, own, value(size)));
  AIT_RETURN_IF_ERROR(ReducesTo<T>(rank, ReduceOp::kMin, own, value(1)));
  AIT_RETURN_IF_ERROR(ReducesTo<T>(rank, ReduceOp::kProduct, own, value(product)));
  if constexpr (IsFloatingPoint(kDTypeOf<T>)) {
    return ReducesTo<T>(rank, ReduceOp::kAverage, value(6), value(6));
  }
  return OkStatus();
}

inline Status DeviceReductions(NcclRank rank) {
  AIT_RETURN_IF_ERROR(ReductionsOf<std::uint8_t>(rank));
  AIT_RETURN_IF_ERROR(ReductionsOf<std::int8_t>(rank));
  AIT_RETURN_IF_ERROR(ReductionsOf<std::int32_t>(rank));
  AIT_RETURN_IF_ERROR(ReductionsOf<std::uint32_t>(rank));
  AIT_RETURN_IF_ERROR(ReductionsOf<std::int64_t>(rank));
  AIT_RETURN_IF_ERROR(ReductionsOf<Float16>(rank));
  AIT_RETURN_IF_ERROR(ReductionsOf<BFloat16>(rank));
  AIT_RETURN_IF_ERROR(ReductionsOf<float>(rank));
  return ReductionsOf<double>(rank);
}

/// Every rank to its neighbours on both sides, tags crossed.
inline Status DeviceMessages(NcclRank rank) {
  Communicator& all = *rank.communicator;
  const int size = all.size().value();
  const int r = all.rank().value();
  const int next = (r + 1) % size;
  const int previous = (r + size - 1) % size;
  AIT_ASSIGN_OR_RETURN(auto first, OnDevice<int>::Create(rank, NumbersOf(r, 1000)));
  AIT_ASSIGN_OR_RETURN(auto second, OnDevice<int>::Create(rank, NumbersOf(r + 50, 7)));
  AIT_ASSIGN_OR_RETURN(auto seen_first, OnDevice<int>::Create(rank, std::vector<int>(1000)));
  AIT_ASSIGN_OR_RETURN(auto seen_second, OnDevice<int>::Create(rank, std::vector<int>(7)));
  const std::vector<Work> sent = {all.Send(first.view(), Rank(next), 1),
                                  all.Send(second.view(), Rank(next), 2)};
  AIT_RETURN_IF_ERROR(all.Receive(seen_second.view(), Rank(previous), 2).Wait());
  AIT_RETURN_IF_ERROR(all.Receive(seen_first.view(), Rank(previous), 1).Wait());
  AIT_RETURN_IF_ERROR(WaitAll(sent));
  AIT_RETURN_IF_ERROR(seen_first.Expect("the first message", NumbersOf(previous, 1000)));
  AIT_RETURN_IF_ERROR(seen_second.Expect("the second message", NumbersOf(previous + 50, 7)));
  return all.Barrier().Wait();
}

/// More than may be in flight, on one buffer.
inline Status DeviceOrder(NcclRank rank) {
  AIT_ASSIGN_OR_RETURN(auto x, OnDevice<std::int64_t>::Create(rank, {1, 1, 1}));
  std::vector<Work> works;
  std::int64_t expected = 1;
  for (int i = 0; i < 40; ++i) {
    works.push_back(rank.communicator->AllReduce(x.view(), ReduceOp::kSum));
    expected *= rank.communicator->size().value();
  }
  AIT_RETURN_IF_ERROR(WaitAll(works));
  return x.Expect("a sum of sums", {expected, expected, expected});
}

/// The memory of the transport, in a group and its child; it outlives both.
inline Status DeviceMemory(NcclRank rank) {
  const MemoryHandle memory = rank.communicator->memory();
  if (memory.properties().residence != Residence::kDevice) {
    return InternalError("the memory is ", memory.properties().name, ", not a device's");
  }
  if (HostBuffer::Create(memory, 64).status().code() != StatusCode::kInvalidArgument) {
    return InternalError("a host buffer lies on the device");
  }
  AIT_ASSIGN_OR_RETURN(void* const block, memory.Allocate(1 << 20));
  AIT_ASSIGN_OR_RETURN(Stream stream, Stream::Create(rank.devices, rank.device));
  AIT_RETURN_IF_ERROR(stream.Fill(block, 1, MiB(1)));
  AIT_RETURN_IF_ERROR(stream.Wait());
  const Buffer bytes{block, 1 << 20, DType::kUInt8};
  {
    AIT_ASSIGN_OR_RETURN(const auto child, rank.communicator->Split(0, 0));
    for (Communicator* group : {rank.communicator.get(), child.get(), rank.communicator.get()}) {
      AIT_RETURN_IF_ERROR(group->AllReduce(bytes, ReduceOp::kSum).Wait());
    }
  }
  const int size = rank.communicator->size().value();
  std::vector<std::uint8_t> seen(1 << 20);
  AIT_RETURN_IF_ERROR(stream.Copy(seen.data(), block, MiB(1)));
  AIT_RETURN_IF_ERROR(stream.Wait());
  if (seen != std::vector<std::uint8_t>(1 << 20, static_cast<std::uint8_t>(size * size * size))) {
    return InternalError("the sum in registered memory is wrong");
  }
  memory.Deallocate(block, 1 << 20);
  AIT_ASSIGN_OR_RETURN(void* const again, memory.Allocate(1 << 20));
  memory.Deallocate(again, 1 << 20);
  if (again != block) return InternalError("the block that was given back was not used again");
  return rank.communicator->Barrier().Wait();
}

}  // namespace ait::testing

#endif  // AIT_TESTS_COMM_NCCL_DEVICE_CASES_H_
