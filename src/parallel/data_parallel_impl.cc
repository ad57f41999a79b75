// SPDX-License-Identifier: Apache-2.0
#include "parallel/data_parallel_impl.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "ait/optim/torch_executor.h"
#include "parallel/agreement_internal.h"
#include "parallel/hash_internal.h"
#include "tensor/catch.h"

namespace ait::inline v0 {
namespace {

Time Now() { return SystemClock().now(); }

Buffer BufferOf(const at::Tensor& contiguous) {
  // The dtype was checked when the model was inspected; bytes are enough to copy and compare.
  return {contiguous.data_ptr(), static_cast<std::int64_t>(contiguous.nbytes()), DType::kUInt8};
}

}  // namespace

DataParallel::Impl::Impl(std::shared_ptr<Communicator> comm, DataParallelOptions given,
                         FlatLayout flat_layout, internal::CompressionLease compression)
    : communicator(std::move(comm)),
      options(std::move(given)),
      layout(std::move(flat_layout)),
      compression_(std::move(compression)),
      executor_(TorchExecutor()) {}

DataParallel::Impl::~Impl() {
  if (hook_target_ == nullptr) return;
  hook_target_->engine = nullptr;
  (void)internal::CatchAsStatus([&] {
    reducer_.reset();               // nothing is in flight from here on
    return gradients_->Complete();  // the user's backward adds to them
  });
}

OperationOptions DataParallel::Impl::Labelled(std::string label) const {
  return {.timeout = options.timeout, .label = std::move(label)};
}

Status DataParallel::Impl::Start(NamedTensors parameters) {
  MemoryHandle memory = options.memory;
  if (!memory && communicator->memory().properties().sharing == Sharing::kProcesses) {
    memory = communicator->memory();  // the peers reduce in place what lies there
  }
  auto store = internal::ParameterStore::Create(std::move(parameters), layout, memory);
  if (!store.ok()) return End(store.status(), "moving the parameters");
  store_ = *std::move(store);
  auto gradients = internal::GradientStore::Create(*store_, layout, std::move(memory));
  if (!gradients.ok()) return End(gradients.status(), "making the gradients");
  gradients_ = *std::move(gradients);
  AIT_RETURN_IF_ERROR(SyncInitialValues());
  reducer_ = std::make_unique<internal::BucketReducer>(*communicator, layout, gradients_->buffers(),
                                                       store_->handle_counts(), Labelled(""),
                                                       options.compression.get());
  fired_.resize(store_->handles().size());
  InstallHooks();
  return OkStatus();
}

Status DataParallel::Impl::Broadcast(const at::Tensor& tensor, std::string label) {
  const at::Tensor values = internal::Contiguous(tensor);
  AIT_RETURN_IF_ERROR(
      communicator->Broadcast(BufferOf(values), Rank(0), Labelled(std::move(label))).Wait());
  internal::WriteBack(values, tensor);
  return OkStatus();
}

Status DataParallel::Impl::SyncInitialValues() {
  if (communicator->size().value() == 1) return OkStatus();
  const NamedTensors& named = store_->named();
  if (options.initial_sync == InitialSync::kBroadcast) {
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
  std::vector<std::string> names;
  std::vector<std::uint64_t> hashes;
  const auto add = [&](const NamedTensors& list) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const at::Tensor values = internal::Contiguous(list.tensor(i));
      names.push_back(list.name(i));
      hashes.push_back(internal::HashBytes(values.const_data_ptr(), values.nbytes()));
    }
  };
  add(named);
  add(options.buffers);
  return internal::CheckEqual(*communicator, names, hashes, "the initial value", Labelled(""));
}

