// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/staging.h"

#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "ait/memory/buffer.h"
#include "ait/memory/pool.h"
#include "tensor/torch_internal.h"

namespace ait::inline v0 {
namespace {

/// Host or device, as far as a copy is concerned.
struct Side {
  void* data;
  bool on_device;
};

std::string Describe(const at::Tensor& tensor) {
  std::string text = StrCat(c10::toString(tensor.scalar_type()), " (");
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    text += StrCat(i == 0 ? "" : ", ", tensor.size(i));
  return text + ")";
}

StatusOr<Side> SideOf(const at::Tensor& tensor, Device device, const char* role) {
  if (!tensor.defined()) return InvalidArgumentError("cannot copy: `", role, "` is undefined");
  if (tensor.layout() != c10::kStrided || !tensor.is_contiguous() || tensor.is_conj() ||
      tensor.is_neg()) {
    return InvalidArgumentError("cannot copy: `", role, "`, ", Describe(tensor),
                                ", is not contiguous; call .contiguous()");
  }
  const bool on_device = tensor.is_cuda();
  if (on_device && tensor.device().index() != device.value()) {
    return InvalidArgumentError("cannot copy: `", role, "` is on ", tensor.device().str(),
                                " and this staging area is of device ", device,
                                "; use an area for each device");
  }
  if (!on_device && !tensor.device().is_cpu()) {
    return InvalidArgumentError("cannot copy: `", role, "` is on ", tensor.device().str(),
                                ", which is neither the CPU nor a CUDA device");
  }
  return Side{tensor.numel() == 0 ? nullptr : tensor.data_ptr(), on_device};
}

}  // namespace

struct StagedCopy::State {
  at::Tensor to, from;
  HostBuffer block;            // empty: not staged
  std::optional<Event> event;  // that the device has passed; none: nothing was given to it
  bool to_host = false;        // the block's bytes still go to `to`
  bool abandoned = false;      // nobody waits for them any more
  bool ended = false;
  std::mutex mutex;

  ~State() {
    // The device may still use the block.
    if (event.has_value() && !ended) (void)event->Wait();
  }

  Status Wait() {
    const std::lock_guard lock(mutex);
    if (ended || !event.has_value()) return OkStatus();
    AIT_RETURN_IF_ERROR(event->Wait());
    if (to_host && !abandoned && block.data() != nullptr) {
      std::memcpy(to.data_ptr(), block.data(), block.size_bytes());
    }
    End();
    return OkStatus();
  }

  void Abandon() {
    const std::lock_guard lock(mutex);
    abandoned = true;
  }

  /// Gives the block back if the device has passed and nobody waits for what it holds. True if it
  /// has been given back.
  bool Release() {
    const std::lock_guard lock(mutex);
    if (ended || !event.has_value()) return true;
    if (to_host && !abandoned) return false;
    const StatusOr<bool> done = event->Done();
    if (!done.ok() || !*done) return false;
    End();
    return true;
  }

  void End() {
    ended = true;
    block = HostBuffer();
  }
};

StagedCopy::StagedCopy(std::shared_ptr<State> state) : state_(std::move(state)) {}
StagedCopy::StagedCopy(StagedCopy&& other) noexcept = default;
StagedCopy& StagedCopy::operator=(StagedCopy&& other) noexcept {
  if (this != &other) {
    if (state_ != nullptr) state_->Abandon();
    state_ = std::move(other.state_);
  }
  return *this;
}
StagedCopy::~StagedCopy() {
  if (state_ != nullptr) state_->Abandon();
}

Status StagedCopy::Before(Stream& stream) const {
  return state_->event.has_value() ? stream.WaitFor(*state_->event) : OkStatus();
}

StatusOr<bool> StagedCopy::Done() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->ended || !state_->event.has_value()) return true;
  return state_->event->Done();
}

Status StagedCopy::Wait() { return state_->Wait(); }

struct Staging::Impl {
  StagingOptions options;
  std::optional<Stream> stream;  // none: no GPU
  mutable std::mutex mutex;
  std::deque<std::shared_ptr<StagedCopy::State>> in_flight;  // with a block
  StagingStatistics statistics;

  /// Forgets copies whose block has been given back. Under the mutex, as the next.
  void DropReleased();
  /// Waits for the oldest copies as long as `bytes` more are too many.
  Status MakeRoom(std::int64_t bytes);
  Status Send(StagedCopy::State& state, const Side& to, const Side& from, const Stream* after);
};

void Staging::Impl::DropReleased() {
  std::erase_if(in_flight, [&](const std::shared_ptr<StagedCopy::State>& state) {
    if (!state->Release()) return false;
    statistics.in_flight_bytes -= static_cast<std::int64_t>(state->from.nbytes());
    return true;
  });
}

