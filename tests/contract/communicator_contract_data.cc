// SPDX-License-Identifier: Apache-2.0
// What moves, and that it arrives: every collective, dtype, reduction and size against an oracle.

#include <numeric>
#include <vector>

#include "contract/communicator_contract_cases.h"

namespace ait::testing {
namespace {

constexpr std::int64_t kLarge = (1 << 16) + 1;
constexpr std::int64_t kSizes[] = {0, 1, 7, 4097, kLarge};
constexpr ReduceOp kReductions[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax,
                                    ReduceOp::kMin, ReduceOp::kProduct};

/// Part sizes that differ, with an empty part where there is more than one.
std::vector<std::int64_t> UnevenCounts(int size) {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < size; ++rank) counts.push_back(rank == size / 2 ? 0 : 3 + 10 * rank);
  if (size == 1) counts[0] = 5;
  return counts;
}

std::int64_t Total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::int64_t Offset(const std::vector<std::int64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
}

/// The rank whose part element i lies in, and the element's place there.
std::pair<int, std::int64_t> Locate(const std::vector<std::int64_t>& counts, std::int64_t i) {
  int rank = 0;
  while (i >= counts[static_cast<std::size_t>(rank)]) {
    i -= counts[static_cast<std::size_t>(rank++)];
  }
  return {rank, i};
}

template <typename T>
Fenced<T> Given(const Communicator& communicator, std::int64_t count) {
  return Fenced<T>(
      count, [rank = communicator.rank().value()](std::int64_t i) { return Element<T>(rank, i); });
}

template <typename T>
bool IsDefined(ReduceOp op) {
  return op != ReduceOp::kAverage || IsFloatingPoint(kDTypeOf<T>);
}

Status AllReduce(Group group) {
  const int size = group->size().value();
  return ForEachType(AllTypes{}, [&]<typename T>() -> Status {
    for (const ReduceOp op : kReductions) {
      if (!IsDefined<T>(op)) continue;
      for (const std::int64_t count : kSizes) {
        if (count == kLarge && op != ReduceOp::kSum) continue;  // all are cut the same way
        Fenced<T> x = Given<T>(*group, count);
        AIT_RETURN_IF_ERROR(group->AllReduce(x.view(), op).Wait());
        AIT_RETURN_IF_ERROR(x.Expect(StrCat("all-reduce (", Name(op), ")"),
                                     [&](std::int64_t i) { return Reduced<T>(op, size, i); }));
      }
    }
    return OkStatus();
  });
}

/// The sum is ((0 + 1) + 2) + …, or that of each host and so on, in bits, at every position of every slice, on every rank.
Status AllReduceInRankOrder(Group group) {
  const int size = group->size().value();
  static constexpr float kValues[] = {1e8f, 1.0f, -1e8f, 3e-3f, 0.1f, 7e7f, -1.0f};
  const auto value = [](int rank, std::int64_t i) { return kValues[(3 * rank + i) % 7]; };
  for (const std::int64_t count : {5, 9999, 70000}) {
    Fenced<float> x(count, [&](std::int64_t i) { return value(group->rank().value(), i); });
    AIT_RETURN_IF_ERROR(group->AllReduce(x.view(), ReduceOp::kSum).Wait());
    AIT_RETURN_IF_ERROR(x.Expect("all-reduce in rank order", [&](std::int64_t i) {
      return InOrder(
          size, [&](int rank) { return value(rank, i); }, [](float a, float b) { return a + b; });
    }));
  }
  return OkStatus();
}

/// 256 + 1 is no bfloat16: rounded at each rank, the ones would vanish. Likewise 2048 in float16.
Status HalfPrecisionIsRoundedOnce(Group group) {
  const auto check = [&]<typename T>(float large) -> Status {
    Fenced<T> x(
        100, [&](std::int64_t) { return static_cast<T>(group->rank() == Rank(0) ? large : 1.0f); });
    AIT_RETURN_IF_ERROR(group->AllReduce(x.view(), ReduceOp::kSum).Wait());
    const float sum = large + static_cast<float>(group->size().value() - 1);
    return x.Expect("sum in half precision", [&](std::int64_t) { return static_cast<T>(sum); });
  };
  AIT_RETURN_IF_ERROR(check.operator()<BFloat16>(256.0f));
  return check.operator()<Float16>(2048.0f);
}

Status ReduceScatterOf(const Group& group, const std::vector<std::int64_t>& counts, bool is_equal) {
  const int size = group->size().value();
  const int rank = group->rank().value();
  const std::int64_t offset = Offset(counts, rank);
  const std::int64_t own = counts[static_cast<std::size_t>(rank)];
  return ForEachType(AllTypes{}, [&]<typename T>() -> Status {
    for (const ReduceOp op : kReductions) {
      if (!IsDefined<T>(op)) continue;
      const auto expected = [&](std::int64_t i) { return Reduced<T>(op, size, offset + i); };
      Fenced<T> input = Given<T>(*group, Total(counts));
      Fenced<T> output(own);
      AIT_RETURN_IF_ERROR((is_equal ? group->ReduceScatter(input.view(), output.view(), op)
                                    : group->ReduceScatter(input.view(), output.view(), counts, op))
                              .Wait());
      AIT_RETURN_IF_ERROR(output.Expect("reduce-scatter", expected));
      AIT_RETURN_IF_ERROR(input.Expect("the input of reduce-scatter",
                                       [&](std::int64_t i) { return Element<T>(rank, i); }));
      const Buffer part = input.view().Slice(offset, own);
      AIT_RETURN_IF_ERROR(group->ReduceScatter(input.view(), part, counts, op).Wait());
      AIT_RETURN_IF_ERROR(input.Expect("reduce-scatter in place", [&](std::int64_t i) {
        return i >= offset && i < offset + own ? expected(i - offset) : Element<T>(rank, i);
      }));
    }
    return OkStatus();
  });
}

Status ReduceScatter(Group group) {
  const auto size = static_cast<std::size_t>(group->size().value());
  for (const std::int64_t count : {0, 1, 7, 4097}) {
    AIT_RETURN_IF_ERROR(ReduceScatterOf(group, std::vector<std::int64_t>(size, count), true));
  }
  return ReduceScatterOf(group, UnevenCounts(group->size().value()), false);
}

Status AllGatherOf(const Group& group, const std::vector<std::int64_t>& counts, bool is_equal) {
  const int rank = group->rank().value();
  const std::int64_t own = counts[static_cast<std::size_t>(rank)];
  return ForEachType(AllTypes{}, [&]<typename T>() -> Status {
    const auto expected = [&](std::int64_t i) {
      const auto [from, place] = Locate(counts, i);
      return Element<T>(from, place);
    };
    const Fenced<T> input = Given<T>(*group, own);
    Fenced<T> output(Total(counts));
    AIT_RETURN_IF_ERROR((is_equal ? group->AllGather(input.view(), output.view())
                                  : group->AllGather(input.view(), output.view(), counts))
                            .Wait());
    AIT_RETURN_IF_ERROR(output.Expect("all-gather", expected));
    const std::int64_t offset = Offset(counts, rank);
    Fenced<T> both(Total(counts));
    for (std::int64_t i = 0; i < own; ++i) both.Set(offset + i, Element<T>(rank, i));
    AIT_RETURN_IF_ERROR(
        group->AllGather(both.view().Slice(offset, own), both.view(), counts).Wait());
    return both.Expect("all-gather in place", expected);
  });
}

Status AllGather(Group group) {
  const auto size = static_cast<std::size_t>(group->size().value());
  for (const std::int64_t count : {0, 1, 7, 4097}) {
    AIT_RETURN_IF_ERROR(AllGatherOf(group, std::vector<std::int64_t>(size, count), true));
  }
  return AllGatherOf(group, UnevenCounts(group->size().value()), false);
}

/// Rank a sends (a * 3 + b * 5) % 11 elements to rank b, or `equal` ones.
Status AllToAllOf(const Group& group, std::int64_t equal) {
  const int size = group->size().value();
  const int rank = group->rank().value();
  const auto count = [&](int from, int to) {
    return equal >= 0 ? equal : (from * 3 + to * 5) % 11;
  };
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> received;
  for (int peer = 0; peer < size; ++peer) {
    sent.push_back(count(rank, peer));
    received.push_back(count(peer, rank));
  }
  return ForEachType(AllTypes{}, [&]<typename T>() -> Status {
    const Fenced<T> input = Given<T>(*group, Total(sent));
    Fenced<T> output(Total(received));
    AIT_RETURN_IF_ERROR((equal >= 0 ? group->AllToAll(input.view(), output.view())
                                    : group->AllToAll(input.view(), output.view(), sent, received))
                            .Wait());
    return output.Expect("all-to-all", [&](std::int64_t i) {
      const auto [from, place] = Locate(received, i);
      std::int64_t before = 0;
      for (int to = 0; to < rank; ++to) before += count(from, to);
      return Element<T>(from, before + place);
    });
  });
}

Status AllToAll(Group group) {
  for (const std::int64_t equal : {0, 1, 7, 5000, -1}) {
    AIT_RETURN_IF_ERROR(AllToAllOf(group, equal));
  }
  return OkStatus();
}

Status BroadcastFrom(const Group& group, int root) {
  return ForEachType(AllTypes{}, [&]<typename T>() -> Status {
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, root == 0 ? kLarge : 1000}) {
      Fenced<T> x = Given<T>(*group, count);
      AIT_RETURN_IF_ERROR(group->Broadcast(x.view(), Rank(root)).Wait());
      AIT_RETURN_IF_ERROR(
          x.Expect("broadcast", [&](std::int64_t i) { return Element<T>(root, i); }));
    }
    return OkStatus();
  });
}

