// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ait/data/dataset_state.h"
#include "ait/data/plan/plan_agreement.h"

namespace ait::inline v0 {
namespace {

// Follows the order through the batches.
class Order {
 public:
  Order(const BatchPlan& plan, const DatasetState& from)
      : plan_(plan), epoch_(from.epoch), position_(from.delivered) {}

  // The samples of the next rank of a batch.
  Status Take(int rank, const PlannedBatch& batch) {
    for (const PlannedSample& sample : batch.samples) {
      if (sample.is_padding) {
        is_padding_ = true;
        continue;
      }
      if (is_padding_) {
        return InternalError("rank ", rank, " gets position ", sample.position, " of epoch ",
                             sample.epoch, " after padding");
      }
      if (position_ == plan_.epoch_size(epoch_)) ++epoch_, position_ = 0;
      if (sample.epoch == epoch_ + 1 && sample.position == 0) ++epoch_, position_ = 0;  // dropped
      if (sample.epoch != epoch_ || sample.position != position_) {
        return InternalError("rank ", rank, " gets position ", sample.position, " of epoch ",
                             sample.epoch, " where position ", position_, " of epoch ", epoch_,
                             " comes next");
      }
      ++position_;
      ++taken_;
    }
    return OkStatus();
  }

  // After all ranks of a batch.
  Status Finish(const PlannedBatch& batch) {
    if (taken_ != batch.global_samples) {
      return InternalError("the ranks get ", taken_, " samples of a batch of ",
                           batch.global_samples);
    }
    const bool at_end = position_ == plan_.epoch_size(epoch_);
    const DatasetState here = {batch.after.plan_digest, epoch_, position_};
    const DatasetState next = {batch.after.plan_digest, epoch_ + 1, 0};
    if (batch.after != here && !(at_end && batch.after == next)) {
      return InternalError("the state after it is ", ToJson(batch.after), " and not ",
                           ToJson(at_end ? next : here));
    }
    taken_ = 0;
    is_padding_ = false;
    return OkStatus();
  }

 private:
  const BatchPlan& plan_;
  std::int64_t epoch_;
  std::int64_t position_;
  std::int64_t taken_ = 0;
  bool is_padding_ = false;
};

Status VerifyBatch(const BatchPlan& plan, WorldSize world, const DatasetState& at, Order& order,
                   PlannedBatch& batch) {
  PlannedBatch first;
  std::int64_t least_rows = 0;
  std::int64_t most_rows = 0;
  for (int rank = 0; rank < world.value(); ++rank) {
    const Shard shard = {.rank = Rank(rank), .size = world};
    const Status status = plan.NextBatch(at, shard, batch);
    if (!status.ok()) return Annotate(status, StrCat("rank ", rank));
    const auto rows = static_cast<std::int64_t>(
        batch.row_begins.empty() ? batch.samples.size() : batch.row_begins.size() - 1);
    if (rank == 0) {
      first = batch;
      least_rows = most_rows = rows;
    }
    if (batch.after != first.after || batch.is_end != first.is_end ||
        batch.global_samples != first.global_samples) {
      return InternalError("rank ", rank, " is at ", ToJson(batch.after), " after ",
                           batch.global_samples, " samples, and rank 0 at ", ToJson(first.after),
                           " after ", first.global_samples);
    }
    least_rows = std::min(least_rows, rows);
    most_rows = std::max(most_rows, rows);
    AIT_RETURN_IF_ERROR(order.Take(rank, batch));
  }
  if (most_rows > least_rows + 1) {
    return InternalError("a rank gets ", most_rows, " rows and another ", least_rows);
  }
  return batch.is_end ? OkStatus() : order.Finish(batch);
}

}  // namespace

Status VerifyPlan(const BatchPlan& plan, WorldSize world, const DatasetState& from,
                  std::int64_t most_batches) {
  Order order(plan, from);
  DatasetState at = from;
  PlannedBatch batch;
  for (std::int64_t number = 0; number < most_batches; ++number) {
    const Status status = VerifyBatch(plan, world, at, order, batch);
    if (!status.ok()) {
      return Annotate(status, StrCat("the batch at ", ToJson(at), " for ", world, " ranks"));
    }
    if (batch.is_end) break;
    if (batch.after == at) {
      return InternalError("the batch at ", ToJson(at), " has no sample and is no end");
    }
    at = batch.after;
  }
  return OkStatus();
}

}  // namespace ait::inline v0
