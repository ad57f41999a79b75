// SPDX-License-Identifier: Apache-2.0
// How ranks and operations are held together: order, barriers, handles, and groups within groups.

#include <future>
#include <vector>

#include "contract/communicator_contract_cases.h"

namespace ait::testing {
namespace {

/// The sum of `value` over the group, by one all-reduce.
StatusOr<std::int64_t> Sum(const Group& group, std::int64_t value) {
  AIT_RETURN_IF_ERROR(group->AllReduce(View(std::span(&value, 1)), ReduceOp::kSum).Wait());
  return value;
}

/// Error unless the sum over the group is `expected`.
Status ExpectSum(const Group& group, std::int64_t value, std::int64_t expected) {
  AIT_ASSIGN_OR_RETURN(const std::int64_t sum, Sum(group, value));
  if (sum == expected) return OkStatus();
  return InternalError("the sum is ", sum, " and not ", expected);
}

/// Rank 0 comes last, after it heard that the others came and have not passed.
Status BarrierWaitsForAll(Group group) {
  char word = 0;
  if (group->rank() != Rank(0)) {
    const Work barrier = group->Barrier();
    AIT_RETURN_IF_ERROR(Expect(!barrier.done(), "nobody passes before rank 0 has come"));
    AIT_RETURN_IF_ERROR(
        group->Send(View(std::span(reinterpret_cast<std::uint8_t*>(&word), 1)), Rank(0)).Wait());
    return barrier.Wait();
  }
  for (int peer = 1; peer < group->size().value(); ++peer) {
    AIT_RETURN_IF_ERROR(
        group->Receive(View(std::span(reinterpret_cast<std::uint8_t*>(&word), 1)), Rank(peer))
            .Wait());
  }
  return group->Barrier().Wait();
}

/// Waiting with a deadline gives up the wait, not the operation.
Status WaitWithDeadlineGoesOn(Group group) {
  std::int64_t x = 1;
  std::uint8_t word = 0;
  if (group->rank() == Rank(0)) {
    const Work work = group->AllReduce(View(std::span(&x, 1)), ReduceOp::kSum);
    AIT_RETURN_IF_ERROR(ExpectError(work.Wait(Deadline::After(std::chrono::milliseconds(5))),
                                    StatusCode::kDeadlineExceeded));
    AIT_RETURN_IF_ERROR(Expect(!work.done(), "it goes on"));
    for (int peer = 1; peer < group->size().value(); ++peer) {
      AIT_RETURN_IF_ERROR(group->Send(View(std::span(&word, 1)), Rank(peer)).Wait());
    }
    AIT_RETURN_IF_ERROR(work.Wait());
  } else {
    AIT_RETURN_IF_ERROR(group->Receive(View(std::span(&word, 1)), Rank(0)).Wait());
    AIT_RETURN_IF_ERROR(group->AllReduce(View(std::span(&x, 1)), ReduceOp::kSum).Wait());
  }
  return Expect(x == group->size().value(), "the sum is right");
}

Status HandlesTellTimesAndCallBack(Group group) {
  std::vector<float> x(1000, 1.0f);
  std::promise<Status> told;
  const Work work = group->AllReduce(View(x), ReduceOp::kSum);
  work.Then([&](const Status& status) { told.set_value(status); });
  const Work copy = work;
  AIT_RETURN_IF_ERROR(copy.Wait());
  AIT_RETURN_IF_ERROR(told.get_future().get());
  AIT_RETURN_IF_ERROR(Expect(work.done(), "all copies are the same operation"));
  const WorkTimes times = work.times();
  return Expect(times.issued != Time{} && times.issued <= times.finished &&
                    (times.started == Time{} ||
                     (times.issued <= times.started && times.started <= times.finished)),
                "issued, started and finished come in this order");
}

/// Even and odd ranks, in reverse order.
Status SplitByColorAndKey(Group group) {
  const int size = group->size().value();
  const int rank = group->rank().value();
  const int color = rank % 2;
  AIT_ASSIGN_OR_RETURN(const Group child, group->Split(color, -rank));
  const int members = (size + 1 - color) / 2;
  AIT_RETURN_IF_ERROR(Expect(child->size() == WorldSize(members), "the size of the child"));
  AIT_RETURN_IF_ERROR(
      Expect(child->rank() == Rank(members - 1 - rank / 2), "the order of the child"));
  AIT_RETURN_IF_ERROR(Expect(child->transport_name() == group->transport_name(), "its transport"));
  std::vector<int> ranks(static_cast<std::size_t>(members));
  AIT_RETURN_IF_ERROR(child->AllGather(View(std::span(&rank, 1)), View(ranks)).Wait());
  for (int i = 0; i < members; ++i) {
    AIT_RETURN_IF_ERROR(Expect(ranks[static_cast<std::size_t>(i)] == 2 * (members - 1 - i) + color,
                               "the child gathers in its own order"));
  }
  return ExpectSum(group, 1, size);
}

/// Equal keys keep the order of ranks; children have children; the youngest works to the end.
Status SplitOfSplit(Group group) {
  const int size = group->size().value();
  const int rank = group->rank().value();
  AIT_ASSIGN_OR_RETURN(Group child, group->Split(0, 0));
  AIT_RETURN_IF_ERROR(Expect(child->rank() == group->rank(), "equal keys keep the order"));
  AIT_ASSIGN_OR_RETURN(const Group grandchild, child->Split(rank < size / 2 ? 5 : 9, rank));
  AIT_RETURN_IF_ERROR(child->Barrier().Wait());
  child.reset();
  const int half = rank < size / 2 ? size / 2 : size - size / 2;
  AIT_RETURN_IF_ERROR(ExpectSum(grandchild, 1, half));
  return ExpectSum(group, 1, size);
}

/// Rank 0 takes part in the call and in no group.
Status SplitWithoutSome(Group group) {
  const bool is_out = group->rank() == Rank(0);
  AIT_ASSIGN_OR_RETURN(const Group child, group->Split(is_out ? -1 : 3, 0));
  AIT_RETURN_IF_ERROR(Expect((child == nullptr) == is_out, "a negative color gives no group"));
  if (child != nullptr) AIT_RETURN_IF_ERROR(ExpectSum(child, 1, group->size().value() - 1));
  AIT_ASSIGN_OR_RETURN(const Group nobody, group->Split(-7, 0));
  AIT_RETURN_IF_ERROR(Expect(nobody == nullptr, "all may stay out"));
  return ExpectSum(group, 1, group->size().value());
}

/// Parent and child at the same time, in another order on every second rank.
Status ParentAndChildAtOnce(Group group) {
  const int size = group->size().value();
  AIT_ASSIGN_OR_RETURN(const Group child, group->Split(0, group->rank().value()));
  for (int round = 0; round < 20; ++round) {
    std::vector<std::int64_t> a(1000, 1);
    std::vector<std::int64_t> b(1000, 2);
    std::vector<Work> works;
    const auto parent_call = [&] { works.push_back(group->AllReduce(View(a), ReduceOp::kSum)); };
    const auto child_call = [&] { works.push_back(child->AllReduce(View(b), ReduceOp::kSum)); };
    if (group->rank().value() % 2 == 0) {
      parent_call();
      AIT_RETURN_IF_ERROR(works[0].Wait());
      child_call();
    } else {
      child_call();
      parent_call();
    }
    AIT_RETURN_IF_ERROR(WaitAll(works));
    AIT_RETURN_IF_ERROR(Expect(a == std::vector<std::int64_t>(1000, size), "the parent's sum"));
    AIT_RETURN_IF_ERROR(Expect(b == std::vector<std::int64_t>(1000, 2 * size), "the child's sum"));
  }
  return OkStatus();
}

/// A child that fails leaves its parent and its sister alone.
Status ErrorsStayInTheirGroup(Group group) {
  const int size = group->size().value();
  AIT_ASSIGN_OR_RETURN(const Group child, group->Split(0, 0));
  AIT_ASSIGN_OR_RETURN(const Group sister, group->Split(0, 0));
  if (group->rank() == Rank(0)) child->Abort(UnavailableError("the child is tired"));
  AIT_RETURN_IF_ERROR(
      ExpectError(child->Barrier().Wait(), StatusCode::kAborted, {"the child is tired"}));
  AIT_RETURN_IF_ERROR(ExpectSum(sister, 1, size));
  return ExpectSum(group, 1, size);
}

/// What a callback holds: the last reference to a communicator, which it drops.
struct Dropper {
  Dropper(const Work& work, Group last) {
    work.Then([held = std::make_shared<Group>(std::move(last)), told = over](const Status&) {
      held->reset();
      told->set_value();
    });
  }
  Status Await() const {
    const auto state = over->get_future().wait_for(kContractTimeout / 2);
    return Expect(state == std::future_status::ready, "the callback comes to its end");
  }
  std::shared_ptr<std::promise<void>> over = std::make_shared<std::promise<void>>();
};

/// On the threads of the transport that end a message and a collective. All but rank 0 are there
/// early, so that their callbacks do not run at once.
Status MayBeDroppedInACallback(Group group) {
  const int size = group->size().value();
  std::uint8_t word = 0;
  const Buffer view = View(std::span(&word, 1));
  AIT_ASSIGN_OR_RETURN(Group messages, group->Split(0, 0));
  AIT_ASSIGN_OR_RETURN(Group collectives, group->Split(0, 0));
  if (group->rank() == Rank(0)) {
    AIT_RETURN_IF_ERROR(group->Barrier().Wait());
    for (int peer = 1; peer < size; ++peer) {
      // The peer may be gone before this rank knows that it has the message.
      messages->Send(view, Rank(peer)).Wait().IgnoreError();
    }
    collectives->Barrier().Wait().IgnoreError();
  } else {
    const Work message = messages->Receive(view, Rank(0));
    const Dropper first(message, std::move(messages));
    const Work collective = collectives->Barrier();
    const Dropper second(collective, std::move(collectives));
    AIT_RETURN_IF_ERROR(group->Barrier().Wait());
    AIT_RETURN_IF_ERROR(first.Await());
    AIT_RETURN_IF_ERROR(second.Await());
  }
  return ExpectSum(group, 1, size);
}

}  // namespace

std::vector<ContractCase> GroupCases() {
  return {
      {"BarrierWaitsForAll", BarrierWaitsForAll},
      {"WaitWithDeadlineGoesOn", WaitWithDeadlineGoesOn, 2},
      {"HandlesTellTimesAndCallBack", HandlesTellTimesAndCallBack},
      {"SplitByColorAndKey", SplitByColorAndKey},
      {"SplitOfSplit", SplitOfSplit},
      {"SplitWithoutSome", SplitWithoutSome, 2},
      {"ParentAndChildAtOnce", ParentAndChildAtOnce},
      {"ErrorsStayInTheirGroup", ErrorsStayInTheirGroup},
      {"MayBeDroppedInACallback", MayBeDroppedInACallback, 2},
  };
}

}  // namespace ait::testing