Status Broadcast(Group group) {
  for (int root = 0; root < group->size().value(); ++root) {
    AIT_RETURN_IF_ERROR(BroadcastFrom(group, root));
  }
  return OkStatus();
}

Status GatherOf(const Group& group, const std::vector<std::int64_t>& counts, bool is_equal,
                Rank root) {
  const int rank = group->rank().value();
  const std::int64_t own = counts[static_cast<std::size_t>(rank)];
  const bool is_root = group->rank() == root;
  const std::int64_t offset = Offset(counts, rank);
  return ForEachType(SomeTypes{}, [&]<typename T>() -> Status {
    const auto expected = [&](std::int64_t i) {
      const auto [from, place] = Locate(counts, i);
      return Element<T>(from, place);
    };
    const Fenced<T> input = Given<T>(*group, own);
    Fenced<T> output(is_root ? Total(counts) : 0);
    AIT_RETURN_IF_ERROR((is_equal ? group->Gather(input.view(), output.view(), root)
                                  : group->Gather(input.view(), output.view(), counts, root))
                            .Wait());
    AIT_RETURN_IF_ERROR(output.Expect("gather", expected));
    Fenced<T> both(is_root ? Total(counts) : own);  // in place at the root
    const ConstBuffer part = is_root ? ConstBuffer(both.view().Slice(offset, own)) : both.view();
    for (std::int64_t i = 0; i < own; ++i) {
      both.Set(i + (is_root ? offset : 0), Element<T>(rank, i));
    }
    AIT_RETURN_IF_ERROR(group->Gather(part, both.view(), counts, root).Wait());
    return is_root ? both.Expect("gather in place", expected) : OkStatus();
  });
}

