// SPDX-License-Identifier: Apache-2.0
#include "parallel/data_parallel_impl.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "ait/optim/torch_executor.h"
#include "tensor/catch.h"

namespace ait::inline v0 {
namespace {

Time Now() { return SystemClock().now(); }

}  // namespace

DataParallel::Impl::Impl(std::shared_ptr<Communicator> comm, DataParallelOptions given,
                         FlatLayout flat_layout, internal::CompressionLease compression)
    : communicator(std::move(comm)),
      options(std::move(given)),
      layout(std::move(flat_layout)),
      compression_(std::move(compression)),
      executor_(TorchExecutor()),
      shard_(options.hybrid.shard != nullptr ? options.hybrid.shard : communicator),
      replicate_(options.hybrid.replicate),
      is_sharded_(options.zero_stage != ZeroStage::kNone),
      reduces_each_(WhenReduced(options) == ReduceWhen::kEachMicroStep),
      reduced_squares_(layout.buckets().size()),
      has_squares_(layout.buckets().size()) {}

DataParallel::Impl::~Impl() {
  *self_ = nullptr;
  if (hook_target_ == nullptr) return;
  hook_target_->engine = nullptr;
  (void)internal::CatchAsStatus([&] {
    reducer_.reset();               // nothing is in flight from here on
    return gradients_->Complete();  // the user's backward adds to them
  });
}

ReduceWhen DataParallel::Impl::WhenReduced(const DataParallelOptions& options) {
  const bool shards_gradients = options.zero_stage >= ZeroStage::kGradients;
  return options.reduce.value_or(shards_gradients ? ReduceWhen::kEachMicroStep : ReduceWhen::kOnce);
}

OperationOptions DataParallel::Impl::Labelled(std::string label) const {
  return {.timeout = options.timeout, .label = std::move(label)};
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
    return true;
  }
  hook_error_ = internal::CatchAsStatus([&]() -> Status {
    if (reduces_) AIT_RETURN_IF_ERROR(OpenRound());
    if (reduces_ && (fired_[h] || reducer_->IsIssued(handle.owner))) {
      return FailedPreconditionError(Refusal(h));
    }
    return gradients_->Accumulate(h, gradient);
  });
  if (!hook_error_.ok() || !reduces_) return true;
  fired_[h] = true;
  if (backward_begin_ == Time{}) backward_begin_ = Now();  // loss.backward() of the user
  hook_error_ = internal::CatchAsStatus([&] {
    reducer_->MarkReady(handle.owner);
    return OkStatus();
  });
  return true;
}

// Why a gradient that comes in a micro-step that reduces is too late.
std::string DataParallel::Impl::Refusal(std::size_t h) const {
  const int owner = store_->handles()[h].owner;
  const std::string& name = layout.parameters()[static_cast<std::size_t>(owner)].name;
  const char* micro_step = reduces_each_ ? "a micro-step that is reduced" : "the last micro-step";
  const char* earlier = reduces_each_ ? "" : ", or make the earlier ones MicroStep::kAccumulate";
  if (!fired_[h]) {
    return StrCat("backward reached parameter ", name, " when ", reducer_->LabelOf(owner),
                  " was being reduced; run one backward over the sum of the losses in ", micro_step,
                  earlier);
  }
  const char* empty =
      reduces_each_
          ? "use ReduceWhen::kOnce and make the micro-step MicroStep::kAccumulate, and let a last "
            "one without backward follow"
          : "make the micro-step MicroStep::kAccumulate, and let a last one without backward "
            "follow";
  if (in_backward_) {  // autograd itself comes once to every leaf
    return StrCat("parameter ", name, " got a second gradient within one backward, when ",
                  reducer_->LabelOf(owner),
                  " was waiting for one only: custom functions run a backward of their own inside "
                  "it (reentrant backward), and several of them use the parameter; ",
                  empty);
  }
  return StrCat("parameter ", name, " got a second gradient in ", micro_step,
                ", when the first was being reduced; run one backward over the sum of the losses",
                earlier,
                "; if custom functions run a backward of their own inside backward (reentrant "
                "backward), ",
                empty);
}

