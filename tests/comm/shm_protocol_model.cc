// SPDX-License-Identifier: Apache-2.0
#include "comm/shm_protocol_model.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

namespace ait::shm_model {
namespace {

constexpr int kMaxRanks = 3;

/// What a rank does next.
enum Pc : std::uint8_t {
  kBegin,      // an operation: looks at `broken`
  kStage,      // begins to fill its half of the staging memory
  kLookEarly,  // at `sleepers`, where that is done too early
  kArrive,     // has filled it; publishes `arrived`
  kNotify,     // after a publication: looks at `sleepers`
  kRing,       // changes the bell
  kWake,       // wakes those who sleep
  kPoll,       // looks at `broken`
  kWait,       // looks at `arrived` or `done` of rank `next`
  kAnnounce,   // adds itself to `sleepers`
  kReadBell,   //
  kLookAgain,  // all have arrived: looks at `broken`, before it touches buffers of peers
  kRun,        // is touching what belongs to peers
  kDone,       // publishes `done`
  kSleep,      // the futex: sleeps unless the bell was rung since it was read
  kAsleep,     //
  kEndDoze,    // takes itself from `sleepers`
  kBreak,      // sets `broken`
  kSeeBroken,  // publishes `ended`
  kLastTry,    // looks at the line of rank `next`: perhaps all have come nevertheless
  kQuiet,      // looks whether rank `peer` may touch the own buffer
  kReturnOk,   //
  kReturnBad,  //
  kOver,       // has returned from all operations
};
constexpr std::string_view kPcNames[] = {
    "begins",     "stages",    "looks early",   "arrives",    "notifies",    "rings",
    "wakes",      "polls",     "waits",         "announces",  "reads bell",  "looks again",
    "runs",       "publishes", "goes to sleep", "sleeps",     "ends doze",   "breaks",
    "saw broken", "tries",     "gets quiet",    "returns ok", "returns bad", "is over"};

struct RankState {
  Pc pc = kBegin;
  Pc then = kBegin;            // what follows kNotify … kWake
  std::uint8_t operation = 0;  // the one it is in, or that it has not begun yet
  std::uint8_t next = 0;
  std::uint8_t peer = 0;
  bool finishing = false;  // waits for `done`, no longer for `arrived`
  bool dozing = false;     // will sleep if it must wait
  bool announced = false;  // is one of `sleepers`
  bool rung = false;       // the bell was, since it was read
  bool ended = false;
  bool dead = false;
  bool left = false;
  std::uint8_t arrived = 0;            // operations
  std::uint8_t done = 0;               // operations
  std::uint8_t reduced = 0;            // slices of its buffer, as bits, that hold the result
  std::array<std::uint8_t, 2> half{};  // 1 + the operation that each half of its memory holds
};

struct State {
  std::array<RankState, kMaxRanks> rank;
  bool broken = false;
  bool fault_used = false;
  std::uint8_t succeeded = 0;  // operations, as bits, that may fail nowhere
  std::uint8_t aborter = 0;    // steps of the thread that aborts
};

/// All of a state in 128 bits.
struct Key {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const Key&) const = default;
};

template <typename Field>
void ForEachField(State& s, Field field) {
  for (RankState& r : s.rank) {
    field(r.pc, 5), field(r.then, 5), field(r.operation, 2), field(r.next, 2), field(r.peer, 2);
    field(r.finishing, 1), field(r.dozing, 1), field(r.announced, 1), field(r.rung, 1);
    field(r.ended, 1), field(r.dead, 1), field(r.left, 1);
    field(r.arrived, 2), field(r.done, 2), field(r.reduced, 3);
    field(r.half[0], 2), field(r.half[1], 2);
  }
  field(s.broken, 1), field(s.fault_used, 1), field(s.succeeded, 3), field(s.aborter, 3);
}

Key Pack(State state) {
  unsigned __int128 bits = 0;
  ForEachField(state, [&](auto value, int width) {
    bits = bits << width | static_cast<std::uint8_t>(value);
  });
  return {static_cast<std::uint64_t>(bits), static_cast<std::uint64_t>(bits >> 64)};
}

State Unpack(Key key) {
  State state;
  int width_of_all = 0;
  ForEachField(state, [&](auto, int width) { width_of_all += width; });
  const unsigned __int128 bits = static_cast<unsigned __int128>(key.high) << 64 | key.low;
  ForEachField(state, [&](auto& value, int width) {
    width_of_all -= width;
    const auto number = static_cast<std::uint8_t>(bits >> width_of_all) & ((1u << width) - 1);
    value = static_cast<std::remove_reference_t<decltype(value)>>(number);
  });
  return state;
}

class Explorer {
 public:
  explicit Explorer(const Setting& setting) : setting_(setting), p_(setting.protocol) {}

