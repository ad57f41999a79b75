// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_HIERARCHICAL_COLLECTIVES_H_
#define AIT_COMM_HIERARCHICAL_COLLECTIVES_H_

// The collectives of several hosts, made of those inside a host and those between hosts.
//
// A buffer goes through its steps in chunks. Step s of chunk k starts when step s - 1 of it is done,
// and a fixed number of chunks after step 0, so that all ranks start the same operations in the same
// order and the one between hosts never waits for those inside.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/hierarchical.h"
#include "ait/comm/operation.h"
#include "ait/comm/work.h"
#include "ait/memory/buffer.h"
#include "ait/memory/resource.h"
#include "comm/host_layout.h"

namespace ait::inline v0::internal {

/// The groups that carry the steps.
enum class Line {
  kInside,  // the ranks of this host, by local number
  kColumn,  // the ranks of this local number, by host
  kAll,     // all, by rank
};

/// Starts steps and waits for them. One that fails ends the group; then all fail.
class HierarchicalLines {
 public:
  virtual ~HierarchicalLines() = default;
  virtual Work Begin(Line line, Operation operation) = 0;
  virtual Status Await(const Work& work) = 0;
};

/// Carries out the collectives of one rank, one at a time. Used by one thread.
class HierarchicalCollectives {
 public:
  struct Options {
    int rank = 0;
    HostLayout layout;
    HierarchicalTuning tuning;
    MemoryHandle memory;  // of the transport inside; for scratch
  };
  HierarchicalCollectives(HierarchicalLines& lines, Options options);

  /// **Blocks.** Until the operation is done, or a step has failed; steps that were started may then
  /// still run.
  Status Run(const Operation& operation);

 private:
  /// In what partial results are kept and sent.
  struct Numbers {
    DType sum;
    DType wire;
    ReduceOp reduce;  // without the division
    bool average = false;
  };
  /// One step of every chunk; none if there is nothing to do for this rank.
  using Step = std::function<StatusOr<std::optional<Work>>(std::int64_t chunk)>;
  struct LaggedStep {
    std::int64_t lag;  // chunks behind the first step
    Step start;
  };
  enum Use { kPartial, kWire, kGathered, kUses };

  Numbers NumbersOf(const Operation& operation) const;
  Status RunPipeline(std::int64_t chunks, std::span<const LaggedStep> steps);

  Status AllReduce(const Operation& operation);
  Status ReduceScatter(const Operation& operation);
  Status AllGather(const Operation& operation);
  Status Broadcast(const Operation& operation);
  /// All ranks show each other what they mean.
  Status Meet(const Operation& operation);
  Work BeginMeeting(const Operation& operation);
  Status EndMeeting(const Work& work);
  Status Forward(const Operation& operation);

  /// Elements of a chunk of each column, by local number; zero outside the columns.
  std::vector<std::int64_t> SectionsOf(std::int64_t count, DType dtype) const;
  /// `of_column(c)` by local number.
  std::vector<std::int64_t> ByLocal(const std::function<std::int64_t(int)>& of_column) const;
  std::vector<std::int64_t> HostParts(std::int64_t count, DType dtype) const;
  bool is_column() const { return local_ < layout().width; }
  bool is_alone() const { return local_size_ == 1; }
  const HostLayout& layout() const { return options_.layout; }

  Work BeginReduceScatter(Line line, const Buffer& buffer, std::vector<std::int64_t> counts,
                          ReduceOp reduce);
  Work BeginAllGather(Line line, ConstBuffer input, const Buffer& output,
                      std::vector<std::int64_t> counts);
  /// In place: the input is this rank's part of `buffer`.
  Work BeginAllGather(Line line, const Buffer& buffer, std::vector<std::int64_t> counts);

  /// Memory for a step of a chunk; kept for the next operation.
  StatusOr<Buffer> Scratch(Use use, std::int64_t chunk, std::int64_t count, DType dtype);

  HierarchicalLines& lines_;
  const Options options_;
  const int host_, local_, local_size_;
  std::int64_t slots_ = 1;  // chunks under way in the present operation
  std::array<std::vector<HostBuffer>, kUses> scratch_;
  std::vector<std::int64_t> signatures_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_HIERARCHICAL_COLLECTIVES_H_
