// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/host_offload.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "ait/device/buffer.h"
#include "optim/parameter_access.h"

namespace ait::inline v0 {
namespace {

constexpr std::int64_t kLeastChunk = 4096;  // elements; a multiple of every block of state

Status CheckOptions(const Optimizer& optimizer, const HostOffloadOptions& options) {
  if (options.runtime == nullptr) {
    return InvalidArgumentError("host offload has no device runtime; give DeviceRuntime::Open()");
  }
  AIT_RETURN_IF_ERROR(options.runtime->status());
  AIT_RETURN_IF_ERROR(internal::CheckReal(options.gradient_dtype, "gradients"));
  if (options.chunk_elements < kLeastChunk || options.chunks < 2 || options.chunks > 64) {
    return InvalidArgumentError("host offload has ", options.chunks, " chunks of ",
                                options.chunk_elements, " elements; give 2 to 64 of at least ",
                                kLeastChunk);
  }
  if (optimizer.ownership() == Ownership::kWholeParameters) {
    return UnimplementedError(optimizer.name(),
                              " needs whole parameters at once; host offload updates them chunk by "
                              "chunk and takes AdamW, Adam, SGD and Lion");
  }
  return OkStatus();
}

}  // namespace

struct HostOffload::Impl {
  // Gradients that were brought, or are on their way: an event for each chunk.
  struct Fetched {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::vector<Event> arrived;
  };

  Impl(HostOffloadOptions given, Stream down_stream, Stream up_stream, Event sent_event,
       Event cleared_event)
      : options(std::move(given)),
        down(std::move(down_stream)),
        up(std::move(up_stream)),
        sent(std::move(sent_event)),
        cleared(std::move(cleared_event)) {}

  // Chunks end at multiples of chunk_elements of the flat buffer.
  std::int64_t ChunkCount(const DeviceSlice& slice) const {
    const std::int64_t end = slice.begin + slice.gradients.count;
    const std::int64_t step = options.chunk_elements;
    return slice.gradients.count == 0 ? 0 : (end - 1) / step - slice.begin / step + 1;
  }
  ElementRange Chunk(const DeviceSlice& slice, std::int64_t k) const {
    const std::int64_t first = (slice.begin / options.chunk_elements + k) * options.chunk_elements;
    return {std::max(first, slice.begin),
            std::min(first + options.chunk_elements, slice.begin + slice.gradients.count)};
  }

  // Where an element lies among those owned.
  StatusOr<std::int64_t> Position(std::int64_t begin, std::int64_t count) const {
    std::int64_t before = 0;
    for (const ElementRange& range : owned) {
      if (begin >= range.begin && begin + count <= range.end) return before + begin - range.begin;
      before += range.size();
    }
    return InvalidArgumentError("slice [", begin, ", ", begin + count,
                                ") is not inside one of the ", owned.size(), " ranges owned");
  }
  StatusOr<std::int64_t> CheckParameters(const DeviceSlice& slice) const {
    if (slice.parameters.dtype != options.bind.parameter_dtype) {
      return InvalidArgumentError("parameters are ", Name(slice.parameters.dtype),
                                  "; the optimizer is bound to ",
                                  Name(options.bind.parameter_dtype));
    }
    return Position(slice.begin, slice.parameters.count);
  }
  StatusOr<std::int64_t> CheckGradients(const DeviceSlice& slice) const {
    if (slice.gradients.dtype != options.gradient_dtype) {
      return InvalidArgumentError("gradients are ", Name(slice.gradients.dtype),
                                  "; host offload was made for ", Name(options.gradient_dtype));
    }
    return Position(slice.begin, slice.gradients.count);
  }

  Buffer Mirror(std::int64_t position, std::int64_t count) const {
    return Buffer{mirror.data(), owned_elements, options.bind.parameter_dtype}.Slice(position,
                                                                                     count);
  }
  // Of chunk k of a slice, whose first element has this position.
  Buffer HostGradientsOf(std::int64_t position, std::int64_t k, std::int64_t count) const {
    const bool whole = options.gradients == HostGradients::kWhole;
    return Buffer{gradients.data(), gradients_elements, options.gradient_dtype}.Slice(
        whole ? position : k % options.chunks * options.chunk_elements, count);
  }

