// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_C10D_COLLECTIVES_H_
#define AIT_TENSOR_C10D_COLLECTIVES_H_

// The collectives of a c10d backend for a group of pairs; what the backend lacks is made of
// messages.

#include "tensor/c10d_link.h"
// Keep the order.
#include "ait/comm/operation.h"
#include "ait/tensor/c10d.h"
#include "comm/pair_collectives.h"

namespace ait::inline v0::internal {

class C10dCollectives final : public CollectiveRunner {
 public:
  C10dCollectives(C10dLink& link, Rank rank, WorldSize size, C10dOptions options);

  Status Run(const Operation& operation) override;
  int failed_peer() const override { return pairs_.failed_peer(); }

 private:
  bool IsNative(const Operation& operation) const;
  Status RunNative(const Operation& operation);
  Status Reduce(const Operation& operation);

  C10dLink& link_;
  PairCollectives pairs_;
  const Rank rank_;
  const WorldSize size_;
  const C10dOptions options_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_TENSOR_C10D_COLLECTIVES_H_