Status DataParallel::Impl::TakeHookError() {
  if (!hook_error_.ok()) return End(hook_error_, "backward");
  return std::exchange(outside_error_, OkStatus());
}

Status DataParallel::Impl::Usable(const char* call) const {
  if (ended.ok()) return OkStatus();
  return FailedPreconditionError(call, ": the data-parallel engine has ended: ", Message(ended));
}

Status DataParallel::Impl::End(const Status& reason, const char* phase) {
  ended = OkStatus();
  Abort(Annotate(reason,
                 StrCat("rank ", communicator->rank(), ", step ", counters.step, ", ", phase)));
  return ended;
}

void DataParallel::Impl::Abort(const Status& reason) {
  if (!ended.ok() || reason.ok()) return;
  ended = reason;
  communicator->Abort(ended);
  if (shard_ != communicator) shard_->Abort(ended);
  if (replicate_ != nullptr) replicate_->Abort(ended);
  if (units_ != nullptr) units_->shards().communicator().Abort(ended);  // its own without reach
}

// At the first gradient of a micro-step that is reduced, or at its end if none came. Takes the sums
// of the micro-step before this one, which may still be in flight.
Status DataParallel::Impl::OpenRound() {
  if (is_open_) return OkStatus();
  AIT_RETURN_IF_ERROR(FinishRound());
  reducer_->Begin();
  is_open_ = true;
  is_last_round_ = state_ == State::kReducing;
  std::ranges::fill(has_squares_, 0);
  squares_ = {};
  round_ = Round::kFilling;
  return OkStatus();
}

// Backward is over: issues what is left, if that was not done.
Status DataParallel::Impl::IssueRound() {
  AIT_RETURN_IF_ERROR(
      gradients_->KeepReduced([this](int owner) { return reducer_->IsIssued(owner); }));
  AIT_RETURN_IF_ERROR(gradients_->Complete());
  if (round_ != Round::kFilling) return OkStatus();
  reducer_->IssueRest();
  round_ = Round::kInFlight;
  round_end_ = Now();
  round_begin_ = backward_begin_ == Time{} ? round_end_ : backward_begin_;
  return OkStatus();
}

Status DataParallel::Impl::FinishRound() {
  if (round_ != Round::kInFlight) return OkStatus();
  round_ = Round::kNone;
  const Status reduced = reducer_->Finish();
  reducer_->Report(round_begin_, round_end_, counters);
  return reduced;
}

// The squares of bucket b while the reduction has its sums in the caches, where those are final.
internal::BucketReducer::OnReduced DataParallel::Impl::SquaresOnReduced(int b) {
  const Buffer owned = gradients_->Owned(b);
  if (!is_last_round_ || replicate_ != nullptr || !shard_->reports_reduced() ||
      owned.dtype != DType::kFloat32 || !gradients_->IsFinal(b)) {
    return nullptr;
  }
  SumOfSquares& sum = reduced_squares_[static_cast<std::size_t>(b)];
  sum = SumOfSquares();
  has_squares_[static_cast<std::size_t>(b)] = 1;
  const float* values = static_cast<const float*>(owned.data);
  return [&sum, values](std::int64_t begin, std::int64_t count) {
    sum.Add(ComputeSumOfSquares({values + begin, static_cast<std::size_t>(count)}));
  };
}

// Bucket b is reduced. Of replicas of a slice, the first has its squares.
void DataParallel::Impl::OnBucket(int b) {
  if (!is_last_round_ || (replicate_ != nullptr && replicate_->rank() != Rank(0))) return;
  const auto index = static_cast<std::size_t>(b);
  squares_.AddSlice(layout, b, gradients_->Owned(b), shard_->rank(), executor_,
                    has_squares_[index] != 0 ? &reduced_squares_[index] : nullptr);
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
  AIT_RETURN_IF_ERROR(CheckUnchanged());
  Status begun = OkStatus();
  if (reduces_ && state_ == State::kAccumulating) {  // of the micro-step before
    begun = OpenRound();
    if (begun.ok()) begun = IssueRound();
  }
  if (begun.ok()) begun = gradients_->BeginMicroStep();
  if (!begun.ok()) return End(begun, "beginning a micro-step");
  if (!in_step_) counters = StepCounters{.step = counters.step + 1};
  in_step_ = true;
  if (units_ != nullptr) units_->BeginMicroStep();
  ++counters.micro_steps;
  fired_.assign(fired_.size(), false);
  backward_called_ = false;
  backward_begin_ = backward_end_ = Time{};
  state_ = micro_step == MicroStep::kLast ? State::kReducing : State::kAccumulating;
  reduces_ = reduces_each_ || state_ == State::kReducing;
  is_open_ = false;
  forward_begin_ = Now();
  return OkStatus();
}