Status ScatterOf(const Group& group, const std::vector<std::int64_t>& counts, bool is_equal,
                 Rank root) {
  const int rank = group->rank().value();
  const std::int64_t own = counts[static_cast<std::size_t>(rank)];
  const bool is_root = group->rank() == root;
  const std::int64_t offset = Offset(counts, rank);
  return ForEachType(SomeTypes{}, [&]<typename T>() -> Status {
    const auto expected = [&](std::int64_t i) { return Element<T>(root.value(), offset + i); };
    Fenced<T> input = Given<T>(*group, is_root ? Total(counts) : 0);
    Fenced<T> output(own);
    AIT_RETURN_IF_ERROR((is_equal ? group->Scatter(input.view(), output.view(), root)
                                  : group->Scatter(input.view(), output.view(), counts, root))
                            .Wait());
    AIT_RETURN_IF_ERROR(output.Expect("scatter", expected));
    const Buffer part = is_root ? input.view().Slice(offset, own) : output.view();
    AIT_RETURN_IF_ERROR(group->Scatter(input.view(), part, counts, root).Wait());
    AIT_RETURN_IF_ERROR(output.Expect("scatter in place", expected));
    return input.Expect("the input of scatter",
                        [&](std::int64_t i) { return Element<T>(rank, i); });
  });
}

