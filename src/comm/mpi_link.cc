// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_link.h"

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "comm/operation_compare.h"
#include "comm/pair_group.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// MPI counts in int: longer messages go in several of this size.
constexpr std::int64_t kChunk = 1 << 30;
// How long a piece that is given up is waited for, so that its memory is nobody's.
constexpr milliseconds kTakeBack{50};
// How long what a rank has sent may be under way after the news that it has left.
constexpr milliseconds kOnTheWay{250};

using Clock = std::chrono::steady_clock;

// What a wait does between two questions: nothing, then yields, then sleeps.
class Pause {
 public:
  void operator()() {
    if (++asked_ <= kLoads) return;
    const auto waited = Clock::now() - since_;
    if (waited < milliseconds(1)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(waited < milliseconds(50) ? microseconds(20) : microseconds(500));
    }
  }

 private:
  static constexpr int kLoads = 200;
  int asked_ = 0;
  Clock::time_point since_ = Clock::now();
};

class MpiPiece final : public PairLink::Piece {
 public:
  MpiPiece(int peer, bool is_receive) : Piece(peer), is_receive_(is_receive) {}

  ~MpiPiece() override {
    if (Done().value_or(true)) return;
    if (is_receive_) {
      for (MPI_Request& request : requests) {
        if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
      }
    }
    const Deadline deadline = Deadline::After(kTakeBack);
    Pause pause;
    while (!Done().value_or(true) && !deadline.expired()) pause();
    // What is left of it is MPI's for good.
  }

  /// Whether all of it has moved.
  StatusOr<bool> Done() {
    int done = 0;
    AIT_RETURN_IF_ERROR(StatusOfMpi(
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        "MPI_Testall"));
    return done != 0;
  }

  std::vector<MPI_Request> requests;
  std::atomic<bool> interrupted{false};

 private:
  bool is_receive_;
};

class MpiLink final : public PairLink {
 public:
  MpiLink(std::shared_ptr<MpiSession> session, MPI_Comm communicator,
          std::shared_ptr<TcpStore> store, const std::string& name, int size)
      : session_(std::move(session)),
        communicator_(communicator),
        store_(std::move(store)),
        left_at_(static_cast<std::size_t>(size)) {
    for (int peer = 0; peer < size; ++peer) {
      watches_.push_back(store_->Watch(LeftKey(name, peer), [this, peer](const std::string&) {
        left_at_[static_cast<std::size_t>(peer)] = Clock::now().time_since_epoch().count();
      }));
    }
  }
  // The communicator stays: MPI would give its number to a new one, where messages that nobody
  // received any more then went astray.
  ~MpiLink() override {
    for (const std::uint64_t watch : watches_) store_->Unwatch(watch);
  }

  StatusOr<PiecePtr> Send(const void* data, std::int64_t bytes, int peer,
                          std::uint32_t tag) override {
    auto piece = std::make_shared<MpiPiece>(peer, false);
    AIT_RETURN_IF_ERROR(InChunks(bytes, *piece, [&](std::int64_t at, int count, MPI_Request* to) {
      return StatusOfMpi(MPI_Isend(static_cast<const char*>(data) + at, count, MPI_BYTE, peer,
                                   static_cast<int>(tag), communicator_, to),
                         "MPI_Isend");
    }));
    return piece;
  }

  StatusOr<PiecePtr> Receive(void* data, std::int64_t bytes, int peer, std::uint32_t tag) override {
    auto piece = std::make_shared<MpiPiece>(peer, true);
    AIT_RETURN_IF_ERROR(InChunks(bytes, *piece, [&](std::int64_t at, int count, MPI_Request* to) {
      return StatusOfMpi(MPI_Irecv(static_cast<char*>(data) + at, count, MPI_BYTE, peer,
                                   static_cast<int>(tag), communicator_, to),
                         "MPI_Irecv");
    }));
    return piece;
  }