  Exploration Run() {
    table_.assign(std::size_t{1} << 16, kNothing);
    Visit(State{}, kNothing);
    for (std::uint32_t at = 0; at < nodes_.size() && result_.fault.empty(); ++at) {
      const State state = Unpack(nodes_[at].key);
      current_ = at;
      moves_ = 0;
      for (int r = 0; r < setting_.ranks && result_.fault.empty(); ++r) Move(state, r);
      MoveAborter(state);
      if (result_.fault.empty() && moves_ == 0 && !IsOver(state)) Fail("nobody can go on", state);
    }
    result_.states = nodes_.size();
    return std::move(result_);
  }

 private:
  static constexpr std::uint32_t kNothing = ~std::uint32_t{0};
  struct Node {
    Key key;
    std::uint32_t parent;
  };

  // What follows from `state` by a step of rank `r`; faults are steps that need not be taken.

  void Step(const State& state) {
    ++moves_;
    Visit(state, current_);
  }

  void Move(const State& from, int r) {
    const RankState& old = from.rank[At(r)];
    if (old.dead || old.pc == kOver) return;
    if (setting_.fault == Fault::kKill && !from.fault_used) {
      State s = from;
      s.fault_used = true;
      RankState& dead = s.rank[At(r)];
      dead.dead = true;
      dead.pc = dead.then = kBegin;
      dead.next = dead.reduced = 0;
      dead.rung = dead.dozing = dead.finishing = false;
      Visit(s, current_);
    }
    State s = from;
    RankState& me = s.rank[At(r)];
    const Kind kind = setting_.operations[me.operation];
    switch (old.pc) {
      case kBegin:
        if (IsAbsent(old, r)) return;
        if (setting_.fault == Fault::kLeave && !s.fault_used) {
          State leaves = s;
          leaves.fault_used = true;
          RankState& leaver = leaves.rank[At(r)];
          leaver.ended = leaver.left = true;
          Notify(leaver, kOver);
          Visit(leaves, current_);
        }
        if (!s.broken) {
          me.pc = kind == Kind::kStaged ? kStage : ArrivePc();
        } else {
          me.ended = p_.tells_ended;
          Notify(me, kReturnBad);
        }
        return Step(s);
      case kStage:
        me.half[Half(me.operation)] = me.operation + 1;
        me.pc = ArrivePc();
        return Step(s);
      case kLookEarly:
        me.then = Sleepers(s) > 0 ? kRing : kBegin;
        me.pc = me.arrived > me.operation ? kDone : kArrive;
        return Step(s);
      case kArrive:
        me.arrived++;
        Published(me, kWait);  // the call that starts an operation does not look at `broken` here
        return Step(s);
      case kNotify:
        if (Sleepers(s) > 0) {
          me.pc = kRing;
        } else {
          me.pc = std::exchange(me.then, kBegin);
        }
        return Step(s);
      case kRing:
        Ring(s);
        me.pc = kWake;
        return Step(s);
      case kWake:
        Wake(s);
        me.pc = std::exchange(me.then, kBegin);
        return Step(s);
      case kPoll:
        me.pc = s.broken ? kSeeBroken : kWait;
        return Step(s);
      case kWait:
        return MoveWaiting(s, r);
      case kAnnounce:
        me.announced = true;
        me.pc = p_.announces_sleep ? kReadBell : kSleep;
        return Step(s);
      case kReadBell:
        me.rung = false;
        me.pc = kPoll;
        return Step(s);
      case kLookAgain:
        if (s.broken && p_.looks_again && kind == Kind::kDirect) {
          me.pc = me.dozing ? SleepPc() : kPoll;
        } else {
          me.pc = kRun;
          me.rung = false;  // it will not sleep on this one
        }
        return Step(s);
      case kRun:
        Touch(s, r);
        me.pc = p_.publishes_first ? kDone : kLookEarly;
        return Step(s);
      case kDone:
        me.done++;
        if (kind == Kind::kStaged || !p_.waits_for_done) {
          me.pc = kReturnOk;
          me.then = kBegin;
        } else {
          me.finishing = true;
          Published(me, me.dozing ? kEndDoze : kWait);
        }
        return Step(s);
      case kSleep:
        me.pc = me.rung ? kEndDoze : kAsleep;
        return Step(s);
      case kAsleep:
        if (HasTimeLimit(s) && WouldGoOn(s, r)) {
          me.pc = kEndDoze;
          Step(s);
        }
        return MoveDeadline(from, r);
      case kEndDoze:
        me.dozing = me.announced = me.rung = false;
        me.pc = kPoll;
        return Step(s);
      case kBreak:
        if (s.broken) {
          me.pc = kPoll;
        } else {
          s.broken = true;
          Notify(me, kPoll);
        }
        return Step(s);
      case kSeeBroken:
        me.peer = 0;
        if (me.ended || !p_.tells_ended) {
          me.pc = kQuiet;
        } else {
          me.ended = true;
          Notify(me, kQuiet);
        }
        return Step(s);
      case kQuiet:
        return MoveQuiet(s, r);
      case kLastTry:
        return MoveLastTry(s, r);
      case kReturnOk:
        if (kind == Kind::kDirect && me.reduced != (1 << setting_.ranks) - 1) {
          return Fail("a result is wrong", from);
        }
        result_.saw_success = true;
        if (kind == Kind::kDirect || !s.broken) s.succeeded |= 1 << me.operation;
        me.reduced = me.next = 0;
        me.finishing = me.dozing = me.announced = me.rung = false;
        me.operation++;
        me.pc = kBegin;
        if (me.operation == setting_.operations.size()) {
          me.operation--;
          me.pc = kOver;
        }
        return Step(s);
      case kReturnBad:
        if (!s.fault_used) return Fail("an operation fails without a fault", from);
        if ((s.succeeded >> me.operation & 1) != 0) {
          return Fail("an operation fails that has succeeded elsewhere", from);
        }
        result_.saw_failure = true;
        me.dozing = me.announced = me.rung = false;
        me.pc = kOver;
        return Step(s);
      case kOver:
        return;
    }
  }