Status Staging::Impl::MakeRoom(std::int64_t bytes) {
  DropReleased();
  if (in_flight.empty() || statistics.in_flight_bytes + bytes <= options.max_in_flight.value()) {
    return OkStatus();
  }
  ++statistics.waited_count;
  do {
    AIT_RETURN_IF_ERROR(in_flight.front()->Wait());
    DropReleased();
  } while (!in_flight.empty() &&
           statistics.in_flight_bytes + bytes > options.max_in_flight.value());
  return OkStatus();
}

Status Staging::Impl::Send(StagedCopy::State& state, const Side& to, const Side& from,
                           const Stream* after) {
  const Bytes bytes(static_cast<std::int64_t>(state.from.nbytes()));
  const void* source = from.data;
  void* target = to.data;
  if (from.on_device != to.on_device) {
    const void* const host = from.on_device ? to.data : from.data;
    AIT_ASSIGN_OR_RETURN(const MemoryLocation location, options.gpus->Locate(host));
    if (location.place == MemoryPlace::kHost) {
      AIT_RETURN_IF_ERROR(MakeRoom(bytes.value()));
      AIT_ASSIGN_OR_RETURN(state.block, HostBuffer::Create(options.memory, state.from.nbytes()));
      (from.on_device ? target : const_cast<void*&>(source)) = state.block.data();
      if (!from.on_device) std::memcpy(state.block.data(), from.data, state.block.size_bytes());
      state.to_host = from.on_device;
      ++statistics.staged_count;
    }
  }
  AIT_ASSIGN_OR_RETURN(Event event, Event::Create(options.gpus, options.device));
  if (after != nullptr) {
    AIT_RETURN_IF_ERROR(event.Record(*after));
    AIT_RETURN_IF_ERROR(stream->WaitFor(event));
  }
  AIT_RETURN_IF_ERROR(stream->Copy(target, source, bytes));
  const Status recorded = event.Record(*stream);
  if (!recorded.ok()) {
    (void)stream->Wait();  // nobody else would
    return recorded;
  }
  state.event = std::move(event);
  return OkStatus();
}

Staging::Staging(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Staging::~Staging() {
  if (impl_->stream.has_value()) (void)impl_->stream->Wait();
}

StatusOr<std::shared_ptr<Staging>> Staging::Create(StagingOptions options) {
  if (options.max_in_flight < Bytes(1)) {
    return InvalidArgumentError("cannot make a staging area with ", options.max_in_flight,
                                " bytes in flight; 1 or more are possible");
  }
  const MemoryProperties properties = options.memory.properties();
  if (properties.residence == Residence::kDevice) {
    return InvalidArgumentError("cannot stage through ", properties.name,
                                ": it is memory of a device");
  }
  if (!options.memory) {
    AIT_ASSIGN_OR_RETURN(options.memory, PoolResource::Create());
  }
  if (options.gpus == nullptr) options.gpus = DeviceRuntime::Open();
  auto impl = std::make_unique<Impl>();
  if (options.gpus->count() > 0) {
    AIT_ASSIGN_OR_RETURN(impl->stream, Stream::Create(options.gpus, options.device));
  }
  impl->options = std::move(options);
  return std::shared_ptr<Staging>(new Staging(std::move(impl)));
}

StatusOr<StagedCopy> Staging::Copy(const at::Tensor& to, const at::Tensor& from,
                                   const Stream* after) {
  AIT_ASSIGN_OR_RETURN(const Side source, SideOf(from, impl_->options.device, "from"));
  AIT_ASSIGN_OR_RETURN(const Side target, SideOf(to, impl_->options.device, "to"));
  if (to.scalar_type() != from.scalar_type() || to.sizes() != from.sizes()) {
    return InvalidArgumentError("cannot copy ", Describe(from), " into ", Describe(to),
                                ": dtypes and shapes must be the same");
  }
  auto state = std::make_shared<StagedCopy::State>();
  state->to = to;
  state->from = from;
  const bool on_host = !source.on_device && !target.on_device;
  if (on_host && from.numel() != 0) std::memcpy(target.data, source.data, from.nbytes());
  const std::lock_guard lock(impl_->mutex);
  ++impl_->statistics.copy_count;
  if (on_host || from.numel() == 0) return StagedCopy(std::move(state));
  if (!impl_->stream.has_value()) {
    return FailedPreconditionError("cannot copy a tensor of a GPU: ",
                                   Message(impl_->options.gpus->status()));
  }
  AIT_RETURN_IF_ERROR(impl_->Send(*state, target, source, after));
  if (state->block.data() != nullptr) {
    impl_->in_flight.push_back(state);
    impl_->statistics.in_flight_bytes += static_cast<std::int64_t>(from.nbytes());
  }
  return StagedCopy(std::move(state));
}

StagingStatistics Staging::statistics() const {
  const std::lock_guard lock(impl_->mutex);
  impl_->DropReleased();
  return impl_->statistics;
}

}  // namespace ait::inline v0