Status GatherAndScatter(Group group) {
  const int size = group->size().value();
  for (int root = 0; root < size; ++root) {
    for (const std::int64_t count : {0, 1, 7, 5000}) {
      const std::vector<std::int64_t> counts(static_cast<std::size_t>(size), count);
      AIT_RETURN_IF_ERROR(GatherOf(group, counts, true, Rank(root)));
      AIT_RETURN_IF_ERROR(ScatterOf(group, counts, true, Rank(root)));
    }
    AIT_RETURN_IF_ERROR(GatherOf(group, UnevenCounts(size), false, Rank(root)));
    AIT_RETURN_IF_ERROR(ScatterOf(group, UnevenCounts(size), false, Rank(root)));
  }
  return OkStatus();
}

/// A ring of messages: every rank sends to the next.
Status SendAndReceive(Group group) {
  const int size = group->size().value();
  const int rank = group->rank().value();
  const int previous = (rank + size - 1) % size;
  return ForEachType(AllTypes{}, [&]<typename T>() -> Status {
    for (const std::int64_t count : kSizes) {
      const Fenced<T> out = Given<T>(*group, count);
      Fenced<T> in(count);
      const std::vector<Work> works = {group->Send(out.view(), Rank((rank + 1) % size), 3),
                                       group->Receive(in.view(), Rank(previous), 3)};
      AIT_RETURN_IF_ERROR(WaitAll(works));
      AIT_RETURN_IF_ERROR(
          in.Expect("message", [&](std::int64_t i) { return Element<T>(previous, i); }));
    }
    return OkStatus();
  });
}

/// Tags may be received in another order; messages of one tag keep theirs.
Status MessagesOfOneTagKeepTheirOrder(Group group) {
  const int size = group->size().value();
  const int rank = group->rank().value();
  const int previous = (rank + size - 1) % size;
  std::vector<int> out(6);
  std::vector<int> in(6);
  const auto element = [](std::vector<int>& values, int i) {
    return View(std::span(values).subspan(static_cast<std::size_t>(i), 1));
  };
  const auto tag = [](int i) { return static_cast<std::uint32_t>(i % 2); };
  std::vector<Work> works;
  for (int i = 0; i < 6; ++i) {
    out[static_cast<std::size_t>(i)] = 100 * rank + i;
    works.push_back(group->Send(element(out, i), Rank((rank + 1) % size), tag(i)));
  }
  for (const int i : {1, 3, 5, 0, 2, 4}) {
    works.push_back(group->Receive(element(in, i), Rank(previous), tag(i)));
  }
  AIT_RETURN_IF_ERROR(WaitAll(works));
  std::vector<int> expected(6);
  std::iota(expected.begin(), expected.end(), 100 * previous);
  return Expect(in == expected, "messages of a tag keep their order");
}

