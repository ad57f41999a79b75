// SPDX-License-Identifier: Apache-2.0
// How an engine begins: values that all ranks agree on, parameters in their flat buffers, gradients
// in theirs, hooks in autograd.
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "parallel/agreement_internal.h"
#include "parallel/data_parallel_impl.h"
#include "parallel/hash_internal.h"
#include "tensor/catch.h"

namespace ait::inline v0 {
namespace {

Buffer BufferOf(const at::Tensor& contiguous) {
  // The dtype was checked when the model was inspected; bytes are enough to copy and compare.
  return {contiguous.data_ptr(), static_cast<std::int64_t>(contiguous.nbytes()), DType::kUInt8};
}

}  // namespace

// Whether the two groups of hybrid sharding are rows and columns of one table of all ranks.
Status DataParallel::Impl::CheckGroups() {
  if (replicate_ == nullptr) return OkStatus();
  const auto gather = [this](Communicator& group, std::vector<std::int64_t> own,
                             std::vector<std::int64_t>& all) {
    all.resize(own.size() * static_cast<std::size_t>(group.size().value()));
    return group.AllGather(View(own), View(all), Labelled("groups of hybrid sharding")).Wait();
  };
  const std::int64_t rank = communicator->rank().value();
  const std::int64_t row = replicate_->rank().value();
  const std::int64_t column = shard_->rank().value();
  std::vector<std::int64_t> table;  // row and column of each rank
  std::vector<std::int64_t> shard;
  std::vector<std::int64_t> replicate;
  AIT_RETURN_IF_ERROR(gather(*communicator, {row, column}, table));
  AIT_RETURN_IF_ERROR(gather(*shard_, {rank}, shard));
  AIT_RETURN_IF_ERROR(gather(*replicate_, {rank}, replicate));
  const auto at = [&](std::int64_t member, std::size_t i) {
    return table[2 * static_cast<std::size_t>(member) + i];
  };
  const auto stands_at = [&](std::int64_t member, std::int64_t r, std::int64_t c) {
    return at(member, 0) == r && at(member, 1) == c;
  };
  Status local;
  for (std::size_t i = 0; i < shard.size(); ++i) {
    if (stands_at(shard[i], row, static_cast<std::int64_t>(i))) continue;
    local = InvalidArgumentError(
        "hybrid sharding: ranks ", rank, " and ", shard[i], " shard together, but stand at places ",
        row, " and ", at(shard[i], 0),
        " of their replicas; give Split of the replicas the number within the shard group as color "
        "and the same key order in all");
  }
  for (std::size_t i = 0; i < replicate.size(); ++i) {
    if (stands_at(replicate[i], static_cast<std::int64_t>(i), column)) continue;
    local =
        InvalidArgumentError("hybrid sharding: ranks ", rank, " and ", replicate[i],
                             " are replicas, but own slices ", column, " and ", at(replicate[i], 1),
                             "; replicas have the same place in their shard groups");
  }
  return internal::CheckAgreement(*communicator, local, {}, 0, Labelled(""));
}

Status DataParallel::Impl::Start(NamedTensors parameters) {
  AIT_RETURN_IF_ERROR(CheckGroups());
  MemoryHandle memory = options.memory;
  if (!memory && shard_->memory().properties().sharing == Sharing::kProcesses) {
    memory = shard_->memory();  // the peers reduce in place what lies there
  }
  AIT_RETURN_IF_ERROR(AgreeOnInitialValues(parameters));
  auto store = internal::ParameterStore::Create(std::move(parameters), layout, memory);
  if (!store.ok()) return End(store.status(), "moving the parameters");
  store_ = *std::move(store);
  const Status sharded = MakeUnits(memory);
  if (!sharded.ok()) return End(sharded, "sharding the parameters of units");
  AIT_RETURN_IF_ERROR(BroadcastParameters());
  const Status made = MakeGradients(memory);
  if (!made.ok()) return End(made, "making the gradients");
  fired_.resize(store_->handles().size());
  const Status found = FindPeers();
  if (!found.ok()) return End(found, "finding the memory of the peers");
  // A rank that has failed has told the others.
  const Status met = communicator->Barrier(Labelled("creation of the engine")).Wait();
  if (!met.ok()) return End(met, "meeting the other ranks");
  InstallHooks();
  return OkStatus();
}

Status DataParallel::Impl::MakeGradients(const MemoryHandle& memory) {
  internal::GradientPlan plan{.store = *store_,
                              .layout = layout,
                              .rank = shard_->rank(),
                              .scattered = is_sharded_,
                              .memory = memory};
  const bool travels = communicator->size().value() > 1;
  for (const FlatGroup& group : layout.groups()) {
    // fp64 stays what it is.
    const bool is_below = group.dtype == DType::kBFloat16 || group.dtype == DType::kFloat16;
    const bool widens = is_below && options.precision.gradients == DType::kFloat32;
    plan.dtypes.push_back(widens ? DType::kFloat32 : group.dtype);
    gradient_dtypes_.push_back(plan.dtypes.back());
    const bool narrows = travels && plan.dtypes.back() == DType::kFloat32;
    plan.wire.push_back(narrows ? options.precision.reduction : plan.dtypes.back());
  }
  reducer_ = std::make_unique<internal::BucketReducer>(
      layout, internal::ReducerOptions{.shard = *shard_,
                                       .replicate = replicate_.get(),
                                       .scatter = is_sharded_,
                                       .operation = Labelled(""),
                                       .compression = options.compression.get(),
                                       .handles = store_->handle_counts()});
  if (reduces_each_) {
    const bool packed = options.zero_stage >= ZeroStage::kGradients;
    // A peer may need this rank for a unit that it gathers before it comes to what this one would
    // wait for: then the ring grows.
    const bool may_wait = units_ == nullptr || units_->shards().is_direct();
    AIT_ASSIGN_OR_RETURN(gradients_,
                         internal::MakeStreamedGradients(std::move(plan), packed, [this, may_wait] {
                           return may_wait ? reducer_->WaitForOne() : reducer_->TakeOneIfDone();
                         }));
  } else {
    AIT_ASSIGN_OR_RETURN(gradients_, internal::MakeKeptGradients(std::move(plan)));
  }
  reducer_->SetStore(gradients_.get());
  reducer_->SetCallbacks([this](int b) { return SquaresOnReduced(b); },
                         [this](int b) { OnBucket(b); });
  return OkStatus();
}

Status DataParallel::Impl::FindPeers() {
  peers_.resize(layout.groups().size());
  if (!is_sharded_ || shard_->size().value() == 1) return OkStatus();
  for (std::size_t g = 0; g < layout.groups().size(); ++g) {
    if (store_->buffers()[g].count == 0) continue;
    AIT_ASSIGN_OR_RETURN(const std::vector<void*> addresses,
                         shard_->PeerAddresses(store_->buffers()[g], Labelled("parameters")));
    for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
      if (static_cast<int>(rank) == shard_->rank().value()) continue;
      peers_[g].push_back(static_cast<std::byte*>(addresses[rank]));
    }
  }
  return OkStatus();
}

