// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <tuple>

#include "data/plan/mix_pattern_internal.h"

namespace ait::inline v0 {
namespace internal {

// Tijdeman, "The chairman assignment problem" (1980): with n sources the turns can always be dealt
// so that none is ahead or behind by more than 1 - 1/D, D = 2n - 2. Steiner and Yeomans, "Level
// schedules for mixed-model, just-in-time processes" (1993): turn k of a source (from 1) then lies
// between a first and a last place, and taking the turn that must come soonest finds such a deal.
// With W weights in all and w of the source, counting places from 1:
//   first = ceil(((k-1)·D + 1)·W / (D·w)),   last = floor((k·D - 1)·W / (D·w)) + 1

StatusOr<MixPattern> MixPattern::Create(std::vector<std::int64_t> weights) {
  std::int64_t divisor = 0;
  for (const std::int64_t weight : weights) divisor = std::gcd(divisor, weight);
  std::int64_t total = 0;
  for (std::int64_t& weight : weights) {
    weight /= divisor;
    total += std::min(weight, kMaxPeriod + 1);
  }
  if (total > kMaxPeriod) {
    return InvalidArgumentError("the weights of the mixture add up to ", total,
                                " or more when divided by their common divisor ", divisor,
                                ", at most ", kMaxPeriod, " are allowed: round them");
  }
  MixPattern pattern;
  const auto n = static_cast<std::int64_t>(weights.size());
  const std::int64_t d = std::max<std::int64_t>(2 * n - 2, 1);
  // Next turn of every source: waiting for its first place, or waiting to be dealt by its last.
  using Turn = std::tuple<std::int64_t, std::int32_t>;  // place, source
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> waiting, ready;
  std::vector<std::int64_t> had(weights.size());
  const auto wait_for = [&](std::int32_t source) {
    const auto s = static_cast<std::size_t>(source);
    const std::int64_t divide = d * weights[s];
    if (had[s] < weights[s]) {
      waiting.emplace(((had[s] * d + 1) * total + divide - 1) / divide, source);
    }
  };
  pattern.places_.resize(weights.size());
  for (std::int32_t s = 0; s < n; ++s) wait_for(s);
  for (std::int64_t place = 1; place <= total; ++place) {
    for (; !waiting.empty() && std::get<0>(waiting.top()) <= place; waiting.pop()) {
      const std::int32_t source = std::get<1>(waiting.top());
      const auto s = static_cast<std::size_t>(source);
      ready.emplace(((had[s] + 1) * d - 1) * total / (d * weights[s]) + 1, source);
    }
    if (ready.empty()) return InternalError("no source has a turn at place ", place);
    const std::int32_t source = std::get<1>(ready.top());
    ready.pop();
    const auto s = static_cast<std::size_t>(source);
    pattern.entries_.push_back({source, static_cast<std::int32_t>(had[s])});
    pattern.places_[s].push_back(static_cast<std::int32_t>(place - 1));
    ++had[s];
    wait_for(source);
  }
  pattern.weights_ = std::move(weights);
  return pattern;
}

std::int64_t MixPattern::CountBefore(std::size_t source, std::int64_t place) const {
  const auto& places = places_[source];
  return place / period() * weights_[source] +
         (std::lower_bound(places.begin(), places.end(), place % period()) - places.begin());
}

std::int64_t MixPattern::PlaceOf(std::size_t source, std::int64_t number) const {
  const std::int64_t weight = weights_[source];
  std::int64_t place;
  if (__builtin_mul_overflow(number / weight, period(), &place) ||
      __builtin_add_overflow(place, places_[source][static_cast<std::size_t>(number % weight)],
                             &place)) {
    return std::numeric_limits<std::int64_t>::max();
  }
  return place;
}

}  // namespace internal
}  // namespace ait::inline v0