Status DataParallel::Impl::Backward(const at::Tensor& loss) {
  AIT_RETURN_IF_ERROR(Usable("Backward"));
  if (state_ != State::kAccumulating && state_ != State::kReducing) {
    return FailedPreconditionError("Backward: no micro-step is open; call BeginMicroStep first");
  }
  if (reduces_ && backward_called_) {
    return FailedPreconditionError("Backward: it was called before in this ",
                                   reduces_each_ ? "" : "last ",
                                   "micro-step; run one over the sum of the losses");
  }
  backward_called_ = true;
  backward_begin_ = Now();
  counters.forward += backward_begin_ - forward_begin_;
  in_backward_ = true;
  const Status status = internal::CatchAsStatus([&] { torch::autograd::backward({loss}, {}); });
  in_backward_ = false;
  if (!status.ok()) return End(status, "backward");
  if (!hook_error_.ok()) return End(hook_error_, "backward");
  Duration stalled{};
  if (reduces_) {
    Status complete = OpenRound();
    if (complete.ok()) complete = IssueRound();
    if (!complete.ok()) return End(complete, "backward");
    stalled = reducer_->stalled();
  }
  backward_end_ = forward_begin_ = Now();
  counters.backward += backward_end_ - backward_begin_ - stalled;
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
  Status complete = OpenRound();
  if (complete.ok()) complete = IssueRound();
  if (!complete.ok()) return End(complete, "completing gradients");
  if (!backward_called_) {  // the user's own, or none at all
    backward_begin_ = round_begin_;
    backward_end_ = round_end_;
    counters.forward += backward_begin_ - forward_begin_;
    counters.backward += backward_end_ - backward_begin_;
  }
  const Status reduced = FinishRound();
  if (!reduced.ok()) return End(reduced, "waiting for gradients");

  // What this rank has read of its peers' slices is read before they decide.
  if (units_ != nullptr) {
    const Status settled = units_->Settle();
    if (!settled.ok()) return End(settled, "comparing the order of units");
  }
  ReportUnits();
  return Decide(input);
}

Status DataParallel::Impl::Discard() {
  AIT_RETURN_IF_ERROR(Usable("Discard"));
  if (state_ == State::kReducing) {
    return FailedPreconditionError(
        "Discard: gradients are being reduced; call FinishGradients first");
  }
  const Status found = TakeHookError();
  if (reduces_ && state_ == State::kAccumulating && ended.ok()) {
    Status finished = OpenRound();
    if (finished.ok()) finished = IssueRound();
    if (finished.ok()) finished = FinishRound();
    if (!finished.ok()) return End(finished, "ending the reductions of a step that is discarded");
  }
  CloseStep(GradientCompression::StepEnd::kDiscarded);  // whatever was found goes with it
  return found;
}

Status DataParallel::Impl::BetweenSteps(const char* call) const {
  AIT_RETURN_IF_ERROR(Usable(call));
  if (!in_step_) return OkStatus();
  return FailedPreconditionError(call, ": a step is not over; call it after Update or Discard");
}

void DataParallel::Impl::CloseStep(GradientCompression::StepEnd end) {
  if (options.compression != nullptr) options.compression->EndStep(end);
  gradients_->Forget();
  if (units_ != nullptr) units_->Release();
  state_ = State::kReady;
  in_step_ = false;
  reduces_ = false;
}

}  // namespace ait::inline v0
