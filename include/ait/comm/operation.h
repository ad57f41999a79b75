// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_OPERATION_H_
#define AIT_COMM_OPERATION_H_

// `Operation`: one collective as data. `Communicator` makes and checks it, a `Transport` carries it
// out.
//
// Users of collectives do not need this header; writers of transports do.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/types.h"
#include "ait/comm/buffer.h"

namespace ait::inline v0 {

enum class OperationKind : std::uint8_t {
  kBroadcast = 1,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kGather,
  kScatter,
  kSend,
  kReceive,
  kBarrier,
};

/// How elements of several ranks become one, in rank order. Sums and products of fp16 and bf16 are
/// made in fp32 and rounded once; those of integers wrap around. kAverage is the sum, divided by
/// the world size at the end; it is refused for integers and bool. kMax and kMin give NaN where a
/// rank has one, and the first of equals (-0 and +0). For bool, sum and max are a logical or,
/// product and min a logical and.
enum class ReduceOp : std::uint8_t { kSum = 0, kAverage, kMax, kMin, kProduct };

std::string_view Name(OperationKind kind);
std::string_view Name(ReduceOp reduce);

/// One operation of one rank.
struct Operation {
  OperationKind kind = OperationKind::kBarrier;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  ConstBuffer
      input;      // what this rank gives; `input.data == output.data` where the call is in place
  Buffer output;  // what this rank gets
  /// Elements per rank, always of world size length for the kinds that have parts: of the output
  /// for reduce-scatter (the parts of the input), all-gather and gather (the parts of the output),
  /// scatter (the parts of the input). For all-to-all, `counts` are the parts sent and
  /// `receive_counts` those received.
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> receive_counts;
  Rank peer;              // root, destination or source
  std::uint32_t tag = 0;  // of send and receive
  std::uint64_t sequence =
      0;              // collectives of a communicator, counted from 1; 0 for send and receive
  std::string label;  // for error messages: what is being reduced
  Deadline deadline = Deadline::Infinite();
  /// Of a reduce-scatter, if not empty: see OperationOptions. No part of the agreement of ranks.
  std::function<void(std::int64_t begin, std::int64_t count)> on_reduced;

  /// 64-bit hash of what all ranks must agree on: kind, reduce, dtype, total count or counts, root
  /// and sequence. Equal on every rank that calls the same operation. The counts of an all-to-all,
  /// which differ from rank to rank, are left out; a send and its receive are equal.
  std::uint64_t Signature() const;

  /// "all-reduce (sum) of 1024 float32, sequence 7, bucket 3": for messages.
  std::string Describe() const;
};

}  // namespace ait::inline v0

#endif  // AIT_COMM_OPERATION_H_
