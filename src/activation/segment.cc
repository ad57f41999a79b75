// SPDX-License-Identifier: Apache-2.0
#include "activation/segment_internal.h"

// Keep the order.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "ait/base/throw_on_error.h"

namespace ait::inline v0::internal {
namespace {

/// Ends a run of which all that is needed has been saved. No std::exception, so that what a
/// function catches of its own does not catch it.
struct EnoughRecomputed {};

/// A tensor that a segment does not keep.
class Slot final : public SavedTensor {
 public:
  Slot(std::shared_ptr<Segment> segment, std::size_t number)
      : segment_(std::move(segment)), number_(number) {}
  ~Slot() override { segment_->Release(number_); }
  at::Tensor Restore() override { return segment_->Restore(number_); }

 private:
  std::shared_ptr<Segment> segment_;
  const std::size_t number_;
};

/// Tells a segment that a backward is over: lives as long as the graph task.
class EndOfTask {
 public:
  EndOfTask(std::weak_ptr<Segment> segment, int task) : segment_(std::move(segment)), task_(task) {}
  ~EndOfTask() {
    if (const auto segment = segment_.lock()) segment->EndTask(task_);
  }
  EndOfTask(const EndOfTask&) = delete;
  EndOfTask& operator=(const EndOfTask&) = delete;

 private:
  std::weak_ptr<Segment> segment_;
  const int task_;
};

}  // namespace

/// What holds while a segment runs again.
class Segment::Filler final : public SavedTensorPolicy {
 public:
  Filler(Segment& segment, std::size_t needed, bool stops)
      : segment_(segment), needed_(needed), stops_(stops), tensors_(segment.saved_.size()) {}

  std::unique_ptr<SavedTensor> Save(const at::Tensor& tensor) override {
    if (is_complete() && stops_) throw EnoughRecomputed{};  // the function has caught the first
    if (error_ != nullptr) std::rethrow_exception(error_);
    const std::size_t number = count_++;
    try {
      segment_.CheckSame(number, tensor);
    } catch (...) {
      error_ = std::current_exception();
      throw;
    }
    if (number < tensors_.size() && segment_.saved_[number].is_alive) {
      tensors_[number] = {tensor, SavedVersion(tensor)};
    }
    if (is_complete() && stops_) throw EnoughRecomputed{};
    return nullptr;
  }

  void Release(std::size_t number) {
    if (number < tensors_.size()) tensors_[number] = {};
  }

  bool is_complete() const { return count_ >= needed_; }
  std::size_t count() const { return count_; }
  const std::exception_ptr& error() const { return error_; }
  std::vector<Recomputed> TakeTensors() { return std::move(tensors_); }

