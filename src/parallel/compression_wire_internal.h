// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_COMPRESSION_WIRE_INTERNAL_H_
#define AIT_PARALLEL_COMPRESSION_WIRE_INTERNAL_H_

// The communicator as one reduction of a bucket sees it: counts what goes over the wire, and
// leaves nothing in flight when it goes out of scope.

#include <vector>

#include "ait/comm/communicator.h"
#include "ait/parallel/step_counters.h"

namespace ait::inline v0::internal {

class Wire {
 public:
  Wire(Communicator& communicator, const OperationOptions& options, CompressionCounters& counters)
      : communicator_(communicator), options_(options), counters_(counters) {}
  /// A reduction that returns early has failed: aborts the communicator and waits.
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  WorldSize size() const { return communicator_.size(); }
  Rank rank() const { return communicator_.rank(); }
  CompressionCounters& counters() { return counters_; }

  Work AllReduceSum(Buffer buffer);
  /// Equal parts.
  Work AllToAll(ConstBuffer input, Buffer output);
  /// In place: this rank's part of `output` is given.
  Work AllGatherInPlace(Buffer output);

 private:
  Work Count(Work work, std::int64_t handed, std::int64_t sent);

  Communicator& communicator_;
  const OperationOptions& options_;
  CompressionCounters& counters_;
  std::vector<Work> issued_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_COMPRESSION_WIRE_INTERNAL_H_
