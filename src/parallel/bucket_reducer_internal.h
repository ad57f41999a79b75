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

namespace ait::inline v0::internal {

class BucketReducer {
 public:
  /// `gradients[g]` is the flat gradient buffer of group g. `handles[p]` is how many times
  /// parameter p must be marked: once for each tensor that stands for it. `compression`, if there
  /// is one, takes the place of the all-reduce; both outlive the reducer.
  BucketReducer(Communicator& communicator, const FlatLayout& layout, std::vector<Buffer> gradients,
                std::vector<int> handles, OperationOptions options,
                GradientCompression* compression = nullptr);
  /// Aborts the communicator if reductions are in flight, and waits for them to end.
  ~BucketReducer();

  /// Starts a round: nothing is ready.
  void Begin();

  /// One tensor of parameter `owner` has its gradient. Issues every bucket that is complete and
  /// whose turn it is.
  void MarkReady(int owner);

  /// Issues all that are left: backward has ended.
  void IssueRest();

  /// **Blocks.** Until the buckets are reduced, in order; `then(b)` is called as soon as bucket b
  /// is. After an error the communicator is aborted and nothing is in flight.
  Status Finish(const std::function<void(int bucket)>& then);

  /// Adds what this round did to `counters`. `start` and `end` are those of backward.
  void Report(Time start, Time end, StepCounters& counters) const;

  /// True once the bucket of parameter `owner` was issued: nobody may write to it.
  bool IsIssued(int owner) const { return bucket_of_[static_cast<std::size_t>(owner)] < next_; }
  /// "bucket 3 (head.weight, head.bias and 4 more)", the one that holds `owner`.
  const std::string& LabelOf(int owner) const {
    return buckets_[static_cast<std::size_t>(bucket_of_[static_cast<std::size_t>(owner)])].label;
  }

  int unissued() const { return static_cast<int>(buckets_.size()) - next_; }

 private:
  struct Bucket {
    Buffer buffer;
    std::string label;
    int expected = 0;  // marks
    int pending = 0;
    int unused = 0;
    Time ready{};
    Duration exposed{};
    Work work;
    CompressionCounters compressed;
  };
  void Issue();

  Communicator& communicator_;
  const FlatLayout& layout_;
  OperationOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;  // by parameter
  int next_ = 0;                // the bucket whose turn it is
  bool in_flight_ = false;
  std::unique_ptr<CompressionQueue> queue_;  // null without compression
};

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_BUCKET_REDUCER_INTERNAL_H_