  // Brings the gradients of chunk k down, and sets them to zero on the device if asked to.
  Status Bring(const DeviceSlice& slice, std::int64_t position, std::int64_t k, Event& arrived,
               bool zero) {
    const ElementRange chunk = Chunk(slice, k);
    const std::int64_t before = chunk.begin - slice.begin;
    const Buffer from = slice.gradients.Slice(before, chunk.size());
    AIT_RETURN_IF_ERROR(down.Copy(HostGradientsOf(position + before, k, chunk.size()).data,
                                  from.data, from.bytes()));
    AIT_RETURN_IF_ERROR(arrived.Record(down));
    return zero ? down.Fill(from.data, 0, from.bytes()) : OkStatus();
  }

  // Updates chunk k on the host and sends it up.
  Status UpdateChunk(const DeviceSlice& slice, std::int64_t position, std::int64_t k) {
    const ElementRange chunk = Chunk(slice, k);
    const std::int64_t before = chunk.begin - slice.begin;
    const Buffer own = Mirror(position + before, chunk.size());
    AIT_RETURN_IF_ERROR(
        optimizer->Update({.begin = chunk.begin,
                           .parameters = own,
                           .gradients = HostGradientsOf(position + before, k, chunk.size())}));
    return up.Copy(slice.parameters.Slice(before, chunk.size()).data, own.data, own.bytes());
  }

  Status UpdateFetched(const DeviceSlice& slice, std::int64_t position, const Fetched& fetched) {
    for (std::int64_t k = 0; k < ChunkCount(slice); ++k) {
      AIT_RETURN_IF_ERROR(fetched.arrived[static_cast<std::size_t>(k)].Wait());
      AIT_RETURN_IF_ERROR(UpdateChunk(slice, position, k));
    }
    return zero_gradients ? down.Fill(slice.gradients.data, 0, slice.gradients.bytes())
                          : OkStatus();
  }

  Status UpdateInChunks(const DeviceSlice& slice, std::int64_t position) {
    if (slice.ready != nullptr) AIT_RETURN_IF_ERROR(down.WaitFor(*slice.ready));
    const std::int64_t count = ChunkCount(slice);
    const auto bring = [&](std::int64_t k) {
      return Bring(slice, position, k, arrived[static_cast<std::size_t>(k % options.chunks)],
                   zero_gradients);
    };
    for (std::int64_t k = 0; k < std::min<std::int64_t>(count, options.chunks); ++k) {
      AIT_RETURN_IF_ERROR(bring(k));
    }
    for (std::int64_t k = 0; k < count; ++k) {
      AIT_RETURN_IF_ERROR(arrived[static_cast<std::size_t>(k % options.chunks)].Wait());
      AIT_RETURN_IF_ERROR(UpdateChunk(slice, position, k));
      if (k + options.chunks < count) AIT_RETURN_IF_ERROR(bring(k + options.chunks));
    }
    return OkStatus();
  }

  Status FetchAll(const DeviceSlice& slice, std::int64_t position) {
    if (slice.ready != nullptr) AIT_RETURN_IF_ERROR(down.WaitFor(*slice.ready));
    Fetched entry{.begin = slice.begin, .count = slice.gradients.count, .arrived = {}};
    for (std::int64_t k = 0; k < ChunkCount(slice); ++k) {
      AIT_ASSIGN_OR_RETURN(Event event, Event::Create(options.runtime, options.device));
      entry.arrived.push_back(std::move(event));
      AIT_RETURN_IF_ERROR(Bring(slice, position, k, entry.arrived.back(), /*zero=*/false));
    }
    std::erase_if(fetched, [&](const Fetched& old) {
      return old.begin < entry.begin + entry.count && entry.begin < old.begin + old.count;
    });
    fetched.push_back(std::move(entry));
    return OkStatus();
  }

  // After an error nothing may be on its way: the caller may free what it gave.
  Status Settle(const Status& status) {
    if (status.ok()) return status;
    down.Wait().IgnoreError();
    up.Wait().IgnoreError();
    return Annotate(status, "host offload");
  }

