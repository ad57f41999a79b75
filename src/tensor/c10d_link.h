// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_C10D_LINK_H_
#define AIT_TENSOR_C10D_LINK_H_

// The messages of a c10d backend as a link of pairs, and the wait for its operations.

#include "tensor/torch_internal.h"
// Keep the order.
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/tensor/c10d.h"
#include "comm/pair_link.h"

namespace ait::inline v0::internal {

class C10dLink final : public PairLink {
 public:
  explicit C10dLink(C10dBackendPtr backend) : backend_(std::move(backend)) {}
  ~C10dLink() override;

  StatusOr<PiecePtr> Send(const void* data, std::int64_t bytes, int peer,
                          std::uint32_t tag) override;
  StatusOr<PiecePtr> Receive(void* data, std::int64_t bytes, int peer, std::uint32_t tag) override;
  Status Await(Piece& piece) override;
  void Interrupt(Piece& piece) override;
  void Interrupt() override;

  /// **Blocks.** Calls `start`, which starts an operation of the backend, and waits until it has
  /// ended. Unimplemented: the backend has no such operation, nothing was started. Cancelled:
  /// interrupted; the operation ended too, or was given up after a second. Unavailable: what else
  /// the backend says.
  Status Run(const std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&)>& start);

 private:
  class C10dPiece;
  StatusOr<PiecePtr> Post(
      const void* data, std::int64_t bytes, int peer,
      const std::function<c10::intrusive_ptr<c10d::Work>(std::vector<at::Tensor>&)>& post);
  Status AwaitWork(const c10::intrusive_ptr<c10d::Work>& work);
  bool interrupted();

  C10dBackendPtr backend_;
  std::mutex post_mutex_;  // c10d wants one caller at a time
  std::mutex mutex_;
  bool interrupted_ = false;
  std::set<C10dPiece*> pieces_;  // that are posted
};

}  // namespace ait::inline v0::internal

#endif  // AIT_TENSOR_C10D_LINK_H_
