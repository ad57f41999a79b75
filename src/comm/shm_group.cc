// SPDX-License-Identifier: Apache-2.0
#include "comm/shm_group.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <ctime>
#include <new>
#include <thread>
#include <utility>

#include "comm/operation_compare.h"

namespace ait::inline v0::internal {
namespace {

std::int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string Ago(std::int64_t since) {
  return StrCat((NowNs() - since) / 100'000'000 / 10.0, " s ago");
}

void CopyText(std::string_view from, char (&to)[ShmText::kBytes]) {
  const std::size_t length = std::min(from.size(), ShmText::kBytes - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

/// Waits for something that peers do once, while a group is made.
class Patience {
 public:
  explicit Patience(Deadline deadline) : deadline_(deadline) {}
  /// False at the deadline.
  bool Wait() {
    if (++turns_ < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(turns_ < 200 ? 50 : 500));
      if (deadline_.expired()) return false;
    }
    return true;
  }

 private:
  const Deadline deadline_;
  int turns_ = 0;
};

}  // namespace

ShmGroup::ShmGroup(std::shared_ptr<ShmFabric> fabric, std::vector<int> members, int rank)
    : fabric_(std::move(fabric)),
      members_(std::move(members)),
      rank_(rank),
      size_(static_cast<int>(members_.size())),
      layout_(size_, static_cast<std::size_t>(fabric_->options().staging.value())),
      member_blocks_(members_.size()) {}

StatusOr<std::shared_ptr<ShmGroup>> ShmGroup::Make(std::shared_ptr<ShmFabric> fabric,
                                                   std::vector<int> members, int rank,
                                                   std::uint64_t start, const Meeting& meeting,
                                                   Deadline deadline) {
  fabric->FreeLater(nullptr);  // blocks of groups that are over
  const std::shared_ptr<ShmGroup> group(new ShmGroup(fabric, std::move(members), rank));
  group->start_ = start;
  const std::size_t bytes = ShmControlLayout(group->size_).bytes;
  const Status own = group->AllocateMember();
  if (rank == 0) {
    StatusOr<void*> block = own.ok() ? fabric->arena()->Allocate(bytes) : StatusOr<void*>(own);
    if (!block.ok()) {
      meeting.offer(kForeign).IgnoreError();  // this rank's own error says more
      return block.status();
    }
    group->control_block_ = *block;
    std::memset(*block, 0, bytes);
    auto* const begin = static_cast<std::byte*>(*block);
    const ShmControlLayout layout(group->size_);
    new (begin) ShmHeader;
    for (int r = 0; r < group->size_; ++r) {
      const auto at = static_cast<std::size_t>(r);
      auto* const line = new (begin + layout.lines + at * sizeof(ShmLine)) ShmLine;
      line->arrived.store(start, std::memory_order_relaxed);
      line->done.store(start, std::memory_order_relaxed);
      new (begin + layout.texts + at * sizeof(ShmText)) ShmText;
    }
    group->Attach(begin);
    AIT_RETURN_IF_ERROR(meeting.offer(static_cast<std::uint64_t>(begin - fabric->arena()->data())));
  } else {
    AIT_ASSIGN_OR_RETURN(const std::uint64_t offset, meeting.find());
    std::byte* const begin = fabric->At(group->members_[0], offset, bytes);
    if (begin == nullptr) {
      return UnavailableError("the first rank of the group had no memory to make it");
    }
    group->Attach(begin);
    if (!own.ok()) return own;  // leaving tells the others
  }
  AIT_RETURN_IF_ERROR(group->JoinAll(meeting, deadline));
  return group;
}

StatusOr<std::shared_ptr<ShmGroup>> ShmGroup::World(std::shared_ptr<ShmFabric> fabric, Store& store,
                                                    const std::string& key, Deadline deadline,
                                                    std::uint64_t start) {
  std::vector<int> members(static_cast<std::size_t>(fabric->size()));
  for (int r = 0; r < fabric->size(); ++r) members[static_cast<std::size_t>(r)] = r;
  const int rank = fabric->rank();
  const std::string name = StrCat(key, "/group");
  const Meeting meeting = {
      .offer = [&](std::uint64_t offset) { return store.Set(name, StrCat(offset)); },
      .find = [&]() -> StatusOr<std::uint64_t> {
        AIT_ASSIGN_OR_RETURN(const std::string text, store.Get(name, deadline));
        return std::strtoull(text.c_str(), nullptr, 10);
      },
      .interrupted = [] { return OkStatus(); }};
  return Make(std::move(fabric), std::move(members), rank, start, meeting, deadline);
}

StatusOr<std::shared_ptr<ShmGroup>> ShmGroup::Subgroup(std::span<const int> members,
                                                       std::uint64_t id, Deadline deadline) {
  return MakeFrom(members, id, deadline, /*may_be_broken=*/false);
}

StatusOr<std::shared_ptr<ShmGroup>> ShmGroup::MakeFrom(std::span<const int> members,
                                                       std::uint64_t id, Deadline deadline,
                                                       bool may_be_broken) {
  const auto self = std::ranges::find(members, rank_);
  if (self == members.end()) {
    return InvalidArgumentError("rank ", rank_, " is no member of the subgroup that it asks for");
  }
  std::vector<int> of_fabric;
  for (const int member : members) {
    of_fabric.push_back(members_[static_cast<std::size_t>(member)]);
  }
  const int leader = members[0];
  ShmLine& offering = line(leader);
  const auto interrupted = [&]() -> Status {
    if (may_be_broken || !broken()) return OkStatus();
    return AbortedError("the group broke while a subgroup was made: ", Message(reason()));
  };
  const Meeting meeting = {.offer =
                               [&](std::uint64_t offset) {
                                 offering.offer.store(offset, std::memory_order_relaxed);
                                 offering.offer_id.store(id, std::memory_order_release);
                                 return OkStatus();
                               },
                           .find = [&]() -> StatusOr<std::uint64_t> {
                             Patience patience(deadline);
                             while (offering.offer_id.load(std::memory_order_acquire) != id) {
                               if (IsGone(leader)) {
                                 return UnavailableError("rank ", leader,
                                                         " died or left while the group was made");
                               }
                               AIT_RETURN_IF_ERROR(interrupted());
                               if (!patience.Wait()) {
                                 return DeadlineExceededError("the deadline passed: rank ", leader,
                                                              " did not come to make the group (",
                                                              Describe(leader), ")");
                               }
                             }
                             return offering.offer.load(std::memory_order_relaxed);
                           },
                           .interrupted = interrupted};
  return Make(fabric_, std::move(of_fabric), static_cast<int>(self - members.begin()), 0, meeting,
              deadline);
}

StatusOr<std::shared_ptr<ShmGroup>> ShmGroup::Survivors(Deadline deadline) {
  const std::uint64_t call = ++survivor_calls_;
  own().survivors.store(call, std::memory_order_seq_cst);
  WakeSleepers();
  // A rank that is gone and has not asked never will, so all see the same members.
  std::vector<int> members;
  std::vector<int> missing;
  for (int peer = 0; peer < size_; ++peer) {
    Patience patience(deadline);
    const auto asked = [&] { return line(peer).survivors.load() >= call; };
    while (true) {
      const bool gone = peer != rank_ && IsGone(peer);  // before the second look
      if (asked()) {
        members.push_back(peer);
        break;
      }
      if (gone) break;
      if (!patience.Wait()) {
        missing.push_back(peer);
        break;
      }
    }
  }
  if (!missing.empty()) {
    return DeadlineExceededError("the deadline passed: ", RankList(missing),
                                 " live but did not ask for the group of the survivors (",
                                 Describe(missing[0]), ")");
  }
  auto group = MakeFrom(members, (std::uint64_t{1} << 63) | call, deadline, /*may_be_broken=*/true);
  if (group.ok()) (*group)->survived_ = members;
  return group;
}

void ShmGroup::Attach(std::byte* control) {
  const ShmControlLayout layout(size_);
  header_ = std::launder(reinterpret_cast<ShmHeader*>(control));
  lines_ = std::launder(reinterpret_cast<ShmLine*>(control + layout.lines));
  texts_ = std::launder(reinterpret_cast<ShmText*>(control + layout.texts));
  counts_ = reinterpret_cast<std::int64_t*>(control + layout.counts);
}

Status ShmGroup::AllocateMember() {
  StatusOr<void*> block = fabric_->arena()->Allocate(layout_.bytes, 4096);
  if (!block.ok()) return Annotate(block.status(), "staging memory of a group");
  auto* const begin = static_cast<std::byte*>(*block);
  member_blocks_[static_cast<std::size_t>(rank_)] = begin;
  for (int peer = 0; peer < size_; ++peer) {
    new (begin + layout_.answers(peer)) ShmRing;
    new (begin + layout_.messages(peer)) ShmRing;
  }
  return OkStatus();
}

Status ShmGroup::JoinAll(const Meeting& meeting, Deadline deadline) {
  std::byte* const block = member(rank_);
  own().block.store(static_cast<std::uint64_t>(block - fabric_->arena()->data()),
                    std::memory_order_relaxed);
  own().since.store(NowNs(), std::memory_order_relaxed);
  own().joined.store(1, std::memory_order_release);
  std::vector<int> missing;
  for (int peer = 0; peer < size_; ++peer) {
    Patience patience(deadline);
    while (line(peer).joined.load(std::memory_order_acquire) == 0) {
      if (IsDead(peer)) return UnavailableError("rank ", peer, " died while the group was made");
      if (line(peer).left.load(std::memory_order_acquire) != 0) {
        return UnavailableError("rank ", peer, " gave up while the group was made");
      }
      AIT_RETURN_IF_ERROR(meeting.interrupted());
      if (patience.Wait()) continue;
      missing.push_back(peer);
      break;
    }
    if (!missing.empty() || peer == rank_) continue;
    member_blocks_[static_cast<std::size_t>(peer)] =
        At(peer, line(peer).block.load(std::memory_order_relaxed), layout_.bytes);
    if (member(peer) == nullptr) return InternalError("rank ", peer, " has no member block");
  }
  if (missing.empty()) return OkStatus();
  return DeadlineExceededError("the deadline passed: ", RankList(missing),
                               " did not come to make the group");
}

ShmGroup::~ShmGroup() {
  if (fabric_->forked()) return;  // the arena is not mapped here
  Leave();
  // Peers may still read what this rank staged, or the lines: blocks go when all have left, the
  // control block when all others have looked at it for the last time.
  std::shared_ptr<SharedArena> arena = fabric_->arena();
  std::byte* block = member(rank_);
  std::vector<char> gone(static_cast<std::size_t>(size_));
  // The fabric keeps these functions, so they may not keep the fabric.
  const auto gone_for_good = [fabric = fabric_.get(), members = members_, lines = lines_](
                                 int peer, std::atomic<std::uint32_t> ShmLine::* flag) {
    return (lines[peer].*flag).load(std::memory_order_acquire) != 0 ||
           fabric->IsDead(members[static_cast<std::size_t>(peer)]);
  };
  fabric_->FreeLater([=, lines = lines_, control = control_block_, size = size_, rank = rank_,
                      bytes = layout_.bytes, all_left = lines_ == nullptr,
                      member_freed = false]() mutable {
    for (int peer = 0; !all_left && peer < size; ++peer) {
      if (peer != rank && !gone_for_good(peer, &ShmLine::left)) return false;
    }
    all_left = true;
    if (!std::exchange(member_freed, true)) {
      if (block != nullptr) arena->Deallocate(block, bytes, 4096);
      // For all but the first rank this is the last look.
      if (lines != nullptr) lines[rank].released.store(1, std::memory_order_release);
    }
    if (control == nullptr) return true;
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank && !gone_for_good(peer, &ShmLine::released)) return false;
    }
    arena->Deallocate(control, ShmControlLayout(size).bytes);
    return true;
  });
}

