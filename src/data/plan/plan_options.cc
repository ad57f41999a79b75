// SPDX-License-Identifier: Apache-2.0
#include "ait/data/plan/plan_options.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "data/mix_internal.h"

namespace ait::inline v0 {

SampleLengths MakeSampleLengths(std::vector<std::int32_t> lengths) {
  std::uint64_t digest = internal::Fold(0, lengths.size());
  for (const std::int32_t length : lengths) {
    digest = internal::Fold(digest, static_cast<std::uint64_t>(length));
  }
  const auto kept = std::make_shared<const std::vector<std::int32_t>>(std::move(lengths));
  return {.of = [kept](std::int64_t id) -> std::int64_t {
            const auto i = static_cast<std::size_t>(id);
            return i < kept->size() ? (*kept)[i] : 0;
          },
          .digest = digest};
}

PlanSource MakePlanSource(const SampleSource& source) {
  const auto begins = source.block_begins();
  return {.name = source.name(),
          .count = source.sample_count(),
          .digest = source.digest(),
          .block_begins = {begins.begin(), begins.end()},
          .lengths = {}};
}

std::vector<std::int64_t> UniformBlocks(std::int64_t count, std::int64_t block_samples) {
  std::vector<std::int64_t> begins;
  for (std::int64_t begin = 0; begin < count; begin += block_samples) begins.push_back(begin);
  return begins;
}

std::vector<std::int64_t> MixtureWeights(const std::vector<double>& fractions, std::int64_t sum) {
  double total = 0;
  for (const double fraction : fractions) {
    if (!(fraction >= 0) || !std::isfinite(fraction)) return {};
    total += fraction;
  }
  if (!(total > 0) || !std::isfinite(total) || sum < 1 || sum > (1 << 16)) return {};
  std::vector<std::int64_t> weights;
  std::vector<std::pair<double, std::size_t>> remainders;  // negative, so that the largest is first
  std::int64_t left = sum;
  for (std::size_t i = 0; i < fractions.size(); ++i) {
    const double share = fractions[i] / total * static_cast<double>(sum);
    const double whole = share > 0 ? std::max(1.0, std::floor(share)) : 0;
    weights.push_back(static_cast<std::int64_t>(whole));
    left -= weights.back();
    if (share > 0) remainders.emplace_back(whole - share, i);
  }
  std::sort(remainders.begin(), remainders.end());
  for (std::size_t i = 0; left > 0; ++i, --left)
    ++weights[remainders[i % remainders.size()].second];
  // Small fractions that were rounded up to 1 take from the largest weight.
  for (; left < 0; ++left) {
    const auto largest = std::max_element(weights.begin(), weights.end());
    if (*largest <= 1) return {};
    --*largest;
  }
  return weights;
}

}  // namespace ait::inline v0
