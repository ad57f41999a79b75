// SPDX-License-Identifier: Apache-2.0
// A communicator as a backend of c10d.
#include "tensor/torch_internal.h"
// Keep the order.
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "ait/memory/resource.h"
#include "ait/tensor/c10d.h"
#include "ait/tensor/dtype.h"
#include "tensor/c10d_reduction.h"
#include "tensor/c10d_work.h"

namespace ait::inline v0 {
namespace {

using c10d::OpType;
using internal::C10dWork;
using internal::CheckArithmetic;
using internal::CheckDense;
using internal::Contents;
using internal::Fold;
using internal::FromC10d;
using internal::IsBitwise;
using internal::Real;
using internal::Scale;
using internal::Scaled;
using std::chrono::milliseconds;
using CallOptions = Communicator::Options;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

std::vector<std::int64_t> CountsOf(const Tensors& tensors) {
  std::vector<std::int64_t> counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(tensor.numel());
  return counts;
}

const at::Tensor& Only(const Tensors& tensors, const char* call) {
  TORCH_CHECK_VALUE(tensors.size() == 1, call, " takes one tensor a rank; there are ",
                    tensors.size());
  return tensors.front();
}

class CommunicatorBackend final : public c10d::Backend {
 public:
  explicit CommunicatorBackend(std::shared_ptr<Communicator> communicator)
      : Backend(communicator->rank().value(), communicator->size().value()),
        communicator_(std::move(communicator)),
        options_(c10::make_intrusive<Backend::Options>("ait", communicator_->options().timeout)) {
    init();
  }

  const std::string getBackendName() const override { return "ait"; }
  c10::intrusive_ptr<Backend::Options> getBackendOptions() override { return options_; }
  void setTimeout(milliseconds timeout) override {
    std::lock_guard lock(mutex_);
    options_->timeout = timeout;
  }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  void setSequenceNumberForGroup() override {}  // it begins at 0 on every rank
  std::uint64_t getSequenceNumberForGroup() override {
    std::lock_guard lock(mutex_);
    return sequence_;
  }
  void abort() override {
    if (const auto alive = Alive()) alive->Abort(AbortedError("c10d: Backend::abort was called"));
  }
  void shutdown() override {
    std::shared_ptr<Communicator> last;  // leaves its group without the lock
    std::lock_guard lock(mutex_);
    last.swap(communicator_);
  }

