// SPDX-License-Identifier: Apache-2.0
#include "parallel/compression_wire_internal.h"

#include <algorithm>

namespace ait::inline v0::internal {

Wire::~Wire() {
  if (std::ranges::all_of(issued_, [](const Work& work) { return work.done(); })) return;
  communicator_.Abort(AbortedError("rank ", communicator_.rank(), ": the compression of ",
                                   options_.label, " ended before its collectives"));
  for (const Work& work : issued_) (void)work.Wait();
}

Work Wire::Count(Work work, std::int64_t handed, std::int64_t sent) {
  std::erase_if(issued_, [](const Work& earlier) { return earlier.done(); });
  issued_.push_back(work);
  ++counters_.collectives;
  counters_.handed_bytes += handed;
  counters_.sent_bytes += sent;
  return work;
}

Work Wire::AllReduceSum(Buffer buffer) {
  const std::int64_t bytes = buffer.bytes().value();
  const std::int64_t ranks = size().value();
  return Count(communicator_.AllReduce(buffer, ReduceOp::kSum, options_), bytes,
               2 * bytes * (ranks - 1) / ranks);
}

Work Wire::AllToAll(ConstBuffer input, Buffer output) {
  const std::int64_t bytes = input.bytes().value();
  const std::int64_t ranks = size().value();
  return Count(communicator_.AllToAll(input, output, options_), bytes, bytes * (ranks - 1) / ranks);
}

Work Wire::AllGatherInPlace(Buffer output) {
  const std::int64_t part = output.count / size().value();
  const Buffer own = output.Slice(part * rank().value(), part);
  const std::int64_t bytes = own.bytes().value();
  return Count(communicator_.AllGather(own, output, options_), bytes, bytes * (size().value() - 1));
}

}  // namespace ait::inline v0::internal