Status DataParallel::Impl::Broadcast(const at::Tensor& tensor, std::string label) {
  const at::Tensor values = internal::Contiguous(tensor);
  AIT_RETURN_IF_ERROR(
      communicator->Broadcast(BufferOf(values), Rank(0), Labelled(std::move(label))).Wait());
  internal::WriteBack(values, tensor);
  return OkStatus();
}

// Before the parameters move, and before they lose bits.
Status DataParallel::Impl::AgreeOnInitialValues(const NamedTensors& parameters) {
  const bool is_alone = communicator->size().value() == 1;
  if (options.initial_sync == InitialSync::kVerify && !is_alone) {
    std::vector<std::string> names;
    std::vector<std::uint64_t> hashes;
    const auto add = [&](const NamedTensors& list) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        const at::Tensor values = internal::Contiguous(list.tensor(i));
        names.push_back(list.name(i));
        hashes.push_back(internal::HashBytes(values.const_data_ptr(), values.nbytes()));
      }
    };
    add(parameters);
    add(options.buffers);
    AIT_RETURN_IF_ERROR(
        internal::CheckEqual(*communicator, names, hashes, "the initial value", Labelled("")));
  }
  std::function<Status(const Buffer&)> agree;
  if (options.initial_sync == InitialSync::kBroadcast && !is_alone) {
    agree = [this](const Buffer& values) {
      return communicator->Broadcast(values, Rank(0), Labelled("initial parameters")).Wait();
    };
  }
  auto taken = internal::InitialValues::Take(
      parameters, layout, [this](int b) { return Owned(bucket(b)); }, agree);
  if (!taken.ok()) return End(taken.status(), "agreeing on the initial values");
  initial_values_ = *std::move(taken);
  return OkStatus();
}

