// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_SHM_LAYOUT_H_
#define AIT_COMM_SHM_LAYOUT_H_

// What the ranks of a shared-memory group see of each other.
//
// A group has one block of control memory, in the arena of its first rank: a header, then a line, a
// text and a table of counts per rank. All but the header has a single writer, the rank it belongs
// to. Work is counted in rounds: every rank publishes that it has come to a round, and, where peers
// touch its buffers, that it has done its part. Nothing here is ever locked, so a rank that dies
// leaves nothing locked behind it.
//
// The order of the words matters: `arrived` and `done` are published with sequential consistency, so
// that a rank which breaks the group, or falls asleep, and one that arrives cannot both overlook the
// other (Dekker).

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "ait/comm/operation.h"

namespace ait::inline v0::internal {

/// Offset of a buffer that does not lie in its rank's arena.
constexpr std::uint64_t kForeign = ~std::uint64_t{0};
/// Of one that is empty, or that nobody reads: it is everywhere.
constexpr std::uint64_t kNothing = ~std::uint64_t{0} - 1;

struct alignas(128) ShmHeader {
  std::atomic<std::uint32_t> broken{0};    // 1 + the rank that broke the group; its text says why
  std::atomic<std::uint32_t> sleepers{0};  // ranks that may sleep on `bell`
  std::atomic<std::uint32_t> bell{0};      // futex; rung after every publication that may wake one
};

/// True if a counter has come to `round`; right also where counters wrap around.
inline bool Reached(std::uint64_t counter, std::uint64_t round) {
  return static_cast<std::int64_t>(counter - round) >= 0;
}

struct alignas(128) ShmLine {
  // The first cache line is all that peers read of an operation that goes well. What describes an
  // operation has two places, used in turn: a rank that has gone on to the next operation does not
  // touch what a slower one still reads.
  std::atomic<std::uint64_t> arrived{0};      // the round this rank has come to
  std::atomic<std::uint64_t> done{0};         // the round whose part it has finished
  std::atomic<std::uint64_t> signature[2]{};  // of the operation it has come with
  std::atomic<std::uint64_t> where[2]{};      // what peers read: offset in its arena, or kForeign
  std::atomic<std::uint32_t> ended{0};        // it has given the group up and touches nothing more
  std::atomic<std::uint32_t> left{0};         // its communicator is gone

  std::atomic<std::uint32_t> released{0};  // … and so is its member block
  std::atomic<std::uint32_t> joined{0};    // it has entered the group
  std::atomic<std::uint64_t> block{0};     // offset of its member block in its arena

  // For messages: what it came with last, and what it said it was doing.
  std::atomic<std::uint64_t> what{0};  // kind, reduction, dtype and root, packed
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> sequence{0};  // of the collective
  std::atomic<std::int64_t> since{0};      // steady clock, ns, when it came
  std::atomic<std::uint64_t> label[6]{};
  std::atomic<std::int64_t> step{-1};
  std::atomic<std::uint64_t> phase[2]{};
  std::atomic<std::int64_t> noted{0};  // steady clock, ns, of step and phase

  // Forming other groups: the control block that this rank, as their first, offers.
  std::atomic<std::uint64_t> offer_id{0};
  std::atomic<std::uint64_t> offer{0};      // offset in its arena
  std::atomic<std::uint64_t> survivors{0};  // times it has asked for the group of the survivors
};

/// Texts are written once, before the flag that shows them.
struct ShmText {
  static constexpr std::size_t kBytes = 1000;
  std::atomic<std::uint32_t> described{0};  // `description` is there
  std::int32_t code = 0;                    // of `reason`
  char reason[kBytes] = {};                 // why this rank broke the group
  char description[kBytes] = {};            // the operation that did not fit
};

inline void StoreText(std::atomic<std::uint64_t>* words, std::size_t count, std::string_view text) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t word = 0;
    if (const std::size_t at = i * 8; at < text.size()) {
      std::memcpy(&word, text.data() + at, std::min<std::size_t>(8, text.size() - at));
    }
    words[i].store(word, std::memory_order_relaxed);
  }
}

inline std::string LoadText(const std::atomic<std::uint64_t>* words, std::size_t count) {
  std::string text(count * 8, '\0');
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word = words[i].load(std::memory_order_relaxed);
    std::memcpy(text.data() + i * 8, &word, 8);
  }
  return text.substr(0, text.find('\0'));
}

/// Where the parts of a control block lie.
struct ShmControlLayout {
  explicit ShmControlLayout(int size)
      : lines(sizeof(ShmHeader)),
        texts(lines + sizeof(ShmLine) * static_cast<std::size_t>(size)),
        counts(texts + sizeof(ShmText) * static_cast<std::size_t>(size)),
        bytes(counts + 4 * sizeof(std::int64_t) * static_cast<std::size_t>(size) *
                           static_cast<std::size_t>(size)) {}
  std::size_t lines;
  std::size_t texts;
  std::size_t counts;  // per rank and place: counts, then receive_counts
  std::size_t bytes;
};

/// One direction between two ranks: a ring of bytes that the sender fills.
struct alignas(128) ShmRing {
  alignas(128) std::atomic<std::uint64_t> written{0};
  alignas(128) std::atomic<std::uint64_t> read{0};
};

/// Where the parts of a member block lie: four quarters of staging memory, then for every rank an
/// answer ring and a message ring.
struct ShmMemberLayout {
  ShmMemberLayout(int size, std::size_t least_staging)
      : quarter(RoundUpTo(std::max(least_staging, static_cast<std::size_t>(size) * kLeastPart * 4),
                          std::size_t{64} << 10) /
                4),
        message_bytes(RoundUpTo(
            std::clamp<std::size_t>((std::size_t{256} << 10) / static_cast<std::size_t>(size),
                                    std::size_t{8} << 10, std::size_t{128} << 10),
            128)),
        ring(2 * sizeof(ShmRing) + kAnswerBytes + message_bytes),
        bytes(4 * quarter + ring * static_cast<std::size_t>(size)) {}
  static constexpr std::size_t RoundUpTo(std::size_t n, std::size_t step) {
    return (n + step - 1) / step * step;
  }
  /// What a quarter holds at least for each rank, so that many ranks do not take tiny steps.
  static constexpr std::size_t kLeastPart = 4096;
  static constexpr std::size_t kAnswerBytes = 4096;
  std::size_t quarter;
  std::size_t message_bytes;
  std::size_t ring;  // both rings of one peer
  std::size_t bytes;
  std::size_t answers(int peer) const {
    return 4 * quarter + ring * static_cast<std::size_t>(peer);
  }
  std::size_t messages(int peer) const { return answers(peer) + sizeof(ShmRing) + kAnswerBytes; }
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(ShmRing) == 256 && ShmMemberLayout::kAnswerBytes % 128 == 0);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_SHM_LAYOUT_H_
