// SPDX-License-Identifier: Apache-2.0
#include "comm/survivors.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>
#include <utility>

#include "comm/operation_compare.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPause{10};
// How long after a failure a death is waited for that explains it.
constexpr milliseconds kDeathNotice{1000};

bool Contains(const std::vector<Rank>& ranks, Rank rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

std::string SurvivorAgreement::Key(std::string_view what) const {
  return StrCat("survive/", options_.name, "/", attempt_, "/", what);
}

std::string SurvivorAgreement::Key(std::string_view what, int rank) const {
  return StrCat(Key(what), "/", rank);
}

StatusOr<std::vector<bool>> SurvivorAgreement::Gone() const {
  const std::vector<Rank> departed = options_.store->departed();
  std::vector<bool> gone;
  for (std::size_t rank = 0; rank < options_.members.size(); ++rank) {
    bool is_gone = Contains(departed, options_.members[rank]);
    if (!is_gone && options_.has_left != nullptr) {
      AIT_ASSIGN_OR_RETURN(is_gone, options_.has_left(Rank(static_cast<int>(rank))));
    }
    gone.push_back(is_gone);
  }
  return gone;
}

StatusOr<std::vector<Rank>> SurvivorAgreement::Run(const Build& build, Deadline deadline) {
  const auto try_all = [&]() -> StatusOr<std::vector<Rank>> {
    while (true) {
      AIT_ASSIGN_OR_RETURN(const std::vector<Rank> members, Decide(deadline));
      if (!Contains(members, options_.rank)) {
        return AbortedError("the other survivors have gone on without this rank");
      }
      const Status built = build(members, attempt_, deadline);
      AIT_ASSIGN_OR_RETURN(const bool done, Commit(members, built, deadline));
      ++attempt_;
      if (done) return members;
    }
  };
  StatusOr<std::vector<Rank>> members = try_all();
  if (members.ok()) return members;
  const std::string what =
      StrCat("rank ", options_.rank, ": the survivors of group ", options_.name);
  if (members.status().code() == StatusCode::kUnavailable) {
    return Annotate(members.status(),
                    StrCat(what,
                           " cannot find each other without rank 0 of the world, which "
                           "served the store; start the run anew"));
  }
  return Annotate(members.status(), what);
}

StatusOr<std::vector<Rank>> SurvivorAgreement::Decide(Deadline deadline) {
  TcpStore& store = *options_.store;
  AIT_RETURN_IF_ERROR(store.Set(Key("here", options_.rank.value()), ""));
  const int size = static_cast<int>(options_.members.size());
  for (milliseconds pause = kPause;; pause = std::min(pause * 2, 5 * kPause)) {
    // In this order; see above.
    AIT_ASSIGN_OR_RETURN(const std::vector<bool> gone, Gone());
    AIT_ASSIGN_OR_RETURN(const bool decided, Has(Key("decision")));
    if (decided) {
      AIT_ASSIGN_OR_RETURN(const std::string text, store.Get(Key("decision"), deadline));
      std::istringstream numbers(text);
      std::vector<Rank> members;
      for (int rank = 0; numbers >> rank;) members.push_back(Rank(rank));
      return members;
    }
    std::vector<Rank> members;
    std::vector<int> missing;
    for (int rank = 0; rank < size; ++rank) {
      if (gone[static_cast<std::size_t>(rank)]) continue;
      AIT_ASSIGN_OR_RETURN(const bool is_here, Has(Key("here", rank)));
      if (is_here) {
        members.push_back(Rank(rank));
      } else {
        missing.push_back(rank);
      }
    }
    if (missing.empty() && !members.empty() && members.front() == options_.rank) {
      std::string text;
      for (const Rank member : members) text += StrCat(member, " ");
      AIT_RETURN_IF_ERROR(store.Set(Key("decision"), text));
      return members;
    }
    if (deadline.expired()) {
      return DeadlineExceededError(
          missing.empty() ? std::string("rank ") + StrCat(members.front()) : RankList(missing),
          missing.size() > 1 ? " live" : " lives", ", but did not call for the survivors in time");
    }
    std::this_thread::sleep_for(pause);
  }
}

/// True if all members have the group; false if another attempt is needed, on all of them.
StatusOr<bool> SurvivorAgreement::Commit(const std::vector<Rank>& members, const Status& built,
                                         Deadline deadline) {
  TcpStore& store = *options_.store;
  AIT_RETURN_IF_ERROR(
      store.Set(Key(built.ok() ? "ready" : "failed", options_.rank.value()), Message(built)));
  Deadline notice = Deadline::Infinite();  // of a death, once something is known to have failed
  std::string failure;
  while (true) {
    AIT_ASSIGN_OR_RETURN(const std::vector<bool> gone, Gone());
    std::vector<int> unready;
    bool lost = false;
    for (const Rank member : members) {
      const int rank = member.value();
      const bool is_gone = gone[static_cast<std::size_t>(rank)];
      AIT_ASSIGN_OR_RETURN(const bool ready, Has(Key("ready", rank)));
      if (ready) continue;
      unready.push_back(rank);
      lost = lost || is_gone;
      AIT_ASSIGN_OR_RETURN(const bool failed, Has(Key("failed", rank)));
      if (!failed || !failure.empty()) continue;
      AIT_ASSIGN_OR_RETURN(const std::string why, store.Get(Key("failed", rank), deadline));
      failure = StrCat("rank ", rank, ": ", why);
      notice = Deadline::After(kDeathNotice);
    }
    if (unready.empty()) return true;
    if (lost) return false;
    // One that is ready may have died since: then the others could not connect to it.
    if (!failure.empty()) {
      const bool died = std::any_of(members.begin(), members.end(), [&](Rank member) {
        return gone[static_cast<std::size_t>(member.value())];
      });
      if (died) return false;
      if (notice.expired()) {
        ++attempt_;
        return InternalError("the new group could not be made: ", failure);
      }
    }
    if (deadline.expired()) {
      return DeadlineExceededError(RankList(unready), " did not connect in time");
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace ait::inline v0::internal
