// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_TYPES_H_
#define AIT_BASE_TYPES_H_

// Numbers that must not be mixed up: a rank is not a world size, and a byte count is not an element
// count.
//
// Each is an integer in a type of its own, made explicitly and read by `value()`:
//
//   void Join(Rank rank, WorldSize size);
//   Join(Rank(0), WorldSize(2));        // compiles
//   Join(WorldSize(2), Rank(0));        // does not, nor does Join(0, 2)

#include <compare>
#include <cstddef>
#include <cstdint>

namespace ait::inline v0 {

/// An integer with a meaning. `Tag` makes the type unique; `Rep` is what it holds.
template <typename Tag, typename Rep>
class StrongInt {
 public:
  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  constexpr auto operator<=>(const StrongInt&) const = default;

 private:
  Rep value_ = 0;
};

/// Position of a process in its group: 0 ≤ rank < world size.
using Rank = StrongInt<struct RankTag, int>;

/// Number of ranks of a group, at least 1.
using WorldSize = StrongInt<struct WorldSizeTag, int>;

/// A size or offset in bytes.
using Bytes = StrongInt<struct BytesTag, std::int64_t>;

constexpr Bytes KiB(std::int64_t n) { return Bytes(n << 10); }
constexpr Bytes MiB(std::int64_t n) { return Bytes(n << 20); }
constexpr Bytes GiB(std::int64_t n) { return Bytes(n << 30); }

/// Least multiple of `step` that is at least `n`. `n` ≥ 0, `step` > 0.
constexpr std::int64_t RoundUp(std::int64_t n, std::int64_t step) {
  return (n + step - 1) / step * step;
}

static_assert(sizeof(Rank) == sizeof(int) && sizeof(Bytes) == 8);

}  // namespace ait::inline v0

#endif  // AIT_BASE_TYPES_H_
