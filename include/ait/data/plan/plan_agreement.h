// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PLAN_PLAN_AGREEMENT_H_
#define AIT_DATA_PLAN_PLAN_AGREEMENT_H_

// Do all ranks read from the same plan, each its own part of it?
//
// Ranks that read overlapping shards, or other files, or an order of their own seed train on, only
// on the wrong data. One call before the first batch turns that into an error on every rank that
// names the ranks and says what differs:
//
//   AIT_RETURN_IF_ERROR(AgreeOnPlan(*world->communicator(), plan, world->shard(), state));
//   // ranks do not have the same plan: rank 0 has seed: 1, rank 3 has seed: 4; …
//   // ranks 0, 2 read part 0 of 4, and nobody reads part 2; …

#include <cstdint>

#include "ait/base/shard.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/communicator.h"
#include "ait/data/plan/batch_plan.h"

namespace ait::inline v0 {

/// Compares plan, state and parts over the ranks, and the samples that each rank gets in its next
/// batch with those that the plans of the others give to it. `communicator` has the ranks that
/// share the data and no others: where several ranks work on the same samples, as in tensor
/// parallelism, a group of one of each.
///
/// **Collective. Blocks.** All ranks, each with its own plan, part and state.
/// **Errors.** The same on every rank. InvalidArgument: another plan, batch or state; parts that
/// overlap or are missing; samples that differ. What `NextBatch` returned on a rank; those of the
/// communicator. **Cost.** Each rank plans one batch of all ranks.
Status AgreeOnPlan(Communicator& communicator, const BatchPlan& plan, const Shard& shard,
                   const DatasetState& from, OperationOptions options = {});

/// The same before the first batch.
Status AgreeOnPlan(Communicator& communicator, const BatchPlan& plan, const Shard& shard,
                   OperationOptions options = {});

/// Walks through at most `most_batches` batches from `from` for all ranks of a world, and checks
/// what a plan promises: states and ends are equal on all ranks; together they get every position
/// of an epoch once, in order, and what is left out lies at the end of one; their parts of a batch
/// differ by at most one row. For tests of a plan of your own.
/// **Errors.** Internal says which rank, batch, epoch and position; those of `NextBatch`.
Status VerifyPlan(const BatchPlan& plan, WorldSize world, const DatasetState& from,
                  std::int64_t most_batches);

}  // namespace ait::inline v0

#endif  // AIT_DATA_PLAN_PLAN_AGREEMENT_H_