  static constexpr std::uint8_t kIsQuiet = 3;  // instead of a peer: none may touch the buffer

  // Waits for rank `next`. A rank that spins looks at `broken` again and again; as long as that and
  // the line stay as they are, nothing changes, so it is no step.
  void MoveWaiting(const State& from, int r) {
    State s = from;
    RankState& me = s.rank[At(r)];
    if (Reached(s, r, me.next)) {
      if (!GoOn(me.next, r)) {
        me.pc = me.finishing ? kReturnOk : kLookAgain;
      }
      Step(s);
    } else if (me.dozing) {
      me.pc = SleepPc();
      Step(s);
    } else if (s.broken) {
      me.pc = kPoll;
      Step(s);
    }
    if (me.dozing) return;
    if (MissesGone(from, r)) {
      s = from;
      me.pc = kBreak;
      Step(s);
    }
    if (setting_.sleeps) {
      s = from;
      me.dozing = true;
      me.pc = p_.announces_sleep ? kAnnounce : kReadBell;
      Visit(s, current_);  // it may as well go on looking
    }
    MoveDeadline(from, r);
  }

  /// To the next rank but `r`; false, and to the first, after the last.
  bool GoOn(std::uint8_t& rank, int r) const {
    rank++;
    if (rank == r) rank++;
    if (rank < setting_.ranks) return true;
    rank = 0;
    return false;
  }

  void MoveDeadline(const State& from, int r) {
    if (setting_.fault != Fault::kDeadline && setting_.fault != Fault::kAbsent) return;
    if (from.fault_used) return;
    State s = from;
    s.fault_used = true;
    RankState& me = s.rank[At(r)];
    me.pc = kBreak;
    me.dozing = me.announced = me.rung = false;
    Visit(s, current_);
    if (setting_.fault == Fault::kAbsent) ++moves_;  // it passes for sure
  }

  void MoveQuiet(State& s, int r) {
    RankState& me = s.rank[At(r)];
    if (!p_.becomes_quiet || !MayTouch(s, r, me.peer)) {
      if (!p_.becomes_quiet || !GoOn(me.peer, r)) {
        me.peer = kIsQuiet;
        me.pc = kLastTry;
      }
      return Step(s);
    }
    bool is_news = me.dozing || MayStillEnd(s, r);
    me.pc = is_news ? kLastTry : kQuiet;
    for (int peer = 0; peer < me.peer; ++peer) is_news |= MayTouch(s, r, peer);
    me.peer = 0;
    if (is_news) Step(s);
  }