std::span<std::int64_t> ShmGroup::counts(int rank, int place) const {
  const auto size = static_cast<std::size_t>(size_);
  return {counts_ + 2 * size * static_cast<std::size_t>(2 * rank + place), size};
}

std::span<std::int64_t> ShmGroup::receive_counts(int rank, int place) const {
  const std::span<std::int64_t> sent = counts(rank, place);
  return {sent.data() + sent.size(), sent.size()};
}

bool ShmGroup::IsGone(int rank) const {
  return line(rank).left.load(std::memory_order_acquire) != 0 || IsDead(rank);
}

void ShmGroup::WakeSleepers() {
  if (header_->sleepers.load(std::memory_order_seq_cst) == 0) return;
  header_->bell.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &header_->bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void ShmGroup::Sleep(std::uint32_t bell, Duration most) {
  const std::int64_t ns =
      std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(most).count());
  const timespec time = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  syscall(SYS_futex, &header_->bell, FUTEX_WAIT, bell, &time, nullptr, 0);
}

void ShmGroup::Break(const Status& reason) {
  const std::lock_guard lock(break_mutex_);
  if (broken()) return;
  ShmText& text = texts_[rank_];
  text.code = static_cast<std::int32_t>(reason.code());
  CopyText(Message(reason), text.reason);
  std::uint32_t whole = 0;
  header_->broken.compare_exchange_strong(whole, static_cast<std::uint32_t>(rank_) + 1,
                                          std::memory_order_seq_cst);
  WakeSleepers();
}

