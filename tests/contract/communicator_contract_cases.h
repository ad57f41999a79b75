// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_CONTRACT_COMMUNICATOR_CONTRACT_CASES_H_
#define AIT_TESTS_CONTRACT_COMMUNICATOR_CONTRACT_CASES_H_

// What the cases of the communicator's contract are made of: known values, memory with fences,
// expectations that are a Status, and the oracle of reductions.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ait/base/float16.h"
#include "ait/base/status.h"
#include "ait/comm/communicator.h"
#include "contract/communicator_contract.h"

namespace ait::testing {

using Group = std::shared_ptr<Communicator>;

/// Ranks by host, if the transport adds host by host (`SetContractHosts`).
const std::vector<std::vector<int>>& ContractHosts();

// The cases; each is described where it is defined.
std::vector<ContractCase> DataCases();
std::vector<ContractCase> GroupCases();
std::vector<ContractCase> FaultCases();
std::vector<ContractCase> ReachCases();
std::vector<ContractCase> SurvivorCases();

/// `combine(combine(value(0), value(1)), value(2)) …` in the order in which the transport adds.
template <typename Value, typename Combine>
auto InOrder(int size, Value value, Combine combine) {
  const auto fold = [&](const auto& ranks, auto term) {
    auto result = term(*ranks.begin());
    for (auto rank = std::next(ranks.begin()); rank != ranks.end(); ++rank) {
      result = combine(result, term(*rank));
    }
    return result;
  };
  if (ContractHosts().empty()) return fold(std::views::iota(0, size), value);
  return fold(ContractHosts(), [&](const std::vector<int>& ranks) { return fold(ranks, value); });
}

/// Element i of what rank `rank` gives: any rank can tell what any other gives.
template <typename T>
T Element(int rank, std::int64_t i) {
  auto x = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15u +
           static_cast<std::uint64_t>(rank + 1) * 0xd1b54a32d192ed03u;
  x ^= x >> 31;
  if constexpr (std::is_same_v<T, bool>) {
    return (x & 1) != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(x);
  } else {
    return static_cast<T>(static_cast<float>(static_cast<int>(x % 4001) - 2000) * 0.001f);
  }
}

/// Element i of the reduction over `size` ranks: one rank or host after the other, half floats in
/// float.
template <typename T>
T Reduced(ReduceOp op, int size, std::int64_t i) {
  if constexpr (std::is_same_v<T, bool>) {
    bool either = false;
    bool both = true;
    for (int rank = 0; rank < size; ++rank) {
      either = either || Element<bool>(rank, i);
      both = both && Element<bool>(rank, i);
    }
    return op == ReduceOp::kSum || op == ReduceOp::kMax ? either : both;
  } else {
    constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
    using A = std::conditional_t<kIsHalf, float, T>;
    const auto value = [&](int rank) { return static_cast<A>(Element<T>(rank, i)); };
    A result = InOrder(size, value, [op](A a, A b) {
      if (op == ReduceOp::kMax) return a < b ? b : a;
      if (op == ReduceOp::kMin) return b < a ? b : a;
      if constexpr (std::is_integral_v<T>) {
        const auto x = static_cast<std::uint64_t>(a);
        const auto y = static_cast<std::uint64_t>(b);
        return static_cast<A>(op == ReduceOp::kProduct ? x * y : x + y);
      } else {
        return static_cast<A>(op == ReduceOp::kProduct ? a * b : a + b);
      }
    });
    if (op == ReduceOp::kAverage) result = static_cast<A>(result / static_cast<A>(size));
    return static_cast<T>(result);
  }
}

/// `count` elements between two fences that nobody may touch.
template <typename T>
class Fenced {
 public:
  /// Elements that no case expects.
  explicit Fenced(std::int64_t count) : count_(count), bytes_(new std::byte[2 * kFence + Size()]) {
    std::memset(bytes_.get(), kMark, 2 * kFence + Size());
    if constexpr (std::is_same_v<T, bool>) std::memset(bytes_.get() + kFence, 0, Size());
  }
  Fenced(std::int64_t count, const std::function<T(std::int64_t)>& value) : Fenced(count) {
    for (std::int64_t i = 0; i < count; ++i) Set(i, value(i));
  }

  Buffer view() { return {bytes_.get() + kFence, count_, kDTypeOf<T>}; }
  ConstBuffer view() const { return {bytes_.get() + kFence, count_, kDTypeOf<T>}; }
  void Set(std::int64_t i, T value) {
    std::memcpy(bytes_.get() + kFence + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
  }

  /// Error unless all elements are equal in bits to `expected(i)` and the fences stand.
  Status Expect(std::string_view what, const std::function<T(std::int64_t)>& expected) const {
    for (std::int64_t i = 0; i < count_; ++i) {
      const T want = expected(i);
      const std::byte* seen = bytes_.get() + kFence + static_cast<std::size_t>(i) * sizeof(T);
      if (std::memcmp(seen, &want, sizeof(T)) == 0) continue;
      T value;
      std::memcpy(&value, seen, sizeof(T));
      return InternalError(what, " of ", count_, " ", Name(kDTypeOf<T>), ": element ", i, " is ",
                           static_cast<double>(static_cast<float>(value)), " and not ",
                           static_cast<double>(static_cast<float>(want)));
    }
    for (std::size_t i = 0; i < kFence; ++i) {
      if (bytes_[i] != std::byte{kMark} || bytes_[kFence + Size() + i] != std::byte{kMark}) {
        return InternalError(what, " of ", count_, " ", Name(kDTypeOf<T>), " wrote outside");
      }
    }
    return OkStatus();
  }

 private:
  static constexpr std::size_t kFence = 64;
  static constexpr std::uint8_t kMark = 0xa5;
  std::size_t Size() const { return static_cast<std::size_t>(count_) * sizeof(T); }

  std::int64_t count_;
  std::unique_ptr<std::byte[]> bytes_;
};

/// Calls `f.operator()<T>()` for the type of every dtype; returns the first error.
template <typename... Ts>
struct Types {};
template <typename F, typename... Ts>
Status ForEachType(Types<Ts...>, F f) {
  Status status;
  ((status.ok() ? void(status = f.template operator()<Ts>()) : void()), ...);
  return status;
}
using AllTypes = Types<std::uint8_t, std::int8_t, std::int16_t, std::int32_t, std::int64_t, Float16,
                       BFloat16, float, double, bool, std::uint16_t, std::uint32_t>;
using SomeTypes = Types<std::uint8_t, BFloat16, float, double>;

inline Status Expect(bool holds, std::string_view what) {
  return holds ? OkStatus() : InternalError("does not hold: ", what);
}

/// Error unless `seen` has the code and its message holds all of the words.
inline Status ExpectError(const Status& seen, StatusCode code,
                          std::initializer_list<std::string_view> words = {}) {
  if (seen.code() != code) {
    return InternalError("expected ", CodeName(code), ", saw ", seen.ToString());
  }
  for (const std::string_view word : words) {
    if (Message(seen).find(word) == std::string::npos) {
      return InternalError("expected \"", word, "\" in: ", Message(seen));
    }
  }
  return OkStatus();
}

inline std::string RankText(int rank) { return StrCat("rank ", rank); }

}  // namespace ait::testing

#endif  // AIT_TESTS_CONTRACT_COMMUNICATOR_CONTRACT_CASES_H_
