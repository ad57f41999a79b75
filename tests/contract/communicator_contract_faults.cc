// SPDX-License-Identifier: Apache-2.0
// What goes wrong, and that every rank is told: bad arguments, ranks that disagree, that do not
// come, that leave; cancelling and aborting. The texts name rank, operation and label.

#include <array>
#include <limits>
#include <optional>
#include <vector>

#include "contract/communicator_contract_cases.h"

namespace ait::testing {
namespace {

using namespace std::chrono_literals;

/// Holds this rank up until the group has failed or its peer has left: a message that never comes.
Status WaitForFailure(const Group& group, Rank from) {
  std::uint8_t word = 0;
  return group->Receive(View(std::span(&word, 1)), from, /*tag=*/99).Wait();
}

Status BadArgumentsAreRefusedOnTheSpot(Group group) {
  const int size = group->size().value();
  const Rank self = group->rank();
  const Rank peer((self.value() + 1) % size);
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<float> parts(2 * ranks);
  std::vector<float> other(2 * ranks);
  std::vector<double> doubles(2 * ranks);
  std::vector<int> integers(4);
  std::vector<std::int64_t> twos(ranks, 2);
  std::vector<std::int64_t> bad_sum = twos;
  bad_sum[0] = 3;
  std::vector<std::int64_t> negative = twos;
  negative[0] = -2;
  std::vector<std::int64_t> huge(ranks, std::numeric_limits<std::int64_t>::max());
  huge[0] = 2;
  const Buffer all = View(parts);
  const Buffer one = View(other).Slice(0, 2);
  const Buffer shifted = all.Slice(1, 2);  // part of `all`, but nobody's
  Buffer bad = one;
  const auto with = [&](auto change) {
    bad = one;
    change(bad);
    return bad;
  };
  struct Refused {
    std::function<Work(Communicator::Options)> call;
    std::string_view text;
  };
  const ReduceOp sum = ReduceOp::kSum;
  using O = Communicator::Options;
  std::vector<Refused> calls = {
      {[&](O o) { return group->AllReduce(with([](Buffer& b) { b.count = -1; }), sum, o); },
       "-1 elements"},
      {[&](O o) { return group->AllReduce(with([](Buffer& b) { b.data = nullptr; }), sum, o); },
       "no address"},
      {[&](O o) {
         return group->AllReduce(
             with([](Buffer& b) { b.data = static_cast<std::byte*>(b.data) + 1; }), sum, o);
       },
       "not aligned"},
      {[&](O o) {
         return group->AllReduce(
             with([](Buffer& b) { b.count = std::numeric_limits<std::int64_t>::max() / 2; }), sum,
             o);
       },
       "64 bits"},
      {[&](O o) {
         return group->AllReduce(with([](Buffer& b) { b.dtype = static_cast<DType>(77); }), sum, o);
       },
       "dtype number 77"},
      {[&](O o) { return group->AllReduce(one, static_cast<ReduceOp>(9), o); }, "number 9"},
      {[&](O o) { return group->AllReduce(View(integers), ReduceOp::kAverage, o); }, "average"},
      {[&](O o) { return group->Broadcast(one, Rank(size), o); }, "is no rank"},
      {[&](O o) { return group->Broadcast(one, Rank(-1), o); }, "root -1"},
      {[&](O o) { return group->Gather(one, all, Rank(size), o); }, "root"},
      {[&](O o) { return group->Scatter(all, one, Rank(-1), o); }, "root -1"},
      {[&](O o) { return group->Send(one, self, 0, o); }, "this rank itself"},
      {[&](O o) { return group->Receive(one, self, 0, o); }, "this rank itself"},
      {[&](O o) { return group->Send(one, Rank(size), 0, o); }, "destination"},
      {[&](O o) { return group->Receive(one, Rank(-3), 0, o); }, "source -3"},
      {[&](O o) { return group->ReduceScatter(all, one.Slice(0, 1), sum, o); }, "parts make"},
      {[&](O o) { return group->ReduceScatter(all, View(doubles).Slice(0, 2), sum, o); },
       "float64"},
      {[&](O o) { return group->ReduceScatter(all, one, bad_sum, sum, o); }, "parts make"},
      {[&](O o) { return group->ReduceScatter(all, one, negative, sum, o); }, "-2"},
      {[&](O o) { return group->ReduceScatter(all, one.Slice(0, 1), twos, sum, o); }, "has 2"},
      {[&](O o) { return group->ReduceScatter(all, shifted, twos, sum, o); }, "overlap"},
      {[&](O o) { return group->AllGather(one, all.Slice(0, 1), o); }, "parts make"},
      {[&](O o) { return group->AllGather(one, all, std::span(twos).subspan(1), o); },
       "one per rank"},
      {[&](O o) { return group->AllGather(shifted, all, o); }, "overlap"},
      {[&](O o) { return group->AllToAll(all, View(other).Slice(0, 1), o); },
       size > 1 ? "parts make" : "itself"},
      {[&](O o) { return group->AllToAll(all, all, o); }, "overlap"},
      {[&](O o) { return group->AllToAll(all, View(other), twos, bad_sum, o); }, "parts make"},
      {[&](O o) { return group->Gather(one.Slice(0, 1), all, twos, Rank(0), o); }, "has 2"},
      {[&](O o) { return group->Scatter(all, one.Slice(0, 1), twos, Rank(0), o); }, "has 2"},
      {[&](O o) {
         o.timeout = -1ms;
         return group->Barrier(o);
       },
       "-1 ms"},
  };
  if (size > 1) {
    calls.push_back({[&](O o) { return group->AllGather(one, all, huge, o); }, "64 bits"});
    // In bounds for this rank; the peer is never asked.
    calls.push_back(
        {[&](O o) { return group->Send(with([](Buffer& b) { b.count = -1; }), peer, 0, o); },
         "-1 elements"});
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Work work = calls[i].call({.label = "bucket 3"});
    AIT_RETURN_IF_ERROR(Expect(work.done(), "it is refused at the call"));
    AIT_RETURN_IF_ERROR(Annotate(ExpectError(work.Wait(), StatusCode::kInvalidArgument,
                                             {RankText(self.value()), "bucket 3", calls[i].text}),
                                 StrCat("call ", i)));
  }
  std::int64_t x = 1;  // all ranks refused the same, so they are still in step
  AIT_RETURN_IF_ERROR(group->AllReduce(View(std::span(&x, 1)), sum).Wait());
  return Expect(x == size, "the group still works");
}

/// Runs `call` on a fresh child; every rank must be told, and name two of the things asked for.
Status ExpectMismatch(const Group& group, std::string_view what,
                      const std::function<Work(Communicator&, bool is_odd)>& call,
                      std::initializer_list<std::string_view> words) {
  AIT_ASSIGN_OR_RETURN(const Group child, group->Split(0, group->rank().value()));
  const bool is_odd = child->rank() == Rank(child->size().value() - 1);
  const auto check = [&]() -> Status {
    AIT_RETURN_IF_ERROR(
        ExpectError(call(*child, is_odd).Wait(), StatusCode::kInvalidArgument, words));
    return ExpectError(child->Barrier().Wait(), StatusCode::kAborted);
  };
  AIT_RETURN_IF_ERROR(Annotate(check(), what));
  return group->Barrier().Wait();  // the parent is whole, and all have seen the child fail
}

/// The last rank differs from the others in one field at a time.
Status RanksThatDisagreeAreAllTold(Group group) {
  const int size = group->size().value();
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<float> x(64);
  std::vector<float> y(64);
  std::vector<int> integers(64);
  const std::string last = RankText(size - 1);
  const ReduceOp sum = ReduceOp::kSum;
  AIT_RETURN_IF_ERROR(
      ExpectMismatch(group, "kind",
                     [&](Communicator& child, bool is_odd) {
                       return is_odd ? child.Broadcast(View(x), Rank(0), {.label = "weights"})
                                     : child.AllReduce(View(x), sum, {.label = "gradients"});
                     },
                     {"broadcast", "all-reduce", last, "rank", "weights", "gradients"}));
  AIT_RETURN_IF_ERROR(ExpectMismatch(group, "barrier",
                                     [&](Communicator& child, bool is_odd) {
                                       return is_odd ? child.Barrier()
                                                     : child.AllReduce(View(x), sum);
                                     },
                                     {"barrier", "all-reduce", last}));
  AIT_RETURN_IF_ERROR(ExpectMismatch(group, "reduction",
                                     [&](Communicator& child, bool is_odd) {
                                       return child.AllReduce(View(x),
                                                              is_odd ? ReduceOp::kMax : sum);
                                     },
                                     {"(sum)", "(max)", last}));
  AIT_RETURN_IF_ERROR(ExpectMismatch(group, "dtype",
                                     [&](Communicator& child, bool is_odd) {
                                       return is_odd ? child.AllReduce(View(integers), sum)
                                                     : child.AllReduce(View(x), sum);
                                     },
                                     {"float32", "int32", last}));
  AIT_RETURN_IF_ERROR(ExpectMismatch(group, "count",
                                     [&](Communicator& child, bool is_odd) {
                                       return child.AllReduce(View(x).Slice(0, is_odd ? 63 : 64),
                                                              sum);
                                     },
                                     {"64", "63", last}));
  AIT_RETURN_IF_ERROR(ExpectMismatch(group, "empty",
                                     [&](Communicator& child, bool is_odd) {
                                       return child.AllReduce(View(x).Slice(0, is_odd ? 0 : 64),
                                                              sum);
                                     },
                                     {"of 64", "of 0", last}));
  AIT_RETURN_IF_ERROR(ExpectMismatch(
      group, "root",
      [&](Communicator& child, bool is_odd) { return child.Broadcast(View(x), Rank(is_odd)); },
      {"root 0", "root 1", last}));
  AIT_RETURN_IF_ERROR(ExpectMismatch(
      group, "parts",
      [&](Communicator& child, bool is_odd) {
        std::vector<std::int64_t> counts(ranks, 1);
        if (is_odd) counts[0] = 2;
        return child.AllGather(View(y).Slice(0, 1), View(x).Slice(0, size + is_odd), counts);
      },
      {"all-gather", "[2, ", last}));
  AIT_RETURN_IF_ERROR(ExpectMismatch(group, "all-to-all",
                                     [&](Communicator& child, bool is_odd) {
                                       std::vector<std::int64_t> sent(ranks, 1);
                                       if (is_odd) sent[0] = 2;
                                       return child.AllToAll(View(x).Slice(0, size + is_odd),
                                                             View(y).Slice(0, size), sent,
                                                             std::vector<std::int64_t>(ranks, 1));
                                     },
                                     {last, "sends 2", "rank 0", "expects 1"}));
  return ExpectMismatch(
      group, "sequence",
      [&](Communicator& child, bool is_odd) {
        if (is_odd) child.Broadcast(View(x), Rank(-1)).Wait().IgnoreError();  // refused here alone
        return child.Barrier();
      },
      {"sequence 1", "sequence 2", last});
}

/// A send and a receive that do not fit tell both; collectives go on.
Status MessagesThatDoNotFitTellBoth(Group group) {
  std::vector<float> x(4);
  std::vector<int> integers(4);
  const StatusCode bad = StatusCode::kInvalidArgument;
  if (group->rank() == Rank(0)) {
    AIT_RETURN_IF_ERROR(ExpectError(group->Send(View(x), Rank(1)).Wait(), bad, {"of 4", "of 3"}));
    AIT_RETURN_IF_ERROR(
        ExpectError(group->Send(View(x), Rank(1)).Wait(), bad, {"int32", "float32"}));
  } else if (group->rank() == Rank(1)) {
    AIT_RETURN_IF_ERROR(
        ExpectError(group->Receive(View(x).Slice(0, 3), Rank(0)).Wait(), bad, {"of 4", "of 3"}));
    AIT_RETURN_IF_ERROR(
        ExpectError(group->Receive(View(integers), Rank(0)).Wait(), bad, {"int32", "float32"}));
  }
  return group->Barrier().Wait();
}

/// The last rank does not come. Those that did are told who is missing, and it is told later.
Status DeadlineNamesWhoIsMissing(Group group) {
  const int last = group->size().value() - 1;
  std::vector<float> x(100);
  AIT_RETURN_IF_ERROR(group->Barrier().Wait());
  if (group->rank() == Rank(last)) {
    WaitForFailure(group, Rank(0)).IgnoreError();
    return ExpectError(group->AllReduce(View(x), ReduceOp::kSum).Wait(), StatusCode::kAborted,
                       {"all-reduce", RankText(last)});
  }
  const Work work =
      group->AllReduce(View(x), ReduceOp::kSum, {.timeout = 1000ms, .label = "bucket 3"});
  const Work behind = group->Barrier({.label = "after bucket 3"});
  AIT_RETURN_IF_ERROR(
      ExpectError(work.Wait(), StatusCode::kDeadlineExceeded,
                  {StrCat(RankText(group->rank().value()), ":"), "all-reduce (sum) of 100 float32",
                   "bucket 3", StrCat(RankText(last), " did not come")}));
  AIT_RETURN_IF_ERROR(ExpectError(behind.Wait(), StatusCode::kAborted, {"after bucket 3"}));
  return ExpectError(group->Barrier().Wait(), StatusCode::kAborted, {RankText(last)});
}

Status MessageDeadlineNamesThePeer(Group group) {
  std::vector<float> x(3);
  if (group->rank() == Rank(0)) {
    const Work work = group->Receive(View(x), Rank(1), 5, {.timeout = 20ms, .label = "tokens"});
    AIT_RETURN_IF_ERROR(ExpectError(work.Wait(), StatusCode::kDeadlineExceeded,
                                    {"rank 0:", "rank 1 did not come", "tokens"}));
  }
  return group->Barrier().Wait();  // only a collective that fails breaks the group
}

/// Rank 0 takes back what waits for the others; then nobody can go on.
Status CancelEndsTheGroup(Group group) {
  std::vector<float> x(100);
  if (group->rank() != Rank(0)) {
    WaitForFailure(group, Rank(0)).IgnoreError();
    return ExpectError(group->AllReduce(View(x), ReduceOp::kSum).Wait(), StatusCode::kAborted);
  }
  const Work before = group->AllReduce(View(x), ReduceOp::kSum);
  const Work work = group->Barrier({.label = "the one"});
  work.Cancel();
  AIT_RETURN_IF_ERROR(ExpectError(work.Wait(), StatusCode::kCancelled, {"rank 0", "the one"}));
  AIT_RETURN_IF_ERROR(ExpectError(before.Wait(), StatusCode::kAborted, {"cancelled"}));
  return ExpectError(group->Barrier().Wait(), StatusCode::kAborted, {"cancelled"});
}

/// Cancelling what has ended does nothing.
Status CancelAfterTheEnd(Group group) {
  const Work work = group->Barrier();
  AIT_RETURN_IF_ERROR(work.Wait());
  work.Cancel();
  AIT_RETURN_IF_ERROR(work.Wait());
  return group->Barrier().Wait();
}

Status AbortTellsTheReasonToAll(Group group) {
  std::vector<float> x(100);
  const Status reason = ResourceExhaustedError("the disk is full");
  if (group->rank() == Rank(0)) {
    group->Abort(reason);
    group->Abort(InternalError("the first reason counts"));
  }
  AIT_RETURN_IF_ERROR(ExpectError(
      group->AllReduce(View(x), ReduceOp::kSum, {.label = "bucket 3"}).Wait(), StatusCode::kAborted,
      {"the disk is full", "bucket 3", RankText(group->rank().value())}));
  return ExpectError(group->Split(0, 0).status(), StatusCode::kAborted, {"the disk is full"});
}

/// The last rank leaves after the barrier: its function returns.
Status PeerThatLeavesIsNamed(Group group) {
  const int last = group->size().value() - 1;
  AIT_RETURN_IF_ERROR(group->Barrier().Wait());
  if (group->rank() == Rank(last)) return OkStatus();
  std::vector<float> x(100);
  AIT_RETURN_IF_ERROR(
      ExpectError(group->AllReduce(View(x), ReduceOp::kSum, {.label = "bucket 3"}).Wait(),
                  StatusCode::kUnavailable, {RankText(last), "bucket 3"}));
  return ExpectError(group->Barrier().Wait(), StatusCode::kAborted, {RankText(last)});
}

/// Destroying a communicator ends what it has in flight, on all ranks.
Status DestructionEndsWhatIsInFlight(Group group) {
  std::vector<float> x(100);
  if (group->rank() == Rank(0)) {
    const Work work = group->AllReduce(View(x), ReduceOp::kSum);
    const Work behind = group->Barrier();
    group.reset();
    AIT_RETURN_IF_ERROR(Expect(work.done() && behind.done(), "nothing runs after destruction"));
    AIT_RETURN_IF_ERROR(ExpectError(work.Wait(), StatusCode::kAborted, {"rank 0"}));
    return ExpectError(behind.Wait(), StatusCode::kAborted, {"rank 0"});
  }
  AIT_RETURN_IF_ERROR(
      ExpectError(WaitForFailure(group, Rank(0)), StatusCode::kUnavailable, {"rank 0"}));
  // Rank 0 had come to the all-reduce, and may have given all that the others need of it; the next
  // operation it cannot have come to.
  Status status = group->AllReduce(View(x), ReduceOp::kSum).Wait();
  if (status.ok()) status = group->Barrier().Wait();
  return ExpectError(status, StatusCode::kUnavailable, {"rank 0"});
}

}  // namespace

std::vector<ContractCase> FaultCases() {
  return {
      {"BadArgumentsAreRefusedOnTheSpot", BadArgumentsAreRefusedOnTheSpot},
      {"RanksThatDisagreeAreAllTold", RanksThatDisagreeAreAllTold, 2},
      {"MessagesThatDoNotFitTellBoth", MessagesThatDoNotFitTellBoth, 2},
      {"DeadlineNamesWhoIsMissing", DeadlineNamesWhoIsMissing, 2},
      {"MessageDeadlineNamesThePeer", MessageDeadlineNamesThePeer, 2},
      {"CancelEndsTheGroup", CancelEndsTheGroup, 2},
      {"CancelAfterTheEnd", CancelAfterTheEnd},
      {"AbortTellsTheReasonToAll", AbortTellsTheReasonToAll},
      {"PeerThatLeavesIsNamed", PeerThatLeavesIsNamed, 2},
      {"DestructionEndsWhatIsInFlight", DestructionEndsWhatIsInFlight, 2},
  };
}

}  // namespace ait::testing