  void MoveLastTry(State& s, int r) {
    RankState& me = s.rank[At(r)];
    const bool is_staged = setting_.operations[me.operation] == Kind::kStaged;
    if (p_.tries_again && Reached(s, r, me.next)) {
      if (GoOn(me.next, r)) return Step(s);
      if (me.finishing || is_staged) {
        me.peer = 0;
        me.pc = me.finishing ? kReturnOk : kRun;
        return Step(s);
      }
    }
    const bool is_quiet = std::exchange(me.peer, 0) == kIsQuiet;
    me.pc = is_quiet ? kReturnBad : me.dozing ? SleepPc() : kQuiet;
    Step(s);
  }

  void MoveAborter(const State& from) {
    if (setting_.fault != Fault::kAbort || !result_.fault.empty()) return;
    State s = from;
    if (s.aborter == 0) {
      s.fault_used = s.broken = true;
      s.aborter = setting_.sleeps ? 1 : 4;
      return Visit(s, current_);
    }
    if (s.aborter == 4) return;
    if (s.aborter == 1) {
      s.aborter = Sleepers(s) > 0 ? 2 : 4;
    } else if (s.aborter == 2) {
      Ring(s);
      s.aborter = 3;
    } else {
      Wake(s);
      s.aborter = 4;
    }
    Step(s);
  }

  // The parts of the protocol.

