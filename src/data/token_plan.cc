// SPDX-License-Identifier: Apache-2.0
#include "data/token_plan_internal.h"

#include <algorithm>

#include "data/json_internal.h"
#include "data/plan/part_of_internal.h"

namespace ait::inline v0::internal {

Status TokenPlan::NextBatch(const DatasetState& from, const Shard& shard,
                            PlannedBatch& batch) const {
  if (from.plan_digest != facts_.digest) {
    return FailedPreconditionError("the state ", ToJson(from), " belongs to another plan");
  }
  batch = {.after = from};
  const std::int64_t count = facts_.sample_count;
  std::int64_t rows = options_.global_batch_size;
  // Of the end of the data only the last batch sees anything.
  if (options_.epochs - from.epoch <= (from.delivered + rows) / count) {
    rows = std::min(rows, (options_.epochs - from.epoch) * count - from.delivered);
  }
  const bool is_short = rows < options_.global_batch_size;
  if (rows <= 0 || (is_short && options_.last_batch == LastBatch::kDrop)) {
    batch.is_end = true;
    return OkStatus();
  }
  const std::int64_t size = shard.size.value();
  const RowRange range =
      PartOf(shard, rows, ((from.epoch % size) * (count % size) + from.delivered) % size);
  for (std::int64_t row = range.begin; row < range.end; ++row) {
    const std::int64_t place = from.delivered + row;
    PlannedSample sample{.epoch = from.epoch + place / count, .position = place % count};
    sample.id = options_.order == SampleOrder::kSequential
                    ? sample.position
                    : Permutation(count, options_.seed, sample.epoch)(sample.position);
    batch.samples.push_back(sample);
  }
  batch.global_samples = rows;
  batch.after.epoch += (from.delivered + rows) / count;
  batch.after.delivered = (from.delivered + rows) % count;
  return OkStatus();
}

std::vector<std::string> TokenPlan::Facts() const {
  return {StrCat("corpus: ", HexDigits(facts_.corpus_digest, 16)),
          StrCat("tokens: ", facts_.token_count),
          StrCat("sequence length: ", options_.sequence_length),
          StrCat("order: ", options_.order == SampleOrder::kSequential ? "sequential" : "shuffled"),
          StrCat("seed: ", options_.seed),
          StrCat("global batch size: ", options_.global_batch_size),
          StrCat("epochs: ", options_.epochs)};
}

}  // namespace ait::inline v0::internal