Status ShmGroup::reason() const {
  const std::uint32_t breaker = header_->broken.load(std::memory_order_acquire);
  const ShmText& text = texts_[breaker - 1];
  return Status(static_cast<StatusCode>(text.code), text.reason);
}

std::string ShmGroup::Describe(int rank) const {
  const ShmLine& line = this->line(rank);
  const auto relaxed = [](const auto& word) { return word.load(std::memory_order_relaxed); };
  const std::uint64_t arrived = relaxed(line.arrived);
  std::string text;
  if (arrived == start_) {
    text = StrCat("rank ", rank, " has finished nothing yet");
  } else {
    const std::uint64_t what = relaxed(line.what);
    Operation operation{.kind = static_cast<OperationKind>(what & 0xff),
                        .reduce = static_cast<ReduceOp>(what >> 8 & 0xff),
                        .dtype = static_cast<DType>(what >> 16 & 0xff),
                        .peer = Rank(static_cast<int>(what >> 32)),
                        .sequence = relaxed(line.sequence),
                        .label = LoadText(line.label, std::size(line.label))};
    const auto count = static_cast<std::int64_t>(relaxed(line.count));
    operation.output.count = count;
    operation.counts.assign(static_cast<std::size_t>(size_), count);
    operation.receive_counts = operation.counts;
    const bool finished = Reached(relaxed(line.done), arrived);
    text = StrCat("rank ", rank, finished ? " has finished " : " is in ", operation.Describe(),
                  finished ? ", which it began " : ", since ", Ago(relaxed(line.since)));
  }
  if (const std::int64_t noted = relaxed(line.noted); noted != 0) {
    text += StrCat("; it is in step ", relaxed(line.step), ", ",
                   LoadText(line.phase, std::size(line.phase)), ", since ", Ago(noted));
  }
  const int pid = fabric_->pid(members_[static_cast<std::size_t>(rank)]);
  return text + StrCat(" (process ", pid, ")");
}

void ShmGroup::Note(std::int64_t step, std::string_view phase) {
  if (fabric_->forked()) return;
  ShmLine& line = own();
  line.step.store(step, std::memory_order_relaxed);
  StoreText(line.phase, std::size(line.phase), phase);
  line.noted.store(NowNs(), std::memory_order_relaxed);
}

void ShmGroup::Leave() {
  if (fabric_->forked() || lines_ == nullptr) return;
  own().ended.store(1, std::memory_order_seq_cst);
  own().left.store(1, std::memory_order_seq_cst);
  WakeSleepers();
}

}  // namespace ait::inline v0::internal