/// Rank 0 waits in a collective for a rank that first wants its message.
Status MessagesDoNotWaitForCollectives(Group group) {
  int x = 1;
  int message = 42;
  if (group->rank() == Rank(0)) {
    const Work work = group->AllReduce(View(std::span(&x, 1)), ReduceOp::kSum);
    for (int peer = 1; peer < group->size().value(); ++peer) {
      int seen = 0;
      AIT_RETURN_IF_ERROR(group->Receive(View(std::span(&seen, 1)), Rank(peer)).Wait());
      AIT_RETURN_IF_ERROR(Expect(seen == 42, "the message arrives"));
    }
    AIT_RETURN_IF_ERROR(work.Wait());
  } else {
    AIT_RETURN_IF_ERROR(group->Send(View(std::span(&message, 1)), Rank(0)).Wait());
    AIT_RETURN_IF_ERROR(group->AllReduce(View(std::span(&x, 1)), ReduceOp::kSum).Wait());
  }
  return Expect(x == group->size().value(), "the all-reduce is right");
}

/// Many in flight, of different kinds and sizes, waited for from the last to the first.
Status ManyInFlight(Group group) {
  const int size = group->size().value();
  constexpr std::int64_t kCount = 32;
  std::vector<Fenced<float>> buffers;
  for (std::int64_t i = 0; i < kCount; ++i) buffers.push_back(Given<float>(*group, i * 100));
  std::vector<Work> works;
  for (std::int64_t i = 0; i < kCount; ++i) {
    Fenced<float>& x = buffers[static_cast<std::size_t>(i)];
    works.push_back(i % 3 == 0 ? group->Broadcast(x.view(), Rank(static_cast<int>(i) % size))
                               : group->AllReduce(x.view(), ReduceOp::kSum));
  }
  for (std::int64_t i = kCount - 1; i >= 0; --i) {
    AIT_RETURN_IF_ERROR(works[static_cast<std::size_t>(i)].Wait());
    AIT_RETURN_IF_ERROR(
        buffers[static_cast<std::size_t>(i)].Expect("one of many", [&](std::int64_t k) {
          return i % 3 == 0 ? Element<float>(static_cast<int>(i) % size, k)
                            : Reduced<float>(ReduceOp::kSum, size, k);
        }));
  }
  return OkStatus();
}

/// Operations on one buffer run in the order in which they were issued.
Status OperationsRunInOrder(Group group) {
  const int size = group->size().value();
  std::vector<std::int64_t> x(5000, 1);
  std::vector<Work> works;
  for (int i = 0; i < 4; ++i) works.push_back(group->AllReduce(View(x), ReduceOp::kSum));
  AIT_RETURN_IF_ERROR(WaitAll(works));
  const std::int64_t expected = std::int64_t{size} * size * size * size;
  return Expect(x == std::vector<std::int64_t>(5000, expected), "each saw the sum of the last");
}

}  // namespace

std::vector<ContractCase> DataCases() {
  return {
      {"AllReduce", AllReduce},
      {"AllReduceInRankOrder", AllReduceInRankOrder},
      {"HalfPrecisionIsRoundedOnce", HalfPrecisionIsRoundedOnce},
      {"ReduceScatter", ReduceScatter},
      {"AllGather", AllGather},
      {"AllToAll", AllToAll},
      {"Broadcast", Broadcast},
      {"GatherAndScatter", GatherAndScatter},
      {"SendAndReceive", SendAndReceive, 2},
      {"MessagesOfOneTagKeepTheirOrder", MessagesOfOneTagKeepTheirOrder, 2},
      {"MessagesDoNotWaitForCollectives", MessagesDoNotWaitForCollectives, 2},
      {"ManyInFlight", ManyInFlight},
      {"OperationsRunInOrder", OperationsRunInOrder},
  };
}

}  // namespace ait::testing