  Status Await(Piece& base) override {
    auto& piece = static_cast<MpiPiece&>(base);
    for (Pause pause;; pause()) {
      AIT_ASSIGN_OR_RETURN(const bool done, piece.Done());
      if (done) return OkStatus();
      if (interrupted_ || piece.interrupted) return CancelledError("interrupted");
      if (HasLeft(piece.peer())) return UnavailableError("the rank has left");
    }
  }

  void Interrupt(Piece& piece) override { static_cast<MpiPiece&>(piece).interrupted = true; }
  void Interrupt() override { interrupted_ = true; }

 private:
  template <typename Post>
  static Status InChunks(std::int64_t bytes, MpiPiece& piece, Post&& post) {
    for (std::int64_t at = 0; at < bytes; at += kChunk) {
      MPI_Request request = MPI_REQUEST_NULL;
      AIT_RETURN_IF_ERROR(post(at, static_cast<int>(std::min(kChunk, bytes - at)), &request));
      piece.requests.push_back(request);
    }
    return OkStatus();
  }

  /// MPI has no connections that break. What a rank sent before it left is here soon after the news.
  bool HasLeft(int peer) const {
    const Clock::rep left = left_at_[static_cast<std::size_t>(peer)];
    return left != 0 && Clock::now().time_since_epoch() - Clock::duration(left) >= kOnTheWay;
  }

  std::shared_ptr<MpiSession> session_;
  MPI_Comm communicator_;
  std::shared_ptr<TcpStore> store_;
  std::vector<std::atomic<Clock::rep>> left_at_;  // by peer; 0: it is there
  std::vector<std::uint64_t> watches_;
  std::atomic<bool> interrupted_{false};
};

// MPI makes a communicator without a deadline: it is only asked to when all members are there.
Status AwaitMembers(TcpStore& store, const std::string& name, const std::vector<Rank>& members,
                    Rank rank, Deadline deadline) {
  const auto key = [&](Rank member) { return StrCat("mpi/", name, "/", member); };
  AIT_RETURN_IF_ERROR(store.Set(key(rank), ""));
  for (int member = 0; member < static_cast<int>(members.size()); ++member) {
    while (true) {
      const Deadline slice = Deadline::After(milliseconds(100));
      const Status come =
          store.Get(key(Rank(member)), slice.time() < deadline.time() ? slice : deadline).status();
      if (come.ok()) break;
      const int there[] = {member};
      if (come.code() != StatusCode::kDeadlineExceeded) return come;
      for (const Rank dead : store.departed()) {
        if (dead == members[static_cast<std::size_t>(member)]) {
          return UnavailableError(RankList(there), " of the group \"", name, "\" died");
        }
      }
      if (deadline.expired()) {
        return DeadlineExceededError(RankList(there),
                                     " did not come in time to connect the group \"", name, "\"");
      }
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<PairLink>> ConnectMpi(std::shared_ptr<MpiSession> session,
                                               std::shared_ptr<TcpStore> store,
                                               const std::string& name,
                                               const std::vector<Rank>& members, Rank rank,
                                               Deadline deadline) {
  AIT_RETURN_IF_ERROR(AwaitMembers(*store, name, members, rank, deadline));
  std::vector<int> ranks;
  for (const Rank member : members) ranks.push_back(member.value());
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  MPI_Comm communicator = MPI_COMM_NULL;
  AIT_RETURN_IF_ERROR(StatusOfMpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group"));
  Status made =
      StatusOfMpi(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group),
                  "MPI_Group_incl");
  if (made.ok()) {
    // Groups that are made at the same time by other threads have other names.
    const int tag = static_cast<int>(std::hash<std::string_view>()(name) % 32767);
    made = StatusOfMpi(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &communicator),
                       "MPI_Comm_create_group");
    MPI_Group_free(&group);
  }
  MPI_Group_free(&world);
  AIT_RETURN_IF_ERROR(made);
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  return std::make_unique<MpiLink>(std::move(session), communicator, std::move(store), name,
                                   static_cast<int>(members.size()));
}

}  // namespace ait::inline v0::internal
