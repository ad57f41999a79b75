// SPDX-License-Identifier: Apache-2.0
#include "ait/data/plan/plan_options.h"

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

}  // namespace ait::inline v0
