// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_TOKEN_PLAN_INTERNAL_H_
#define AIT_DATA_TOKEN_PLAN_INTERNAL_H_

// The order of a TokenDataset as a plan, for those who compare plans.

#include <cstdint>
#include <string>
#include <vector>

#include "ait/data/plan/batch_plan.h"
#include "ait/data/token_dataset.h"

namespace ait::inline v0 {
namespace internal {

struct TokenPlanFacts {
  std::uint64_t corpus_digest = 0;
  std::int64_t token_count = 0;
  std::int64_t sample_count = 0;
  std::uint64_t digest = 0;
};

class TokenPlan final : public BatchPlan {
 public:
  TokenPlan(const TokenPlanFacts& facts, const TokenDatasetOptions& options)
      : facts_(facts), options_(options) {}

  std::uint64_t digest() const override { return facts_.digest; }
  std::int64_t epoch_size(std::int64_t) const override { return facts_.sample_count; }
  Status NextBatch(const DatasetState& from, const Shard& shard,
                   PlannedBatch& batch) const override;
  std::vector<std::string> Facts() const override;

 private:
  const TokenPlanFacts facts_;
  const TokenDatasetOptions& options_;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_TOKEN_PLAN_INTERNAL_H_