  void startCoalescing() override {
    std::lock_guard lock(mutex_);
    TORCH_CHECK(coalescing_ == nullptr, "startCoalescing was called twice");
    coalescing_ = c10::make_intrusive<C10dWork>(getRank(), OpType::COALESCED, sequence_);
  }
  WorkPtr endCoalescing() override {
    std::lock_guard lock(mutex_);
    TORCH_CHECK(coalescing_ != nullptr, "endCoalescing was called without startCoalescing");
    const auto work = std::exchange(coalescing_, nullptr);
    work->Begin();
    return work;
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const at::Tensor& tensor = Only(tensors, "broadcast");
    return Run(OpType::BROADCAST, options.timeout, tensors,
               [&](C10dWork& work, Communicator& all, const CallOptions& o) {
                 work.Add(all.Broadcast(work.Write(tensor, Contents::kOfTensor),
                                        Root(options.rootRank), o));
               });
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    Only(tensors, "allreduce");
    return AllReduceEach(OpType::ALLREDUCE, tensors, options);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override {
    return AllReduceEach(OpType::ALLREDUCE_COALESCED, tensors, options);
  }

  // The parts of a reduce-scatter, gathered: half the bytes of an all-reduce, and the tensors of the
  // other ranks keep their values.
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    const at::Tensor tensor = Real(Only(tensors, "reduce"), options.reduceOp);
    CheckArithmetic(tensor, options.reduceOp);
    return Run(OpType::REDUCE, options.timeout, tensors,
               [&](C10dWork& work, Communicator& all, const CallOptions& o) {
                 const Rank root = Root(options.rootRank);
                 if (IsBitwise(options.reduceOp)) {
                   return Bitwise(work, all, tensor, options.reduceOp, all.rank() == root, o);
                 }
                 const bool is_root = all.rank() == root;
                 if (is_root && options.reduceOp.op_ == c10d::ReduceOp::PREMUL_SUM) {
                   Scale(tensor, options.reduceOp);
                 }
                 const Buffer output = is_root ? work.Write(tensor, Contents::kOfTensor) : Buffer{};
                 const ConstBuffer input =
                     is_root ? ConstBuffer(output) : work.Read(Scaled(tensor, options.reduceOp));
                 const std::vector<std::int64_t> parts = PartsOf(input.count);
                 const std::int64_t own = parts[static_cast<std::size_t>(getRank())];
                 const std::int64_t begin =
                     input.count / getSize() * getRank() +
                     std::min<std::int64_t>(getRank(), input.count % getSize());
                 const at::Tensor scratch =
                     at::empty({is_root ? 0 : own}, tensor.options().requires_grad(false));
                 const Buffer part =
                     is_root ? output.Slice(begin, own) : work.Write(scratch, Contents::kNothing);
                 work.Add(all.ReduceScatter(input, part, parts, FromC10d(options.reduceOp), o));
                 work.Add(all.Gather(part, output, parts, root, o));
               });
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    const at::Tensor& input = Only(inputs, "allgather");
    const Tensors& parts = PerRank(outputs, "allgather");
    return Run(OpType::ALLGATHER, options.timeout, parts,
               [&](C10dWork& work, Communicator& all, const CallOptions& o) {
                 GatherToAll(work, all, parts, input, o);
               });
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    return AllGatherEach(OpType::_ALLGATHER_BASE, {output}, {input}, options);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return AllGatherEach(OpType::COALESCED, outputs, inputs, options);
  }
  /// outputs[r][i] is what rank r gives as inputs[i].
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == getSize(),
                      "allgather_coalesced needs one list of outputs a rank");
    Tensors flat;
    for (const Tensors& list : outputs) {
      TORCH_CHECK_VALUE(list.size() == inputs.size(), "allgather_coalesced: ", inputs.size(),
                        " inputs and ", list.size(), " outputs");
      flat.insert(flat.end(), list.begin(), list.end());
    }
    for (const at::Tensor& input : inputs) CheckDense(input);
    return Run(OpType::ALLGATHER_COALESCED, options.timeout, flat,
               [&](C10dWork& work, Communicator& all, const CallOptions& o) {
                 for (std::size_t i = 0; i < inputs.size(); ++i) {
                   Tensors parts;
                   for (const Tensors& list : outputs) parts.push_back(list[i]);
                   GatherToAll(work, all, parts, inputs[i], o);
                 }
               });
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    const at::Tensor output = Real(Only(outputs, "reduce_scatter"), options.reduceOp);
    Tensors parts;
    for (const at::Tensor& part : PerRank(inputs, "reduce_scatter")) {
      parts.push_back(Scaled(Real(part, options.reduceOp), options.reduceOp));
    }
    CheckArithmetic(output, options.reduceOp);
    return Run(OpType::REDUCE_SCATTER, options.timeout, outputs,
               [&](C10dWork& work, Communicator& all, const CallOptions& o) {
                 const ConstBuffer input = work.ReadAll(parts);
                 work.Add(all.ReduceScatter(input, work.Write(output, Contents::kNothing),
                                            CountsOf(parts), FromC10d(options.reduceOp), o));
               });
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return ReduceScatterEach(OpType::_REDUCE_SCATTER_BASE, {output}, {input}, options);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return ReduceScatterEach(OpType::COALESCED, outputs, inputs, options);
  }

