// SPDX-License-Identifier: Apache-2.0
// A group that breaks and goes on with those who are left; aborts from another thread; ranks that
// leave in any order. A transport that cannot make a group of survivors says so, with Unimplemented.

#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "contract/communicator_contract_cases.h"

namespace ait::testing {
namespace {

using namespace std::chrono_literals;

/// Holds this rank up until the group has failed: a barrier that not all ranks come to.
Status WaitForFailure(const Group& group) { return group->Barrier({.label = "holdup"}).Wait(); }

/// The group of those who are left; nullptr if the transport cannot make one.
StatusOr<Group> Rebuild(const Group& group, std::chrono::milliseconds timeout = 30s) {
  StatusOr<Group> left = group->Survivors({.timeout = timeout});
  if (left.status().code() != StatusCode::kUnimplemented) return left;
  AIT_RETURN_IF_ERROR(ExpectError(left.status(), StatusCode::kUnimplemented,
                                  {group->transport_name(), "start the run anew"}));
  return Group();
}

/// All operations work in `left`, whose rank r was rank `members[r]` before.
Status ExpectWhole(Group left, Rank before, const std::vector<int>& members) {
  const int size = static_cast<int>(members.size());
  AIT_RETURN_IF_ERROR(Expect(left->size() == WorldSize(size), "the size is that of the survivors"));
  const auto rank = static_cast<std::size_t>(left->rank().value());
  AIT_RETURN_IF_ERROR(Expect(members[rank] == before.value(), "ranks keep their order"));
  const int sum = std::accumulate(members.begin(), members.end(), 0);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::int64_t> x(1000, before.value());
    AIT_RETURN_IF_ERROR(left->AllReduce(View(x), ReduceOp::kSum).Wait());
    for (const std::int64_t value : x)
      AIT_RETURN_IF_ERROR(Expect(value == sum, "the sum is that of the survivors"));
  }
  std::vector<std::int64_t> all(members.size());
  const std::vector<std::int64_t> own(1, before.value());
  AIT_RETURN_IF_ERROR(left->AllGather(View(own), View(all)).Wait());
  for (std::size_t i = 0; i < members.size(); ++i)
    AIT_RETURN_IF_ERROR(Expect(all[i] == members[i], "the parts come in the order of the ranks"));
  AIT_ASSIGN_OR_RETURN(const Group half, left->Split(left->rank().value() % 2, 0));
  return half->Barrier().Wait();
}

std::vector<int> UpTo(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// The one before the last leaves; the others go on, and then one more leaves.
Status SurvivorsGoOn(Group group) {
  const int size = group->size().value();
  const Rank self = group->rank();
  const int victim = size - 2;
  AIT_RETURN_IF_ERROR(group->Barrier().Wait());
  if (self == Rank(victim)) return OkStatus();
  AIT_RETURN_IF_ERROR(
      ExpectError(WaitForFailure(group), StatusCode::kUnavailable, {RankText(victim)}));
  AIT_ASSIGN_OR_RETURN(Group left, Rebuild(group));
  if (left == nullptr) return OkStatus();
  std::vector<int> members = UpTo(size);
  members.erase(members.begin() + victim);
  AIT_RETURN_IF_ERROR(ExpectWhole(left, self, members));
  AIT_RETURN_IF_ERROR(
      ExpectError(group->Barrier().Wait(), StatusCode::kAborted, {RankText(victim)}));
  // The group of the survivors may break in its turn.
  if (left->size() < WorldSize(2) || self == Rank(size - 1)) return OkStatus();
  WaitForFailure(left).IgnoreError();
  AIT_ASSIGN_OR_RETURN(const Group again, Rebuild(left));
  members.pop_back();
  return ExpectWhole(again, self, members);
}

/// The last rank leaves, and while the others ask for the survivors, one more does.
Status ASecondDeathDuringTheRebuild(Group group) {
  const int size = group->size().value();
  const Rank self = group->rank();
  AIT_RETURN_IF_ERROR(group->Barrier().Wait());
  if (self == Rank(size - 1)) return OkStatus();
  WaitForFailure(group).IgnoreError();
  if (self == Rank(size - 2)) {
    std::this_thread::sleep_for(200ms);  // the others wait by now
    return OkStatus();
  }
  AIT_ASSIGN_OR_RETURN(const Group left, Rebuild(group));
  if (left == nullptr) return OkStatus();
  return ExpectWhole(left, self, UpTo(size - 2));
}

/// A rank that lives and does not call is named.
Status SurvivorsNameWhoDoesNotCall(Group group) {
  const int size = group->size().value();
  const Rank self = group->rank();
  const bool leaves = self == Rank(size - 1);
  AIT_ASSIGN_OR_RETURN(const Group side, group->Split(leaves ? -1 : 0, 0));
  AIT_RETURN_IF_ERROR(group->Barrier().Wait());  // all have it
  if (leaves) return OkStatus();
  WaitForFailure(group).IgnoreError();
  if (self == Rank(size - 2)) return side->Barrier().Wait();  // stays until the others were told
  const StatusOr<Group> left = Rebuild(group, 500ms);
  const bool can = !left.ok() || *left != nullptr;
  const Status told =
      can ? ExpectError(left.status(), StatusCode::kDeadlineExceeded, {StrCat(size - 2)})
          : OkStatus();
  AIT_RETURN_IF_ERROR(side->Barrier().Wait());
  return told;
}

/// Nobody has left: an aborted group is made anew with all of its ranks.
Status AnAbortedGroupIsRebuilt(Group group) {
  const int size = group->size().value();
  if (group->rank() == Rank(size - 1)) group->Abort(ResourceExhaustedError("the disk is full"));
  AIT_RETURN_IF_ERROR(
      ExpectError(WaitForFailure(group), StatusCode::kAborted, {"the disk is full"}));
  AIT_ASSIGN_OR_RETURN(const Group again, Rebuild(group));
  return again == nullptr ? OkStatus() : ExpectWhole(again, group->rank(), UpTo(size));
}

/// Ranks wait for one that does not come, and one of them aborts from another thread.
Status AbortFromAnotherThreadFreesAllWaiters(Group group) {
  const int size = group->size().value();
  std::vector<float> x(100);
  std::vector<float> y(4);
  AIT_RETURN_IF_ERROR(group->Barrier().Wait());
  const bool is_last = group->rank() == Rank(size - 1);
  Work message;
  if (!is_last) message = group->Receive(View(y), Rank(size - 1), 5);
  std::thread aborting;
  if (group->rank() == Rank(0)) {
    aborting = std::thread([&] {
      std::this_thread::sleep_for(100ms);
      group->Abort(InternalError("the watchdog bit"));
    });
  }
  Status status;
  if (is_last) {
    // Comes when the group is over: whatever is waited for, somebody has freed the others.
    std::this_thread::sleep_for(300ms);
    status = group->AllReduce(View(x), ReduceOp::kSum).Wait();
  } else {
    const Work first = group->AllReduce(View(x), ReduceOp::kSum, {.label = "bucket 3"});
    const Work second = group->Barrier({.label = "behind"});
    status = first.Wait();
    const Status behind = second.Wait();
    if (status.code() == StatusCode::kAborted) {
      status = ExpectError(behind, StatusCode::kAborted, {"the watchdog bit", "behind"});
      if (status.ok()) status = ExpectError(message.Wait(), StatusCode::kAborted);
      if (status.ok()) status = ExpectError(first.Wait(), StatusCode::kAborted, {"bucket 3"});
      if (status.ok()) status = first.Wait();
    }
  }
  if (aborting.joinable()) aborting.join();
  return ExpectError(status, StatusCode::kAborted, {"the watchdog bit"});
}

/// Ranks drop groups in any order; nobody waits for anybody, and the parent stays whole.
Status RanksLeaveInAnyOrder(Group group) {
  const int size = group->size().value();
  const int self = group->rank().value();
  for (int round = 0; round < 3; ++round) {
    AIT_ASSIGN_OR_RETURN(Group child, group->Split(0, 0));
    std::vector<float> x(64, 1.0f);
    AIT_RETURN_IF_ERROR(child->AllReduce(View(x), ReduceOp::kSum).Wait());
    const int turn = round == 0 ? self : round == 1 ? size - 1 - self : (self * 5 + 2) % size;
    std::this_thread::sleep_for(3ms * turn);
    child.reset();
  }
  std::vector<float> x(64, 1.0f);
  AIT_RETURN_IF_ERROR(group->AllReduce(View(x), ReduceOp::kSum).Wait());
  return Expect(x[63] == static_cast<float>(size), "the sum in the parent");
}

}  // namespace

std::vector<ContractCase> SurvivorCases() {
  return {
      {"SurvivorsGoOn", SurvivorsGoOn, 3},
      {"ASecondDeathDuringTheRebuild", ASecondDeathDuringTheRebuild, 3},
      {"SurvivorsNameWhoDoesNotCall", SurvivorsNameWhoDoesNotCall, 3},
      {"AnAbortedGroupIsRebuilt", AnAbortedGroupIsRebuilt, 2},
      {"AbortFromAnotherThreadFreesAllWaiters", AbortFromAnotherThreadFreesAllWaiters, 2},
      {"RanksLeaveInAnyOrder", RanksLeaveInAnyOrder, 2},
  };
}

}  // namespace ait::testing