 private:
  Segment& segment_;
  const std::size_t needed_;  // tensors
  const bool stops_;
  std::size_t count_ = 0;
  std::vector<Recomputed> tensors_;
  std::exception_ptr error_;  // functions may catch it
};

std::unique_ptr<SavedTensor> Segment::Record(const at::Tensor& tensor) {
  const std::scoped_lock lock(mutex_);
  const CheckpointOptions& options = replay.options();
  Saved saved{.metadata = TensorMetadata(tensor), .version = SavedVersion(tensor)};
  if (options.determinism == Determinism::kValues) saved.hash = HashOf(tensor);
  if (options.counters != nullptr && !IsRecomputing()) ++options.counters->dropped_tensors;
  saved_.push_back(std::move(saved));
  return std::make_unique<Slot>(shared_from_this(), saved_.size() - 1);
}

void Segment::Close() {
  const std::scoped_lock lock(mutex_);
  is_closed_ = true;
}

void Segment::CheckSame(std::size_t number, const at::Tensor& tensor) const {
  const CheckpointOptions& options = replay.options();
  if (options.determinism == Determinism::kUnchecked) return;
  const auto fail = [&](const auto&... what) {
    ThrowOnError(FailedPreconditionError(
        "checkpointed segment ", options.name, ": ", what...,
        "; the function must do the same when it runs again, and what it reads must not change "
        "between forward and backward"));
  };
  if (number >= saved_.size()) {
    fail("running it again saves more tensors than the ", saved_.size(),
         " of forward; the next is ", Describe(TensorMetadata(tensor)));
  }
  const Saved& saved = saved_[number];
  const TensorMetadata now(tensor);
  if (!SameButStrides(now, saved.metadata) ||
      (!replay.strides_differ() && !SameStrides(now, saved.metadata))) {
    fail("saved tensor ", number, " of ", saved_.size(), " was ", Describe(saved.metadata),
         " in forward and is ", Describe(now), " when it runs again");
  }
  if (options.determinism == Determinism::kValues && HashOf(tensor) != saved.hash) {
    fail("saved tensor ", number, " of ", saved_.size(), ", ", Describe(now),
         ", has other values when it runs again than in forward");
  }
}

std::vector<Segment::Recomputed> Segment::Recompute(std::size_t number) {
  const CheckpointOptions& options = replay.options();
  if (filler_ != nullptr) {
    ThrowOnError(FailedPreconditionError(
        "checkpointed segment ", options.name,
        ": while it runs again, its function runs a backward through its own graph of forward"));
  }
  const std::vector<at::Tensor> inputs = replay.RestoreInputs();
  std::size_t needed = saved_.size();
  while (needed > 0 && !saved_[needed - 1].is_alive) --needed;
  // A backward inside of the function comes before the rest of the tensors.
  const bool stops = options.early_stop || !is_closed_;
  const auto filler = std::make_shared<Filler>(*this, needed, stops);
  filler_ = filler;
  if (options.counters != nullptr) ++options.counters->recomputes;
  try {
    const SavedTensorScope scope(filler);
    replay.Run(inputs, nullptr);
  } catch (...) {
    filler_ = nullptr;
    if (filler->error() != nullptr) std::rethrow_exception(filler->error());
    if (!stops || !filler->is_complete()) throw;
  }
  filler_ = nullptr;
  if (filler->error() != nullptr) std::rethrow_exception(filler->error());
  std::vector<Recomputed> tensors = filler->TakeTensors();
  const bool too_few = stops ? !filler->is_complete() : filler->count() < saved_.size();
  if (!tensors[number].tensor.defined() ||
      (too_few && options.determinism != Determinism::kUnchecked)) {
    ThrowOnError(FailedPreconditionError(
        "checkpointed segment ", options.name, ": forward saved ", saved_.size(),
        " tensors and running it again only ", filler->count(), ", so that number ",
        filler->count() < needed ? filler->count() : number, ", ",
        Describe(saved_[std::min(filler->count(), number)].metadata),
        ", is missing; the function must do the same when it runs again"));
  }
  return tensors;
}

at::Tensor Segment::Restore(std::size_t number) {
  const std::scoped_lock lock(mutex_);
  const CheckpointOptions& options = replay.options();
  const auto check = [&](const SavedVersion& version, const char* since) {
    if (!version.changed()) return;
    ThrowOnError(FailedPreconditionError(
        "checkpointed segment ", options.name, ": saved tensor ", number, " of ", saved_.size(),
        ", ", Describe(saved_[number].metadata), ", was changed in place after ", since,
        " had saved it: it is at version ", version.now(), ", expected version ", version.saved()));
  };
  check(saved_[number].version, "forward");
  const int id = torch::autograd::get_current_graph_task_id();
  const auto find = [&] {
    return std::ranges::find_if(tasks_, [&](const Task& task) { return task.id == id; });
  };
  auto task = find();
  if (task == tasks_.end() || !task->tensors[number].tensor.defined()) {
    std::vector<Recomputed> tensors = Recompute(number);
    task = find();
    if (task == tasks_.end()) {
      tasks_.push_back({.id = id});
      task = std::prev(tasks_.end());
      if (id >= 0) {
        torch::autograd::Engine::get_default_engine().queue_callback(
            [end = std::make_shared<EndOfTask>(weak_from_this(), id)] {});
      }
    }
    task->tensors = std::move(tensors);
  }
  const Recomputed restored = std::exchange(task->tensors[number], {});
  if (id < 0) tasks_.erase(task);
  check(*restored.version, "running it again");
  if (options.counters != nullptr) {
    const bool has_bytes = restored.tensor.layout() == c10::kStrided;
    options.counters->recomputed_bytes +=
        has_bytes ? static_cast<std::int64_t>(restored.tensor.nbytes()) : 0;
  }
  return restored.tensor;
}

void Segment::Release(std::size_t number) {
  const std::scoped_lock lock(mutex_);
  saved_[number].is_alive = false;
  if (filler_ != nullptr) filler_->Release(number);
  for (Task& task : tasks_) {
    if (number < task.tensors.size()) task.tensors[number] = {};
  }
}

void Segment::EndTask(int id) {
  std::vector<Task> ended;  // destroyed without the lock
  const std::scoped_lock lock(mutex_);
  for (auto task = tasks_.begin(); task != tasks_.end();) {
    if (task->id != id) {
      ++task;
      continue;
    }
    ended.push_back(std::move(*task));
    task = tasks_.erase(task);
  }
}

}  // namespace ait::inline v0::internal
