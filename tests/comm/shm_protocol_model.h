// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_COMM_SHM_PROTOCOL_MODEL_H_
#define AIT_TESTS_COMM_SHM_PROTOCOL_MODEL_H_

// The protocol of the shared-memory transport (src/comm/shm_*) as a model of which every
// interleaving is explored: two or three ranks, up to three operations each, and at most one fault
// at any point of any of them. In every state it must hold that
//
//   - no live rank touches the buffer of a rank whose operation has returned, nor staging memory
//     that its owner fills anew;
//   - results are right, and without a fault every operation succeeds;
//   - an operation that a rank has ended well does not fail on another live rank, if it was direct
//     or the group broke later;
//   - somebody can go on until every live rank has ended all its operations: no deadlock, and no
//     rank that sleeps after its call to wake up was lost.
//
// The model follows the code: each access to a shared word is a step of its own, and what a rank
// does to the memory of others is an interval between two steps. It leaves out: memory that is not
// sequentially consistent (the code orders the words in question by seq_cst), threads within a rank
// but the one that aborts, operations of several chunks, ranks that are stopped for longer than the
// grace period, and signatures that differ. A sleep ends by time only where the code counts on that:
// at the own deadline, and in the look whether peers live.

#include <cstddef>
#include <string>
#include <vector>

namespace ait::shm_model {

/// How the memory of an operation is reached: in the arenas, or through staging memory.
enum class Kind { kDirect, kStaged };

enum class Fault {
  kNone,
  kDeadline,  // that of one rank passes while it waits
  kAbort,     // another thread of a rank aborts the group
  kKill,      // one rank dies
  kLeave,     // one rank leaves before one of its operations
  kAbsent,    // the last rank never begins its last operation; a deadline passes
};

/// The precautions, each of which can be left out.
struct Protocol {
  bool looks_again = true;      // whether the group is broken, after it has seen all arrive
  bool becomes_quiet = true;    // waits until no peer touches its buffer, before it fails
  bool waits_for_done = true;   // of all ranks, before a direct operation succeeds
  bool announces_sleep = true;  // before it looks whether what it waits for is there
  bool publishes_first = true;  // before it looks whether somebody sleeps
  bool rings_bell = true;       // for those who are about to sleep
  bool tells_ended = true;      // that it has seen the group broken
  bool tries_again = true;      // whether all have come, after it has seen the group broken
  bool has_two_halves = true;   // of staging memory
};

struct Setting {
  int ranks = 2;                                                  // or 3
  std::vector<Kind> operations = {Kind::kDirect, Kind::kDirect};  // 1 to 3
  Fault fault = Fault::kNone;
  bool sleeps = true;  // ranks that wait may sleep; else they look forever
  Protocol protocol = {};
};

struct Exploration {
  std::string fault;  // what is wrong in the first wrong state, and the steps to it; else empty
  std::size_t states = 0;
  bool saw_success = false;  // of an operation
  bool saw_failure = false;
};

/// Visits every state, breadth first, until one is wrong. Up to 100 bytes a state.
Exploration Explore(const Setting& setting);

}  // namespace ait::shm_model

#endif  // AIT_TESTS_COMM_SHM_PROTOCOL_MODEL_H_