  static std::size_t At(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t Half(int operation) const {
    return p_.has_two_halves ? static_cast<std::size_t>(operation) & 1 : 0;
  }
  void Notify(RankState& me, Pc then) const {
    me.pc = setting_.sleeps ? kNotify : then;
    me.then = setting_.sleeps ? then : kBegin;
  }
  void Published(RankState& me, Pc then) const {
    if (p_.publishes_first) return Notify(me, then);
    const bool rings = me.then == kRing;
    me.pc = rings ? kRing : then;
    me.then = rings ? then : kBegin;
  }
  Pc ArrivePc() const { return p_.publishes_first ? kArrive : kLookEarly; }
  Pc SleepPc() const { return p_.announces_sleep ? kSleep : kAnnounce; }
  static int Sleepers(const State& s) {
    return static_cast<int>(std::ranges::count_if(s.rank, &RankState::announced));
  }
  void Ring(State& s) const {
    for (RankState& r : s.rank) {
      const bool has_read = r.dozing && r.pc != kAnnounce && r.pc != kReadBell && r.pc != kRun &&
                            r.pc != kDone && r.pc != kAsleep && r.pc != kEndDoze &&
                            r.then != kEndDoze;
      if (p_.rings_bell && (has_read || (r.pc == kAnnounce && !p_.announces_sleep))) r.rung = true;
    }
  }
  static void Wake(State& s) {
    for (RankState& r : s.rank) {
      if (r.pc == kAsleep) r.pc = kEndDoze;
    }
  }
  static bool Reached(const State& s, int r, int peer) {
    const RankState& me = s.rank[At(r)];
    const RankState& other = s.rank[At(peer)];
    return (me.finishing ? other.done : other.arrived) > me.operation;
  }
  /// What touches no buffer of a peer ends also in a broken group, once all have come.
  bool MayStillEnd(const State& s, int r) const {
    const RankState& me = s.rank[At(r)];
    return p_.tries_again && Reached(s, r, me.next) &&
           (me.finishing || setting_.operations[me.operation] == Kind::kStaged);
  }
  static bool MayTouch(const State& s, int r, int peer) {
    const RankState& me = s.rank[At(r)];
    const RankState& other = s.rank[At(peer)];
    return peer != r && !other.ended && other.arrived > me.operation &&
           other.done <= me.operation && !other.dead;
  }
  bool MissesGone(const State& s, int r) const {
    for (int peer = 0; peer < setting_.ranks; ++peer) {
      const RankState& other = s.rank[At(peer)];
      if ((other.dead || other.left) && !Reached(s, r, peer)) return true;
    }
    return false;
  }

  // A rank that sleeps looks every now and then whether peers live.
  static bool HasTimeLimit(const State& s) {
    return std::ranges::any_of(s.rank, [](const RankState& r) { return r.dead || r.left; });
  }
  bool WouldGoOn(const State& s, int r) const {
    const RankState& me = s.rank[At(r)];
    if (!s.broken) return Reached(s, r, me.next) || MissesGone(s, r);
    if (!me.ended || MayStillEnd(s, r)) return true;
    for (int peer = 0; peer < setting_.ranks; ++peer) {
      if (MayTouch(s, r, peer)) return false;
    }
    return true;
  }

  // Rank `r` has read and written what belongs to its part.
  void Touch(State& s, int r) {
    const RankState& me = s.rank[At(r)];
    for (int peer = 0; peer < setting_.ranks; ++peer) {
      RankState& other = s.rank[At(peer)];
      if (setting_.operations[me.operation] == Kind::kStaged) {
        if (other.half[Half(me.operation)] != me.operation + 1) {
          Fail("a rank takes what was staged for another operation", s);
        }
      } else if (!other.dead) {
        other.reduced |= static_cast<std::uint8_t>(1 << r);
      }
    }
  }

  // What must hold.

  bool IsAbsent(const RankState& rank, int r) const {
    return setting_.fault == Fault::kAbsent && r == setting_.ranks - 1 && rank.pc == kBegin &&
           rank.operation + 1u == setting_.operations.size();
  }
  bool IsOver(const State& s) const {
    for (int r = 0; r < setting_.ranks; ++r) {
      const RankState& rank = s.rank[At(r)];
      if (!rank.dead && rank.pc != kOver && !IsAbsent(rank, r)) return false;
    }
    return true;
  }

  void Check(const State& s) {
    for (int r = 0; r < setting_.ranks; ++r) {
      const RankState& me = s.rank[At(r)];
      if (me.pc != kRun) continue;
      for (int peer = 0; peer < setting_.ranks; ++peer) {
        const RankState& other = s.rank[At(peer)];
        if (peer == r || other.dead) continue;
        if (setting_.operations[me.operation] == Kind::kDirect) {
          if (other.operation > me.operation || other.pc == kOver) {
            Fail("a rank touches a buffer that was given back", s);
          }
        } else if ((other.pc == kArrive || other.pc == kLookEarly) &&
                   setting_.operations[other.operation] == Kind::kStaged &&
                   Half(other.operation) == Half(me.operation)) {
          Fail("a rank reads staging memory that is filled anew", s);
        }
      }
    }
  }

  // The graph.

  void Visit(const State& state, std::uint32_t parent) {
    const Key key = Pack(state);
    if (2 * nodes_.size() > table_.size()) Grow();
    const std::size_t slot = Find(key);
    if (table_[slot] != kNothing) return;
    table_[slot] = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back({key, parent});
    Check(state);
  }

  std::size_t Find(Key key) const {
    std::uint64_t h =
        key.low * 0x9e3779b97f4a7c15u ^ (key.high + 0x7f4a7c15u) * 0xbf58476d1ce4e5b9u;
    h ^= h >> 31;
    std::size_t slot = (h * 0x94d049bb133111ebu >> 20) & (table_.size() - 1);
    while (table_[slot] != kNothing && nodes_[table_[slot]].key != key) {
      slot = (slot + 1) & (table_.size() - 1);
    }
    return slot;
  }

  void Grow() {
    table_.assign(4 * table_.size(), kNothing);
    for (std::uint32_t at = 0; at < nodes_.size(); ++at) table_[Find(nodes_[at].key)] = at;
  }

  void Fail(std::string_view what, const State& state) {
    if (!result_.fault.empty()) return;
    std::vector<State> steps = {state};
    for (std::uint32_t at = current_; at != kNothing; at = nodes_[at].parent) {
      steps.push_back(Unpack(nodes_[at].key));
    }
    result_.fault = std::string(what) + ":";
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      result_.fault += "\n ";
      for (int r = 0; r < setting_.ranks; ++r) {
        const RankState& rank = step->rank[At(r)];
        result_.fault +=
            " | " + std::to_string(rank.operation) + " " +
            std::string(rank.dead ? "is dead" : kPcNames[rank.pc]) +
            (rank.pc == kWait || rank.pc == kLastTry ? " " + std::to_string(rank.next) : "") +
            (rank.finishing ? " f" : "") + (rank.dozing ? " z" : "");
      }
      if (step->broken) result_.fault += " | broken";
    }
  }

  const Setting setting_;
  const Protocol p_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> table_;  // indices of nodes, open addressing
  std::uint32_t current_ = kNothing;
  int moves_ = 0;  // that will be made if no other is
  Exploration result_;
};

}  // namespace

Exploration Explore(const Setting& setting) { return Explorer(setting).Run(); }

}  // namespace ait::shm_model