Status DataParallel::Impl::BroadcastBuffers() {
  AIT_RETURN_IF_ERROR(Usable("BroadcastBuffers"));
  if (communicator->size().value() == 1) return OkStatus();
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

// Runs inside backward. Returns false if the gradient is left to autograd.
bool DataParallel::Impl::OnGradient(std::size_t h, const at::Tensor& gradient) noexcept {
  if (!ended.ok()) return false;
  if (!hook_error_.ok()) return true;
  const internal::Handle& handle = store_->handles()[h];
  const std::string& name = layout.parameters()[static_cast<std::size_t>(handle.owner)].name;
  if (state_ != State::kAccumulating && state_ != State::kReducing) {
    outside_error_ = FailedPreconditionError(
        "backward reached parameter ", name,
        " outside of a micro-step, and its gradients are lost; call BeginMicroStep first");
    return true;
  }
  if (c10::GradMode::is_enabled()) {
    hook_error_ = UnimplementedError(
        "double backward is not supported: the gradient of parameter ", name,
        " has a graph of its own; call backward without create_graph, or take higher derivatives "
        "by torch::autograd::grad");
  } else if (state_ == State::kReducing && (fired_[h] || reducer_->IsIssued(handle.owner))) {
    hook_error_ = FailedPreconditionError(Refusal(h));
  } else {
    hook_error_ = internal::CatchAsStatus([&] { return gradients_->Accumulate(h, gradient); });
  }
  if (!hook_error_.ok() || state_ != State::kReducing) return true;
  fired_[h] = true;
  if (backward_begin_ == Time{}) backward_begin_ = Now();  // loss.backward() of the user
  reducer_->MarkReady(handle.owner);
  return true;
}

// Why a gradient that comes in the last micro-step is too late.
std::string DataParallel::Impl::Refusal(std::size_t h) const {
  const int owner = store_->handles()[h].owner;
  const std::string& name = layout.parameters()[static_cast<std::size_t>(owner)].name;
  if (!fired_[h]) {
    return StrCat("backward reached parameter ", name, " when ", reducer_->LabelOf(owner),
                  " was being reduced; run one backward over the sum of the losses in the last "
                  "micro-step, or make the earlier ones MicroStep::kAccumulate");
  }
  const char* empty =
      "make the micro-step MicroStep::kAccumulate, and let a last one without "
      "backward follow";
  if (in_backward_) {  // autograd itself comes once to every leaf
    return StrCat("parameter ", name, " got a second gradient within one backward, when ",
                  reducer_->LabelOf(owner),
                  " was waiting for one only: custom functions run a backward of their own inside "
                  "it (reentrant backward), and several of them use the parameter; ",
                  empty);
  }
  return StrCat("parameter ", name,
                " got a second gradient in the last micro-step, when the first was being reduced; "
                "run one backward over the sum of the losses, or make the earlier ones "
                "MicroStep::kAccumulate; if custom functions run a backward of their own inside "
                "backward (reentrant backward), ",
                empty);
}

Status DataParallel::Impl::TakeHookError() {
  if (!hook_error_.ok()) return End(hook_error_, "backward");
  return std::exchange(outside_error_, OkStatus());
}

// After the backward of the last micro-step, while buckets are in flight.
Status DataParallel::Impl::CompleteGradients() {
  AIT_RETURN_IF_ERROR(
      gradients_->KeepReduced([this](int owner) { return reducer_->IsIssued(owner); }));
  return gradients_->Complete();
}

Status DataParallel::Impl::Usable(const char* call) const {
  if (ended.ok()) return OkStatus();
  return FailedPreconditionError(call, ": the data-parallel engine has ended: ", Message(ended));
}

Status DataParallel::Impl::End(const Status& reason, const char* phase) {
  ended = Annotate(reason,
                   StrCat("rank ", communicator->rank(), ", step ", counters.step, ", ", phase));
  communicator->Abort(ended);
  return ended;
}

Status DataParallel::Impl::SetOptimizer(const Optimizer& optimizer, SimdLevel max_simd_level) {
  AIT_RETURN_IF_ERROR(Usable("SetOptimizer"));
  std::vector<std::unique_ptr<BoundOptimizer>> bound;
  for (const FlatGroup& group : layout.groups()) {
    ParameterLayout parameters;
    for (const FlatSlot& slot : group.slots) {
      const ParameterInfo& info = layout.parameters()[static_cast<std::size_t>(slot.parameter)];
      if (group.dtype != DType::kFloat32) {
        return UnimplementedError("parameter ", info.name, " is ", Name(group.dtype),
                                  "; the optimizers update float32 so far");
      }
      parameters.parameters.push_back(
          {.name = info.name, .begin = slot.offset, .shape = info.sizes});
    }
    parameters.owned.push_back({.begin = 0, .end = group.count});
    AIT_ASSIGN_OR_RETURN(
        bound.emplace_back(),
        optimizer.Bind(parameters, {.executor = executor_, .max_simd_level = max_simd_level}));
  }
  optimizers = std::move(bound);
  return OkStatus();
}

Status DataParallel::Impl::BeginMicroStep(MicroStep micro_step) {
  AIT_RETURN_IF_ERROR(Usable("BeginMicroStep"));
  if (state_ == State::kReducing) {
    return FailedPreconditionError(
        "BeginMicroStep: the last micro-step is still open; call FinishGradients");
  }
  if (state_ == State::kDecided || state_ == State::kUndecided) {
    return FailedPreconditionError("BeginMicroStep: the step is not over; call Update or Discard");
  }
  AIT_RETURN_IF_ERROR(TakeHookError());
  AIT_RETURN_IF_ERROR(store_->CheckUnchanged());
  const Status begun = gradients_->BeginMicroStep();
  if (!begun.ok()) return End(begun, "beginning a micro-step");
  if (!in_step_) counters = StepCounters{.step = counters.step + 1};
  in_step_ = true;
  ++counters.micro_steps;
  fired_.assign(fired_.size(), false);
  backward_called_ = false;
  backward_begin_ = backward_end_ = Time{};
  if (micro_step == MicroStep::kLast) {
    reducer_->Begin();
    state_ = State::kReducing;
  } else {
    state_ = State::kAccumulating;
  }
  forward_begin_ = Now();
  return OkStatus();
}

Status DataParallel::Impl::Backward(const at::Tensor& loss) {
  AIT_RETURN_IF_ERROR(Usable("Backward"));
  if (state_ != State::kAccumulating && state_ != State::kReducing) {
    return FailedPreconditionError("Backward: no micro-step is open; call BeginMicroStep first");
  }
  if (state_ == State::kReducing && backward_called_) {
    return FailedPreconditionError(
        "Backward: it was called before in this last micro-step; run one "
        "over the sum of the losses");
  }
  backward_called_ = true;
  backward_begin_ = Now();
  counters.forward += backward_begin_ - forward_begin_;
  in_backward_ = true;
  const Status status = internal::CatchAsStatus([&] { torch::autograd::backward({loss}, {}); });
  in_backward_ = false;
  if (!status.ok()) return End(status, "backward");
  if (!hook_error_.ok()) return End(hook_error_, "backward");
  if (state_ == State::kReducing) {
    const Status complete = CompleteGradients();
    if (!complete.ok()) return End(complete, "backward");
    reducer_->IssueRest();
  }
  backward_end_ = forward_begin_ = Now();
  counters.backward += backward_end_ - backward_begin_;
  return OkStatus();
}

StatusOr<GradientSummary> DataParallel::Impl::FinishGradients(const StepInput& input) {
  AIT_RETURN_IF_ERROR(Usable("FinishGradients"));
  if (state_ != State::kReducing) {
    return FailedPreconditionError(
        "FinishGradients: no last micro-step is open; call "
        "BeginMicroStep(MicroStep::kLast) and run backward first");
  }
  if (!hook_error_.ok()) return End(hook_error_, "backward");
  const Status complete = CompleteGradients();
  if (!complete.ok()) return End(complete, "completing gradients");
  if (!backward_called_) {  // the user's own, or none at all
    reducer_->IssueRest();
    backward_end_ = Now();
    if (backward_begin_ == Time{}) backward_begin_ = backward_end_;
    counters.forward += backward_begin_ - forward_begin_;
    counters.backward += backward_end_ - backward_begin_;
  }
  internal::OwnedSquares squares;
  const Status reduced = reducer_->Finish([&](int b) {
    const FlatBucket& bucket = layout.buckets()[static_cast<std::size_t>(b)];
    squares.Add(layout, b, gradients_->buffers()[static_cast<std::size_t>(bucket.group)],
                communicator->rank(), executor_);
  });
  reducer_->Report(backward_begin_, backward_end_, counters);
  if (!reduced.ok()) return End(reduced, "waiting for gradients");

  const internal::DecisionLine line = internal::MakeDecisionLine(input, squares);
  std::vector<std::int64_t> lines = line;
  if (communicator->size().value() > 1) {
    lines.resize(line.size() * static_cast<std::size_t>(communicator->size().value()));
    const Time begin = Now();
    const Status gathered =
        communicator->AllGather(View(line), View(lines), Labelled("decision of the step")).Wait();
    counters.exposed += Now() - begin;
    ++counters.collectives;
    counters.communicated_bytes += View(line).bytes().value();
    if (!gathered.ok()) return End(gathered, "deciding the step");
  }
  state_ = State::kUndecided;
  AIT_ASSIGN_OR_RETURN(GradientSummary summary, internal::Summarize(layout, lines));
  state_ = State::kDecided;
  return summary;
}

Status DataParallel::Impl::Update(const StepOptions& given) {
  AIT_RETURN_IF_ERROR(Usable("Update"));
  if (state_ != State::kDecided) {
    return FailedPreconditionError(
        "Update: the gradients are not reduced; call FinishGradients first");
  }
  if (optimizers.size() != layout.groups().size()) {
    return FailedPreconditionError("Update: the engine has no optimizer; call SetOptimizer first");
  }
  AIT_RETURN_IF_ERROR(TakeHookError());
  AIT_RETURN_IF_ERROR(store_->CheckUnchanged());
  const Time begin = Now();
  const Status adopted = gradients_->Adopt();
  if (!adopted.ok()) return End(adopted, "taking over gradients");
  StepOptions step = given;
  step.gradients_after = GradientsAfter::kKept;  // the next step writes over them
  for (const auto& optimizer : optimizers) AIT_RETURN_IF_ERROR(optimizer->BeginStep(step));
  for (std::size_t g = 0; g < optimizers.size(); ++g) {
    const Buffer& parameters = store_->buffers()[g];
    const Buffer& gradients = gradients_->buffers()[g];
    AIT_RETURN_IF_ERROR(
        optimizers[g]->Update({.begin = 0, .parameters = parameters, .gradients = gradients}));
  }
  store_->BumpVersions();
  counters.update = Now() - begin;
  CloseStep(GradientCompression::StepEnd::kUpdated);
  return OkStatus();
}

Status DataParallel::Impl::Discard() {
  AIT_RETURN_IF_ERROR(Usable("Discard"));
  if (state_ == State::kReducing) {
    return FailedPreconditionError(
        "Discard: gradients are being reduced; call FinishGradients first");
  }
  const Status found = TakeHookError();
  CloseStep(GradientCompression::StepEnd::kDiscarded);  // whatever was found goes with it
  return found;
}

MemoryReport DataParallel::Impl::Memory() const {
  MemoryReport report;
  for (const FlatGroup& group : layout.groups()) {
    std::int64_t count = 0;
    for (const FlatSlot& slot : group.slots) count += slot.count;
    report.formula.parameters += count * SizeOf(group.dtype);
    report.formula.gradients += count * SizeOf(group.dtype);
    report.padding += 2 * (group.count - count) * SizeOf(group.dtype);
  }
  for (const Buffer& buffer : store_->buffers())
    report.measured.parameters += buffer.bytes().value();
  for (const Buffer& buffer : gradients_->buffers())
    report.measured.gradients += buffer.bytes().value();
  for (const auto& optimizer : optimizers) {
    report.measured.masters += optimizer->master_bytes();
    report.measured.states += optimizer->state_bytes() - optimizer->master_bytes();
  }
  return report;
}

Status DataParallel::Impl::BetweenSteps(const char* call) const {
  AIT_RETURN_IF_ERROR(Usable(call));
  if (!in_step_) return OkStatus();
  return FailedPreconditionError(call, ": a step is not over; call it after Update or Discard");
}

StatusOr<CompressionState> DataParallel::Impl::SaveCompression() const {
  AIT_RETURN_IF_ERROR(BetweenSteps("SaveCompression"));
  return options.compression == nullptr ? CompressionState() : options.compression->Save();
}

StatusOr<std::string> DataParallel::Impl::LoadCompression(
    std::span<const CompressionState> states) {
  AIT_RETURN_IF_ERROR(BetweenSteps("LoadCompression"));
  const auto begin_anew = [&] {
    return options.compression->Bind(layout, communicator->rank(), communicator->size());
  };
  if (options.compression == nullptr) {
    const bool is_empty =
        std::ranges::all_of(states, [](const auto& state) { return state.method.empty(); });
    return std::string(is_empty ? "" : "the engine does not compress: the state is not used");
  }
  AIT_RETURN_IF_ERROR(begin_anew());
  const StatusOr<std::string> lost =
      internal::CatchAsStatus([&] { return options.compression->Load(states); });
  const Status agreed = internal::CheckAgreement(
      *communicator, lost.status(),
      {StrCat("state of the gradient compression: ", options.compression->Describe())}, 0,
      Labelled(""));
  if (agreed.ok()) return lost;
  AIT_RETURN_IF_ERROR(begin_anew());
  return agreed;
}

void DataParallel::Impl::CloseStep(GradientCompression::StepEnd end) {
  if (options.compression != nullptr) options.compression->EndStep(end);
  gradients_->Forget();
  state_ = State::kReady;
  in_step_ = false;
}

}  // namespace ait::inline v0