Status DataParallel::Impl::BroadcastParameters() {
  if (communicator->size().value() == 1 || options.initial_sync == InitialSync::kVerify) {
    return OkStatus();
  }
  const NamedTensors& named = store_->named();
  for (const Buffer& buffer : store_->buffers()) {
    const Status status =
        communicator->Broadcast(buffer, Rank(0), Labelled("initial parameters")).Wait();
    if (!status.ok()) return End(status, "broadcasting parameters");
  }
  for (const int i : store_->frozen()) {
    const auto index = static_cast<std::size_t>(i);
    const Status status = Broadcast(named.tensor(index), named.name(index));
    if (!status.ok()) return End(status, "broadcasting parameters");
  }
  return BroadcastBuffers();
}

Status DataParallel::Impl::BroadcastBuffers() {
  AIT_RETURN_IF_ERROR(Usable("BroadcastBuffers"));
  if (communicator->size().value() == 1) return OkStatus();
  if (reduces_ && (state_ == State::kAccumulating || state_ == State::kReducing)) {
    return FailedPreconditionError(
        "BroadcastBuffers: gradients are being reduced; call it between the steps");
  }
  for (std::size_t b = 0; b < options.buffers.size(); ++b) {
    const Status status = Broadcast(options.buffers.tensor(b), options.buffers.name(b));
    if (!status.ok()) return End(status, "broadcasting buffers");
  }
  return OkStatus();
}

// A hook in front of the node that adds to `.grad`. It adds itself, and leaves that node nothing to
// do.
class DataParallel::Impl::Hook final : public torch::autograd::FunctionPreHook {
 public:
  Hook(std::shared_ptr<HookTarget> target, std::size_t handle)
      : target_(std::move(target)), handle_(handle) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    const bool is_ours = target_->engine != nullptr && gradients[0].defined();
    return is_ours && target_->engine->OnGradient(handle_, gradients[0])
               ? torch::autograd::variable_list(1)
               : gradients;
  }

  bool is_live() const { return target_->engine != nullptr; }

 private:
  std::shared_ptr<HookTarget> target_;
  std::size_t handle_;
};

Status DataParallel::Impl::CheckFree(const NamedTensors& parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameters.tensor(i));
    if (accumulator == nullptr) continue;
    for (const auto& hook : accumulator->pre_hooks()) {
      const auto* ours = dynamic_cast<const Hook*>(hook.get());
      if (ours == nullptr || !ours->is_live()) continue;
      return FailedPreconditionError("parameter ", parameters.name(i),
                                     " belongs to another data-parallel engine; destroy that one "
                                     "before you make a new one over the same model");
    }
  }
  return OkStatus();
}

void DataParallel::Impl::InstallHooks() {
  hook_target_ = std::make_shared<HookTarget>(HookTarget{this});
  for (std::size_t h = 0; h < store_->handles().size(); ++h) {
    auto accumulator = torch::autograd::impl::grad_accumulator(store_->handles()[h].tensor);
    accumulator->add_pre_hook(std::make_unique<Hook>(hook_target_, h));
    accumulators_.push_back(std::move(accumulator));
  }
}

}  // namespace ait::inline v0
