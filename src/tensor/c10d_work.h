// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_C10D_WORK_H_
#define AIT_TENSOR_C10D_WORK_H_

// A `c10d::Work` that stands for one or more operations of a communicator.
//
//   auto work = c10::make_intrusive<C10dWork>(rank, c10d::OpType::ALLREDUCE, sequence);
//   work->Add(communicator->AllReduce(work->Write(tensor), ReduceOp::kSum));
//   work->Returns({tensor});
//   work->Begin();
//
// Tensors that are not contiguous get a contiguous stand-in; what was written is copied back when
// the operations have ended, before anybody hears of the end.

#include "tensor/torch_internal.h"
// Keep the order.
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "ait/base/status.h"
#include "ait/comm/buffer.h"
#include "ait/comm/work.h"

namespace ait::inline v0::internal {

/// What is in memory behind a stand-in at first.
enum class Contents { kNothing, kOfTensor };

/// Throws unless the backend carries this tensor.
void CheckDense(const at::Tensor& tensor);

class C10dWork final : public c10d::Work {
 public:
  C10dWork(int rank, c10d::OpType type, std::uint64_t sequence);

  // To make one; by one thread, before `Begin`. They throw what libtorch throws.

  /// The elements of a tensor that is read, or written; the tensor is kept until the end. Of a
  /// dtype that ait does not carry, its bytes.
  ConstBuffer Read(const at::Tensor& tensor);
  Buffer Write(const at::Tensor& tensor, Contents contents);

  /// Tensors one after the other in memory, of one dtype: as one buffer.
  ConstBuffer ReadAll(const std::vector<at::Tensor>& tensors);
  Buffer WriteAll(const std::vector<at::Tensor>& tensors);

  /// Keeps a tensor until the end.
  void Keep(const at::Tensor& tensor) { kept_.push_back(tensor); }
  /// Runs at the end, if all went well: the last added first.
  void Finally(std::function<void()> action) { actions_.push_back(std::move(action)); }
  void Add(ait::Work work) { works_.push_back(std::move(work)); }
  void Returns(std::vector<at::Tensor> tensors) { result_ = std::move(tensors); }
  const std::vector<ait::Work>& works() const { return works_; }

  /// From here on it ends as soon as all operations have.
  void Begin();

  std::vector<at::Tensor> result() override { return result_; }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  void Ended(const Status& status);
  void Complete(const Status& status);

  const std::uint64_t sequence_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::vector<ait::Work> works_;
  std::vector<at::Tensor> kept_, result_;
  std::vector<std::function<void()>> actions_;
  std::atomic<std::size_t> left_{0};
  std::mutex status_mutex_;
  Status status_;  // the first error
};

}  // namespace ait::inline v0::internal

#endif  // AIT_TENSOR_C10D_WORK_H_
