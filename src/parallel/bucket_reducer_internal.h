// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_BUCKET_REDUCER_INTERNAL_H_
#define AIT_PARALLEL_BUCKET_REDUCER_INTERNAL_H_

// Reduces the buckets of a layout as they fill, always in the order of the layout, so that all
// ranks issue the same collectives whatever backward does on each. Knows nothing of tensors.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/comm/communicator.h"
#include "ait/parallel/compression.h"
#include "ait/parallel/flat_layout.h"
#include "ait/parallel/step_counters.h"
#include "parallel/compression_queue_internal.h"
#include "parallel/gradient_store_internal.h"

namespace ait::inline v0::internal {

/// Who reduces what.
struct ReducerOptions {
  Communicator& shard;                // the ranks that own slices
  Communicator* replicate = nullptr;  // then these add up the slice, if it is not null
  bool scatter = false;               // a rank gets the sum of its slice; else everybody the whole
  OperationOptions operation;
  GradientCompression* compression = nullptr;  // in the place of the all-reduce
  /// By parameter: how many times it must be marked, once for each tensor that stands for it.
  std::vector<int> handles;
};

class BucketReducer {
 public:
  using OnReduced = std::function<void(std::int64_t begin, std::int64_t count)>;

  /// The communicators and the compression outlive the reducer.
  BucketReducer(const FlatLayout& layout, ReducerOptions options);
  /// Aborts the communicators if reductions are in flight, and waits for them to end.
  ~BucketReducer();

  /// Where the buckets lie, before anything else; outlives the reducer, or is gone before anything
  /// else is called.
  void SetStore(GradientStore* store) { store_ = store; }
  /// `on_reduced(b)` makes the callback of the reduce-scatter of bucket b, or none; `then(b)` is
  /// called when bucket b is reduced.
  void SetCallbacks(std::function<OnReduced(int bucket)> on_reduced,
                    std::function<void(int bucket)> then);

  /// Starts a round: nothing is ready.
  void Begin();

  /// One tensor of parameter `owner` has its gradient. Issues every bucket that is complete and
  /// whose turn it is, and looks after those in flight.
  void MarkReady(int owner);

  /// Issues all that are left: backward has ended.
  void IssueRest();

  /// **Blocks.** Until the oldest bucket in flight is reduced; false if none is.
  StatusOr<bool> WaitForOne();

  /// The same without waiting: false too if the oldest is still being reduced.
  StatusOr<bool> TakeOneIfDone();

  /// **Blocks.** Until the buckets are reduced, in order. After an error the communicators are
  /// aborted and nothing is in flight.
  Status Finish();

  /// Adds what this round did to `counters`. `start` and `end` are those of backward.
  void Report(Time start, Time end, StepCounters& counters) const;

  /// True once the bucket of parameter `owner` was issued: nobody may write to it.
  bool IsIssued(int owner) const { return bucket_of_[static_cast<std::size_t>(owner)] < next_; }
  /// "bucket 3 (head.weight, head.bias and 4 more)", the one that holds `owner`.
  const std::string& LabelOf(int owner) const {
    return LabelOfBucket(bucket_of_[static_cast<std::size_t>(owner)]);
  }
  const std::string& LabelOfBucket(int b) const {
    return buckets_[static_cast<std::size_t>(b)].label;
  }

  int unissued() const { return static_cast<int>(buckets_.size()) - next_; }
  /// Of this round, what `WaitForOne` took.
  Duration stalled() const { return stalled_; }

 private:
  struct Bucket {
    std::string label;
    int expected = 0;  // marks
    int pending = 0;
    int unused = 0;
    Time ready{};
    Duration exposed{};
    std::int64_t bytes = 0;
    Buffer output;  // of the reduce-scatter
    bool moves = false;
    Work work;
    Work across;  // the sum over replicas, once `work` is done
    CompressionCounters compressed;
  };
  Bucket& At(int b) { return buckets_[static_cast<std::size_t>(b)]; }
  bool is_alone() const { return shard_.size().value() == 1 && replicate_ == nullptr; }
  void Issue();
  void Poll();
  void Cross();
  void TakeFront();
  void Fail(const Status& status, const Bucket& bucket);

  const FlatLayout& layout_;
  Communicator& shard_;
  Communicator* replicate_;
  const bool scatter_;
  OperationOptions options_;
  GradientStore* store_ = nullptr;
  std::function<OnReduced(int)> on_reduced_;
  std::function<void(int)> then_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;  // by parameter
  // Buckets below `taken_` are reduced, those below `crossed_` were handed to the replicas, those
  // below `next_` were issued.
  int taken_ = 0;
  int crossed_ = 0;
  int next_ = 0;
  Status failed_;  // of this round
  Duration stalled_{};
  std::unique_ptr<CompressionQueue> queue_;  // null without compression
};

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_BUCKET_REDUCER_INTERNAL_H_
