// SPDX-License-Identifier: Apache-2.0
#include "tensor/c10d_work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <exception>
#include <utility>

#include "ait/tensor/dtype.h"
#include "tensor/catch.h"

namespace ait::inline v0::internal {
namespace {

std::exception_ptr ExceptionOf(const Status& status) {
  const c10::SourceLocation here{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
  const std::string text = StrCat(CodeName(status.code()), ": ", Message(status));
  if (status.code() == StatusCode::kInvalidArgument) {
    return std::make_exception_ptr(c10::ValueError(here, text));
  }
  return std::make_exception_ptr(c10::DistBackendError(here, text));
}

Buffer Elements(const at::Tensor& contiguous) {
  const StatusOr<DType> dtype = FromTorch(contiguous.scalar_type());
  void* const data = const_cast<void*>(contiguous.const_data_ptr());
  if (dtype.ok()) return {data, contiguous.numel(), *dtype};
  return {data, static_cast<std::int64_t>(contiguous.nbytes()), DType::kUInt8};
}

bool IsPlain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_neg() && !tensor.is_conj();
}

at::Tensor EmptyLike(const at::Tensor& tensor, at::IntArrayRef sizes) {
  return at::empty(sizes, tensor.options().requires_grad(false));
}

// One contiguous tensor over all of them if they lie so, else an undefined one.
bool LieInARow(const std::vector<at::Tensor>& tensors) {
  const char* end = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (!IsPlain(tensor)) return false;
    if (tensor.numel() == 0) continue;
    const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
    // Of one storage: neighbours by chance may be given back one by one.
    if (end != nullptr && (begin != end || !tensor.is_alias_of(tensors.front()))) return false;
    end = begin + tensor.nbytes();
  }
  return true;
}

std::int64_t Count(const std::vector<at::Tensor>& tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    CheckDense(tensor);
    TORCH_CHECK_TYPE(tensor.scalar_type() == tensors.front().scalar_type(),
                     "the tensors of one list are ", tensors.front().scalar_type(), " and ",
                     tensor.scalar_type(), "; they have to be of one dtype");
    count += tensor.numel();
  }
  return count;
}

// Over all tensors, which lie in a row; the first may be empty and lie anywhere.
Buffer Row(const std::vector<at::Tensor>& tensors) {
  Buffer row = Elements(tensors.front());
  row.count = 0;
  for (const at::Tensor& tensor : tensors) {
    const Buffer part = Elements(tensor);
    if (row.count == 0) row.data = part.data;
    row.count += part.count;
  }
  return row;
}

}  // namespace

void CheckDense(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), "the tensor is undefined");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided && tensor.device().is_cpu(),
                    "the backend \"ait\" carries dense tensors on the CPU; this one is ",
                    tensor.layout(), " on ", tensor.device());
}

C10dWork::C10dWork(int rank, c10d::OpType type, std::uint64_t sequence)
    : c10d::Work(rank, type),
      sequence_(sequence),
      future_(
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
}

ConstBuffer C10dWork::Read(const at::Tensor& tensor) {
  CheckDense(tensor);
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor dense =
      IsPlain(tensor) ? tensor : EmptyLike(tensor, tensor.sizes()).copy_(tensor);
  Keep(dense);
  return Elements(dense);
}

Buffer C10dWork::Write(const at::Tensor& tensor, Contents contents) {
  CheckDense(tensor);
  Keep(tensor);
  if (IsPlain(tensor)) return Elements(tensor);
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor dense = EmptyLike(tensor, tensor.sizes());
  if (contents == Contents::kOfTensor) dense.copy_(tensor);
  Finally([tensor, dense] { tensor.copy_(dense); });
  return Elements(dense);
}

ConstBuffer C10dWork::ReadAll(const std::vector<at::Tensor>& tensors) {
  const std::int64_t count = Count(tensors);
  for (const at::Tensor& tensor : tensors) Keep(tensor);
  if (LieInARow(tensors)) return Row(tensors);
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor flat = EmptyLike(tensors.front(), {count});
  std::int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    flat.narrow(0, at, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    at += tensor.numel();
  }
  Keep(flat);
  return Elements(flat);
}

Buffer C10dWork::WriteAll(const std::vector<at::Tensor>& tensors) {
  const std::int64_t count = Count(tensors);
  for (const at::Tensor& tensor : tensors) Keep(tensor);
  if (LieInARow(tensors)) return Row(tensors);
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor flat = EmptyLike(tensors.front(), {count});
  Finally([tensors, flat] {
    std::int64_t at = 0;
    for (const at::Tensor& tensor : tensors) {
      tensor.copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
      at += tensor.numel();
    }
  });
  return Elements(flat);
}

void C10dWork::Begin() {
  left_ = works_.size();
  if (works_.empty()) return Complete(OkStatus());
  const auto self = c10::intrusive_ptr<C10dWork>::unsafe_reclaim_from_nonowning(this);
  for (const ait::Work& work : works_) {
    work.Then([self](const Status& status) { self->Ended(status); });
  }
}

void C10dWork::Ended(const Status& status) {
  Status first;
  {
    std::lock_guard lock(status_mutex_);
    if (status_.ok()) status_ = status;
    first = status_;
  }
  if (left_.fetch_sub(1) == 1) Complete(first);
}

void C10dWork::Complete(const Status& status) {
  Status outcome = status;
  if (outcome.ok()) {
    outcome = CatchAsStatus([&] {
      // What is written here are the tensors of a call, whatever autograd thinks of them.
      const at::AutoDispatchBelowADInplaceOrView guard;
      for (auto action = actions_.rbegin(); action != actions_.rend(); ++action) (*action)();
    });
  }
  actions_.clear();
  kept_.clear();
  if (outcome.ok()) {
    // What a callback of the Future throws has nowhere to go: this thread is the transport's.
    CatchAsStatus([&] { future_->markCompleted(c10::IValue(result_)); }).IgnoreError();
    finish();
  } else {
    const std::exception_ptr error = ExceptionOf(outcome);
    CatchAsStatus([&] { future_->setError(error); }).IgnoreError();
    finish(error);
  }
}

bool C10dWork::wait(std::chrono::milliseconds timeout) {
  const Deadline deadline = timeout.count() > 0 ? Deadline::After(timeout) : Deadline::Infinite();
  // A transport may carry out an operation on the thread that waits for it.
  for (const ait::Work& work : works_) work.Wait(deadline).IgnoreError();
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return completed_; };
  if (deadline.is_infinite()) {
    cv_.wait(lock, ended);
  } else if (!cv_.wait_until(lock, deadline.time(), ended)) {
    C10_THROW_ERROR(DistBackendError, StrCat(c10d::opTypeToString(opType_), " has not ended after ",
                                             timeout.count(), " ms of waiting; it goes on"));
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

void C10dWork::abort() {
  for (const ait::Work& work : works_) work.Cancel();
}

}  // namespace ait::inline v0::internal