  HostOffloadOptions options;
  std::vector<ElementRange> owned;
  std::int64_t owned_elements = 0;
  std::int64_t gradients_elements = 0;
  DeviceBuffer mirror;         // pinned: the parameters of the elements owned
  DeviceBuffer gradients;      // pinned: all, or `chunks` of them
  std::vector<Event> arrived;  // of each of the `chunks`
  std::vector<Fetched> fetched;
  Stream down;
  Stream up;
  Event sent;
  Event cleared;
  bool zero_gradients = false;
  std::unique_ptr<BoundOptimizer> optimizer;
};

HostOffload::HostOffload(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HostOffload::~HostOffload() {
  impl_->down.Wait().IgnoreError();
  impl_->up.Wait().IgnoreError();
}

StatusOr<std::unique_ptr<HostOffload>> HostOffload::Create(const Optimizer& optimizer,
                                                           const ParameterLayout& layout,
                                                           HostOffloadOptions options) {
  AIT_RETURN_IF_ERROR(CheckOptions(optimizer, options));
  AIT_ASSIGN_OR_RETURN(auto bound, optimizer.Bind(layout, options.bind));
  const auto runtime = options.runtime;
  const Device device = options.device;
  options.chunk_elements -= options.chunk_elements % kLeastChunk;
  AIT_ASSIGN_OR_RETURN(Stream down, Stream::Create(runtime, device));
  AIT_ASSIGN_OR_RETURN(Stream up, Stream::Create(runtime, device));
  AIT_ASSIGN_OR_RETURN(Event sent, Event::Create(runtime, device));
  AIT_ASSIGN_OR_RETURN(Event cleared, Event::Create(runtime, device));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(down), std::move(up),
                                     std::move(sent), std::move(cleared));
  impl->optimizer = std::move(bound);
  impl->owned = layout.owned;
  for (const ElementRange& range : layout.owned) impl->owned_elements += range.size();
  impl->gradients_elements = impl->options.gradients == HostGradients::kWhole
                                 ? impl->owned_elements
                                 : impl->options.chunks * impl->options.chunk_elements;
  const auto pinned = [&](std::int64_t elements, DType dtype) {
    return DeviceBuffer::Create(runtime, device, Bytes(elements * SizeOf(dtype)),
                                MemoryPlace::kPinned);
  };
  AIT_ASSIGN_OR_RETURN(impl->mirror,
                       pinned(impl->owned_elements, impl->options.bind.parameter_dtype));
  if (impl->mirror.data() != nullptr) {  // padding goes up too
    std::memset(impl->mirror.data(), 0, static_cast<std::size_t>(impl->mirror.size().value()));
  }
  AIT_ASSIGN_OR_RETURN(impl->gradients,
                       pinned(impl->gradients_elements, impl->options.gradient_dtype));
  for (int i = 0; i < impl->options.chunks; ++i) {
    AIT_ASSIGN_OR_RETURN(Event event, Event::Create(runtime, device));
    impl->arrived.push_back(std::move(event));
  }
  return std::unique_ptr<HostOffload>(new HostOffload(std::move(impl)));
}

Status HostOffload::TakeParameters(const DeviceSlice& slice) {
  AIT_ASSIGN_OR_RETURN(const std::int64_t position, impl_->CheckParameters(slice));
  const auto take = [&] {
    const Buffer own = impl_->Mirror(position, slice.parameters.count);
    if (slice.ready != nullptr) AIT_RETURN_IF_ERROR(impl_->down.WaitFor(*slice.ready));
    AIT_RETURN_IF_ERROR(impl_->down.Copy(own.data, slice.parameters.data, own.bytes()));
    AIT_RETURN_IF_ERROR(impl_->down.Wait());
    const internal::StorageKernels& kernels =
        internal::StorageKernelsFor(impl_->options.bind.max_simd_level);
    std::vector<float> values;
    for (std::int64_t begin = 0; begin < own.count;) {
      const std::int64_t position_in_chunk = (slice.begin + begin) % impl_->options.chunk_elements;
      const Buffer part = own.Slice(
          begin, std::min(own.count - begin, impl_->options.chunk_elements - position_in_chunk));
      values.resize(static_cast<std::size_t>(part.count));
      internal::ReadReal(kernels, part.dtype, part.data, values.data(), part.count);
      AIT_RETURN_IF_ERROR(impl_->optimizer->SetParameters(
          {.begin = slice.begin + begin, .parameters = part}, values));
      begin += part.count;
    }
    return OkStatus();
  };
  return impl_->Settle(take());
}

Status HostOffload::SetParameters(const DeviceSlice& slice, std::span<const float> values) {
  AIT_ASSIGN_OR_RETURN(const std::int64_t position, impl_->CheckParameters(slice));
  AIT_RETURN_IF_ERROR(impl_->up.Wait());
  const Buffer own = impl_->Mirror(position, slice.parameters.count);
  AIT_RETURN_IF_ERROR(
      impl_->optimizer->SetParameters({.begin = slice.begin, .parameters = own}, values));
  Status sent = impl_->up.Copy(slice.parameters.data, own.data, own.bytes());
  if (sent.ok()) sent = impl_->up.Wait();
  return impl_->Settle(sent);
}

Status HostOffload::GetParameters(std::int64_t begin, std::span<float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  AIT_ASSIGN_OR_RETURN(const std::int64_t position, impl_->Position(begin, count));
  return impl_->optimizer->GetParameters(
      {.begin = begin, .parameters = impl_->Mirror(position, count)}, values);
}

Status HostOffload::Fetch(const DeviceSlice& slice) {
  if (impl_->options.gradients != HostGradients::kWhole) {
    return FailedPreconditionError(
        "Fetch: host offload keeps only the gradients on their way; create it with "
        "HostGradients::kWhole");
  }
  AIT_ASSIGN_OR_RETURN(const std::int64_t position, impl_->CheckGradients(slice));
  return impl_->Settle(impl_->FetchAll(slice, position));
}

StatusOr<ConstBuffer> HostOffload::FetchedGradients(std::int64_t begin, std::int64_t count) {
  for (const Impl::Fetched& entry : impl_->fetched) {
    if (begin < entry.begin || begin + count > entry.begin + entry.count) continue;
    for (const Event& event : entry.arrived) AIT_RETURN_IF_ERROR(impl_->Settle(event.Wait()));
    AIT_ASSIGN_OR_RETURN(const std::int64_t position, impl_->Position(begin, count));
    return ConstBuffer(impl_->HostGradientsOf(position, 0, count));
  }
  return FailedPreconditionError("the gradients of elements [", begin, ", ", begin + count,
                                 ") were not fetched in this step, or not by one Fetch");
}

void HostOffload::DiscardFetched() { impl_->fetched.clear(); }

Status HostOffload::BeginStep(const StepOptions& options) {
  AIT_RETURN_IF_ERROR(impl_->Settle(impl_->sent.Wait()));
  StepOptions own = options;
  own.gradients_after = GradientsAfter::kKept;  // those on the host are a copy
  AIT_RETURN_IF_ERROR(impl_->optimizer->BeginStep(own));
  impl_->zero_gradients = options.gradients_after == GradientsAfter::kZero;
  return OkStatus();
}

Status HostOffload::Update(const DeviceSlice& slice) {
  AIT_ASSIGN_OR_RETURN(const std::int64_t position, impl_->CheckParameters(slice));
  AIT_RETURN_IF_ERROR(impl_->CheckGradients(slice).status());
  if (slice.gradients.count != slice.parameters.count) {
    return InvalidArgumentError("slice at element ", slice.begin, " has ", slice.parameters.count,
                                " parameters and ", slice.gradients.count, " gradients");
  }
  const auto update = [&]() -> Status {
    if (impl_->options.gradients == HostGradients::kChunks) {
      AIT_RETURN_IF_ERROR(impl_->UpdateInChunks(slice, position));
    } else {
      const auto same = [&](const Impl::Fetched& entry) {
        return entry.begin == slice.begin && entry.count == slice.gradients.count;
      };
      auto entry = std::ranges::find_if(impl_->fetched, same);
      if (entry == impl_->fetched.end()) {
        AIT_RETURN_IF_ERROR(impl_->FetchAll(slice, position));
        entry = std::prev(impl_->fetched.end());
      }
      const Impl::Fetched taken = std::move(*entry);
      impl_->fetched.erase(entry);
      AIT_RETURN_IF_ERROR(impl_->UpdateFetched(slice, position, taken));
    }
    AIT_RETURN_IF_ERROR(impl_->sent.Record(impl_->up));
    return impl_->cleared.Record(impl_->down);
  };
  return impl_->Settle(update());
}

Status HostOffload::Await(Stream& stream) {
  AIT_RETURN_IF_ERROR(stream.WaitFor(impl_->sent));
  return stream.WaitFor(impl_->cleared);
}

Status HostOffload::Wait() {
  AIT_RETURN_IF_ERROR(impl_->Settle(impl_->sent.Wait()));
  return impl_->Settle(impl_->cleared.Wait());
}

BoundOptimizer& HostOffload::optimizer() { return *impl_->optimizer; }

std::int64_t HostOffload::pinned_bytes() const {
  return impl_->mirror.size().value() + impl_->gradients.size().value();
}

}  // namespace ait::inline v0
