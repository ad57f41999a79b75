// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_PARALLEL_OUT_OF_REACH_H_
#define AIT_TESTS_PARALLEL_OUT_OF_REACH_H_

// Ranks that are threads and do not reach each other's memory: what several hosts are, in a test.

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "ait/comm/communicator.h"
#include "ait/comm/transport.h"

namespace ait::testing {

class OutOfReachTransport final : public Transport {
 public:
  explicit OutOfReachTransport(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return "out of reach"; }
  Rank rank() const override { return inner_->rank(); }
  WorldSize size() const override { return inner_->size(); }
  void Abort(const Status& reason) override { inner_->Abort(reason); }

  Work Start(Operation operation) override {
    OperationOptions options{.label = operation.label};
    switch (operation.kind) {
      case OperationKind::kBroadcast:
        return inner_->Broadcast(operation.output, operation.peer, options);
      case OperationKind::kAllReduce:
        return inner_->AllReduce(operation.output, operation.reduce, options);
      case OperationKind::kReduceScatter:
        return inner_->ReduceScatter(operation.input, operation.output, operation.counts,
                                     operation.reduce, options);
      case OperationKind::kAllGather:
        return inner_->AllGather(operation.input, operation.output, operation.counts, options);
      case OperationKind::kBarrier:
        return inner_->Barrier(options);
      default:
        return Work(UnimplementedError("not needed here"));
    }
  }

  StatusOr<std::unique_ptr<Transport>> Subgroup(std::span<const Rank>, std::uint64_t,
                                                Deadline) override {
    AIT_ASSIGN_OR_RETURN(auto group, inner_->Split(0, rank().value()));  // of all
    return std::unique_ptr<Transport>(std::make_unique<OutOfReachTransport>(std::move(group)));
  }

 private:
  std::shared_ptr<Communicator> inner_;
};

inline std::shared_ptr<Communicator> OutOfReach(std::shared_ptr<Communicator> inner) {
  return std::make_shared<Communicator>(std::make_unique<OutOfReachTransport>(std::move(inner)));
}

}  // namespace ait::testing

#endif  // AIT_TESTS_PARALLEL_OUT_OF_REACH_H_