  WorkPtr gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override {
    const at::Tensor& input = Only(inputs, "gather");
    const bool is_root = options.rootRank == getRank();
    const Tensors parts = is_root ? PerRank(outputs, "gather") : Tensors{};
    return Run(OpType::GATHER, options.timeout, parts,
               [&](C10dWork& work, Communicator& all, const CallOptions& o) {
                 const std::vector<std::int64_t> counts(static_cast<std::size_t>(getSize()),
                                                        input.numel());
                 for (const at::Tensor& part : parts) CheckCount(part, input.numel());
                 const Buffer output = is_root ? work.WriteAll(parts) : Buffer{};
                 work.Add(all.Gather(work.Read(input), output, counts, Root(options.rootRank), o));
               });
  }
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& options) override {
    const at::Tensor& output = Only(outputs, "scatter");
    const bool is_root = options.rootRank == getRank();
    const Tensors parts = is_root ? PerRank(inputs, "scatter") : Tensors{};
    return Run(OpType::SCATTER, options.timeout, outputs,
               [&](C10dWork& work, Communicator& all, const CallOptions& o) {
                 const std::vector<std::int64_t> counts(static_cast<std::size_t>(getSize()),
                                                        output.numel());
                 for (const at::Tensor& part : parts) CheckCount(part, output.numel());
                 const ConstBuffer input = is_root ? work.ReadAll(parts) : ConstBuffer{};
                 work.Add(all.Scatter(input, work.Write(output, Contents::kNothing), counts,
                                      Root(options.rootRank), o));
               });
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override {
    const std::vector<std::int64_t> sent = SplitCounts(input, input_splits);
    const std::vector<std::int64_t> received = SplitCounts(output, output_splits);
    return Run(OpType::ALLTOALL_BASE, options.timeout, {output},
               [&](C10dWork& work, Communicator& all, const CallOptions& o) {
                 const ConstBuffer from = work.Read(input);
                 const Buffer to = work.Write(output, Contents::kNothing);
                 work.Add(all.AllToAll(from, to, InElements(sent, from.count, input),
                                       InElements(received, to.count, output), o));
               });
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override {
    CheckPerRank(outputs, "alltoall");
    CheckPerRank(inputs, "alltoall");
    return Run(
        OpType::ALLTOALL, options.timeout, outputs,
        [&](C10dWork& work, Communicator& all, const CallOptions& o) {
          const ConstBuffer from = work.ReadAll(inputs);
          const Buffer to = work.WriteAll(outputs);
          work.Add(all.AllToAll(from, to, InElements(CountsOf(inputs), from.count, inputs[0]),
                                InElements(CountsOf(outputs), to.count, outputs[0]), o));
        });
  }

  WorkPtr send(Tensors& tensors, int destination, int tag) override {
    const at::Tensor& tensor = Only(tensors, "send");
    return Run(OpType::SEND, c10d::kUnsetTimeout, {},
               [&](C10dWork& work, Communicator& all, const CallOptions& o) {
                 work.Add(all.Send(work.Read(tensor), Rank(destination), Tag(tag), o));
               });
  }
  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    const at::Tensor& tensor = Only(tensors, "recv");
    return Run(
        OpType::RECV, c10d::kUnsetTimeout, tensors,
        [&](C10dWork& work, Communicator& all, const CallOptions& o) {
          work.Add(all.Receive(work.Write(tensor, Contents::kNothing), Rank(source), Tag(tag), o));
        });
  }
  WorkPtr recvAnysource(Tensors&, int) override {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false,
        "the backend \"ait\" receives from a rank that is named; say which one, or send ranks of "
        "senders ahead");
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return Run(
        OpType::BARRIER, options.timeout, {},
        [&](C10dWork& work, Communicator& all, const CallOptions& o) { work.Add(all.Barrier(o)); });
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool) override {
    barrier(options)->wait();  // its error names all ranks that are missing
  }

  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>&,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Backend::Options>& options) override {
    const auto self = std::find(ranks.begin(), ranks.end(), getRank());
    const bool is_in = self != ranks.end();
    StatusOr<std::shared_ptr<Communicator>> child =
        Alive()->Split(is_in ? *std::min_element(ranks.begin(), ranks.end()) : -1,
                       static_cast<int>(self - ranks.begin()), {.label = "c10d split"});
    if (!child.ok()) C10_THROW_ERROR(DistBackendError, child.status().ToString());
    if (!is_in) return nullptr;
    TORCH_CHECK_VALUE((*child)->size().value() == static_cast<int>(ranks.size()),
                      "split: the ranks that share the smallest rank ", ranks.front(),
                      " name different lists");
    auto backend = c10::make_intrusive<CommunicatorBackend>(*std::move(child));
    if (options != nullptr) backend->setTimeout(options->timeout);
    return backend;
  }

  bool supportsTensorAlloc(c10::DeviceIndex) override {
    const MemoryHandle memory = Alive()->memory();
    return memory && memory.properties().residence == Residence::kHost;
  }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    const MemoryHandle memory = Alive()->memory();
    TORCH_CHECK(memory, "the transport has no memory that peers reach");
    const std::size_t bytes = static_cast<std::size_t>(size) * options.dtype().itemsize();
    const StatusOr<void*> block = memory.Allocate(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, block.ok(), block.status().ToString());
    return at::from_blob(
        *block, {static_cast<std::int64_t>(size)},
        [memory, bytes](void* data) { memory.Deallocate(data, bytes); }, options);
  }

 private:
  std::shared_ptr<Communicator> Alive() {
    std::lock_guard lock(mutex_);
    TORCH_CHECK(communicator_ != nullptr, "the backend \"ait\" was shut down");
    return communicator_;
  }

  template <typename Body>
  WorkPtr Run(OpType type, milliseconds timeout, Tensors result, Body&& body) {
    std::lock_guard lock(mutex_);
    TORCH_CHECK(communicator_ != nullptr, "the backend \"ait\" was shut down");
    auto work = c10::make_intrusive<C10dWork>(getRank(), type, ++sequence_);
    // All of them before the first operation is under way.
    for (const at::Tensor& tensor : result) CheckDense(tensor);
    work->Returns(std::move(result));
    const at::AutoDispatchBelowADInplaceOrView guard;
    try {
      body(*work, *communicator_,
           CallOptions{.timeout = timeout == c10d::kUnsetTimeout ? options_->timeout : timeout,
                       .label = "c10d"});
    } catch (...) {
      // What was started uses memory that only `work` keeps.
      work->abort();
      for (const Work& each : work->works()) each.Wait().IgnoreError();
      throw;
    }
    work->Begin();
    if (coalescing_ != nullptr) {
      for (const Work& each : work->works()) coalescing_->Add(each);
    }
    return work;
  }

  WorkPtr AllReduceEach(OpType type, const Tensors& tensors,
                        const c10d::AllreduceOptions& options) {
    Tensors reals;
    for (const at::Tensor& tensor : tensors) {
      CheckDense(tensor);
      reals.push_back(Real(tensor, options.reduceOp));
      CheckArithmetic(reals.back(), options.reduceOp);
    }
    return Run(type, options.timeout, tensors,
               [&](C10dWork& work, Communicator& all, const CallOptions& o) {
                 for (const at::Tensor& tensor : reals) {
                   if (IsBitwise(options.reduceOp)) {
                     Bitwise(work, all, tensor, options.reduceOp, true, o);
                     continue;
                   }
                   if (options.reduceOp.op_ == c10d::ReduceOp::PREMUL_SUM) {
                     Scale(tensor, options.reduceOp);
                   }
                   work.Add(all.AllReduce(work.Write(tensor, Contents::kOfTensor),
                                          FromC10d(options.reduceOp), o));
                 }
               });
  }

  /// Gathers the tensors of all ranks and folds them here.
  void Bitwise(C10dWork& work, Communicator& all, const at::Tensor& tensor,
               const c10d::ReduceOp& op, bool is_wanted, const CallOptions& o) {
    const at::Tensor every =
        at::empty({getSize(), tensor.numel()}, tensor.options().requires_grad(false));
    work.Add(all.AllGather(work.Read(tensor), work.Write(every, Contents::kNothing), o));
    if (!is_wanted) return;
    work.Keep(tensor);
    work.Finally([tensor, every, op] { tensor.copy_(Fold(every, op).view(tensor.sizes())); });
  }

  WorkPtr AllGatherEach(OpType type, const Tensors& outputs, const Tensors& inputs,
                        const c10d::AllgatherOptions& options) {
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "all-gather: ", inputs.size(),
                      " inputs and ", outputs.size(), " outputs");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      CheckDense(inputs[i]);
      CheckCount(outputs[i], inputs[i].numel() * getSize());
    }
    return Run(type, options.timeout, outputs,
               [&](C10dWork& work, Communicator& all, const CallOptions& o) {
                 for (std::size_t i = 0; i < inputs.size(); ++i) {
                   const ConstBuffer input = work.Read(inputs[i]);
                   // In place, the output holds the input.
                   work.Add(all.AllGather(input, work.Write(outputs[i], Contents::kOfTensor), o));
                 }
               });
  }

  void GatherToAll(C10dWork& work, Communicator& all, const Tensors& parts, const at::Tensor& input,
                   const CallOptions& o) {
    CheckCount(parts[static_cast<std::size_t>(getRank())], input.numel());
    const ConstBuffer from = work.Read(input);
    const Buffer to = work.WriteAll(parts);
    work.Add(all.AllGather(from, to, InElements(CountsOf(parts), to.count, parts[0]), o));
  }

  WorkPtr ReduceScatterEach(OpType type, const Tensors& outputs, const Tensors& inputs,
                            const c10d::ReduceScatterOptions& options) {
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "reduce-scatter: ", inputs.size(),
                      " inputs and ", outputs.size(), " outputs");
    Tensors from, to;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      CheckDense(inputs[i]);
      CheckCount(inputs[i], outputs[i].numel() * getSize());
      from.push_back(Scaled(Real(inputs[i], options.reduceOp), options.reduceOp));
      to.push_back(Real(outputs[i], options.reduceOp));
      CheckArithmetic(to.back(), options.reduceOp);
    }
    return Run(type, options.timeout, outputs,
               [&](C10dWork& work, Communicator& all, const CallOptions& o) {
                 for (std::size_t i = 0; i < from.size(); ++i) {
                   const ConstBuffer input = work.Read(from[i]);
                   work.Add(all.ReduceScatter(input, work.Write(to[i], Contents::kNothing),
                                              FromC10d(options.reduceOp), o));
                 }
               });
  }

  static Rank Root(std::int64_t root) { return Rank(static_cast<int>(root)); }
  static std::uint32_t Tag(int tag) {
    TORCH_CHECK_VALUE(tag >= 0, "the tag ", tag, " is negative");
    return static_cast<std::uint32_t>(tag);
  }
  static void CheckCount(const at::Tensor& tensor, std::int64_t count) {
    TORCH_CHECK_VALUE(tensor.numel() == count, "a tensor has ", tensor.numel(), " elements where ",
                      count, " are needed");
  }
  void CheckPerRank(const Tensors& list, const char* call) const {
    TORCH_CHECK_VALUE(static_cast<int>(list.size()) == getSize(), call, " needs ", getSize(),
                      " tensors, one a rank; there are ", list.size());
  }
  const Tensors& PerRank(const TensorLists& lists, const char* call) const {
    TORCH_CHECK_VALUE(lists.size() == 1, call, " takes one list of tensors; there are ",
                      lists.size());
    CheckPerRank(lists.front(), call);
    return lists.front();
  }

  std::vector<std::int64_t> PartsOf(std::int64_t count) const {
    std::vector<std::int64_t> parts(static_cast<std::size_t>(getSize()), count / getSize());
    for (int rank = 0; rank < count % getSize(); ++rank) ++parts[static_cast<std::size_t>(rank)];
    return parts;
  }

  /// Elements a rank of a tensor that is split in its first dimension.
  std::vector<std::int64_t> SplitCounts(const at::Tensor& tensor,
                                        const std::vector<std::int64_t>& splits) const {
    const auto size = static_cast<std::size_t>(getSize());
    if (splits.empty()) {
      TORCH_CHECK_VALUE(tensor.dim() > 0 && tensor.size(0) % getSize() == 0,
                        "alltoall_base: the first dimension of ", tensor.sizes(),
                        " is no multiple of the ", size, " ranks; give the splits");
      return std::vector<std::int64_t>(size, tensor.numel() / getSize());
    }
    TORCH_CHECK_VALUE(splits.size() == size, "alltoall_base: ", splits.size(), " splits for ", size,
                      " ranks");
    std::vector<std::int64_t> counts;
    std::int64_t rows = 0;
    for (const std::int64_t split : splits) {
      rows += split;
      counts.push_back(tensor.size(0) == 0 ? 0 : split * (tensor.numel() / tensor.size(0)));
    }
    TORCH_CHECK_VALUE(rows == tensor.size(0), "alltoall_base: the splits make ", rows,
                      " rows and the tensor has ", tensor.size(0));
    return counts;
  }

  /// Counts of elements in those of a buffer, whose elements may be bytes.
  static std::vector<std::int64_t> InElements(std::vector<std::int64_t> counts,
                                              std::int64_t buffer_count, const at::Tensor& like) {
    if (buffer_count == 0 || FromTorch(like.scalar_type()).ok()) return counts;
    for (std::int64_t& count : counts) count *= static_cast<std::int64_t>(like.element_size());
    return counts;
  }

  std::mutex mutex_;
  std::shared_ptr<Communicator> communicator_;
  c10::intrusive_ptr<Backend::Options> options_;
  std::uint64_t sequence_ = 0;
  c10::intrusive_ptr<C10dWork> coalescing_;
};

}  // namespace

C10dBackendPtr ToBackend(std::shared_ptr<Communicator> communicator) {
  return c10::make_intrusive<CommunicatorBackend>(std::move(communicator));
}

}  // namespace ait::inline v0
