// SPDX-License-Identifier: Apache-2.0
#include "optim/flat_optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "ait/base/types.h"
#include "ait/memory/heap.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kCacheLine = 64;  // bytes, and entries: where owned ranges and pieces begin

}  // namespace

Status FlatOptimizer::Init(const ParameterLayout& layout, const ParameterGroups& groups,
                           BindOptions options, std::vector<StateArray> arrays,
                           Ownership ownership) {
  AIT_RETURN_IF_ERROR(Validate(layout));
  AIT_RETURN_IF_ERROR(Validate(groups));
  if (options.executor.threads < 1 || (options.executor.threads > 1 && !options.executor.run)) {
    return InvalidArgumentError(
        "executor has ", options.executor.threads, " threads and ",
        options.executor.run ? "a" : "no",
        " run function; it needs at least 1 thread, and the function if more");
  }
  AIT_ASSIGN_OR_RETURN(access_, ParameterAccess::Create(options));
  parameters_ = layout.parameters;
  owned_ = layout.owned;
  group_count_ = groups.size() + 1;
  for (const ParameterGroup& group : groups) group_names_.push_back(group.name);
  executor_ = std::move(options.executor);
  ownership_ = ownership;
  arrays_ = std::move(arrays);
  if (const auto beside = access_.beside()) {
    has_beside_ = true;
    arrays_.push_back({.name = beside->name, .dtype = beside->dtype});
  }
  AIT_RETURN_IF_ERROR(MakePieces(groups));
  for (OwnedPiece& piece : pieces_) piece.state.resize(arrays_.size());
  if (options.offload.enabled()) return OffloadState(options.offload);
  return AllocateState(options.memory ? std::move(options.memory) : HeapResource::Create());
}

Status FlatOptimizer::MakePieces(const ParameterGroups& groups) {
  for (const ElementRange& owned : owned_) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const ParameterSegment& parameter = parameters_[i];
      const ElementRange range = Intersection(parameter.range(), owned);
      if (range.size() == 0) continue;
      if (ownership_ == Ownership::kWholeParameters && range != parameter.range()) {
        return InvalidArgumentError(
            "parameter \"", parameter.name, "\" has ", parameter.size(), " elements, of which ",
            range.size(), " lie in the owned range [", owned.begin, ", ", owned.end,
            "); this optimizer needs whole parameters: let slices end between parameters");
      }
      pieces_.push_back(
          {.range = range,
           .parameter = i,
           .group = GroupOf(groups, parameter).value_or(static_cast<int>(groups.size())),
           .state = {}});
    }
  }

  return OkStatus();
}

Status FlatOptimizer::AllocateState(MemoryHandle memory) {
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const StateArray& array = arrays_[i];
    // Where each piece begins, in entries. An array of all elements is laid out as the owned ranges
    // are, padding included; others piece by piece.
    std::vector<std::int64_t> begins(pieces_.size(), -1);
    std::int64_t entries = 0;
    if (array.block == 1 && !array.of) {
      auto piece = pieces_.begin();
      for (const ElementRange& owned : owned_) {
        for (; piece != pieces_.end() && piece->range.end <= owned.end; ++piece) {
          begins[static_cast<std::size_t>(piece - pieces_.begin())] =
              entries + (piece->range.begin - owned.begin);
        }
        entries += RoundUp(owned.size(), kCacheLine);
      }
    } else {
      for (std::size_t p = 0; p < pieces_.size(); ++p) {
        const ParameterSegment& parameter = parameters_[pieces_[p].parameter];
        if (array.of && !array.of(parameter)) continue;
        const std::int64_t before = pieces_[p].range.begin - parameter.begin;
        if (parameter.begin % array.block != 0 || before % array.block != 0) {
          return InvalidArgumentError("parameter \"", parameter.name, "\" begins at element ",
                                      parameter.begin, " and is owned from its element ", before,
                                      " on; state \"", array.name,
                                      "\" needs both to be multiples of ", array.block);
        }
        begins[p] = entries;
        entries +=
            RoundUp(array.EntriesOf(pieces_[p].range.size()), kCacheLine / SizeOf(array.dtype));
      }
    }
    auto buffer =
        HostBuffer::Create(memory, static_cast<std::size_t>(entries * SizeOf(array.dtype)));
    if (!buffer.ok()) {
      return Annotate(buffer.status(), StrCat("optimizer state \"", array.name, "\""));
    }
    buffers_.push_back(*std::move(buffer));
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
      if (begins[p] < 0) continue;
      pieces_[p].state[i] = buffers_.back().data() + begins[p] * SizeOf(array.dtype);
    }
  }
  // First touch by the threads that will update: the same cut as in an update of a whole range.
  for (const ElementRange& owned : owned_) {
    ForEachPart(executor_, owned, [&](ElementRange part) {
      ForEachPiece(part, [&](const OwnedPiece& piece, ElementRange range) {
        for (std::size_t i = 0; i < arrays_.size(); ++i) {
          std::byte* const begin = StateAt(piece, i, range.begin);
          if (begin == nullptr) continue;
          const std::int64_t entries = arrays_[i].EntriesOf(range.size());
          std::memset(begin, 0, static_cast<std::size_t>(entries * SizeOf(arrays_[i].dtype)));
        }
      });
    });
  }
  return OkStatus();
}

Status FlatOptimizer::OffloadState(const StateOffload& offload) {
  if (ownership_ == Ownership::kWholeParameters) {
    return UnimplementedError(
        "this optimizer needs whole parameters at once and keeps its state in memory only; state "
        "in a file is supported by the optimizers whose update of an element depends on that "
        "element alone: AdamW, Adam, SGD and Lion");
  }
  AIT_RETURN_IF_ERROR(offload.Validate());
  if (arrays_.empty() || pieces_.empty()) return OkStatus();  // no state
  AIT_ASSIGN_OR_RETURN(offloaded_, OffloadedState::Create(offload, arrays_, parameters_, pieces_));
  return OkStatus();
}

Status FlatOptimizer::WithState(ElementRange range, StateAccess access,
                                const std::function<Status(ElementRange)>& body) {
  return offloaded_ == nullptr ? body(range) : offloaded_->ForEachChunk(range, access, body);
}

Status FlatOptimizer::CheckStep(const StepOptions& options) const {
  constexpr double kLargest = std::numeric_limits<float>::max();  // NaN is not below it either
  if (!(std::abs(options.learning_rate_factor) <= kLargest) ||
      !(std::abs(options.gradient_scale) <= kLargest)) {
    return InvalidArgumentError("step ", step_ + 1, ": learning_rate_factor is ",
                                options.learning_rate_factor, " and gradient_scale is ",
                                options.gradient_scale, "; both must be finite in fp32");
  }
  if (!(options.clip_value > 0)) {
    return InvalidArgumentError("step ", step_ + 1, ": clip_value is ", options.clip_value,
                                "; it must be above 0");
  }
  if (!options.group_scales.empty() && options.group_scales.size() != group_count_) {
    return InvalidArgumentError("step ", step_ + 1, ": there are ", options.group_scales.size(),
                                " group_scales; give ", group_count_,
                                ", one for each parameter group and one for those in none");
  }
  for (std::size_t g = 0; g < options.group_scales.size(); ++g) {
    const double scale = options.group_scales[g];
    if (std::abs(scale * options.gradient_scale) <= kLargest) continue;
    return InvalidArgumentError(
        "step ", step_ + 1, ": group_scales[", g, "], of ",
        g + 1 == group_count_ ? StrCat("parameters in no group")
                              : StrCat("parameter group \"", group_names_[g], "\""),
        ", is ", scale, "; it must be finite in fp32, times gradient_scale too");
  }
  return OkStatus();
}

Status FlatOptimizer::BeginStep(const StepOptions& options) {
  AIT_RETURN_IF_ERROR(CheckStep(options));
  access_.BeginStep(++step_);
  prepared_scales_.clear();
  if (options.group_scales.empty() && std::isinf(options.clip_value)) {
    OnBeginStep(options);
  } else {
    for (std::size_t group = 0; group < group_count_; ++group) {
      const double own = options.group_scales.empty() ? 1 : options.group_scales[group];
      prepared_scales_.push_back(static_cast<float>(options.gradient_scale * own));
    }
    clip_value_ = static_cast<float>(options.clip_value);
    StepOptions prepared = options;
    prepared.gradient_scale = 1;
    OnBeginStep(prepared);
  }
  begun_ = true;
  return OkStatus();
}

Status FlatOptimizer::Update(const UpdateSlice& slice) {
  if (!begun_) {
    return FailedPreconditionError(
        "the optimizer is asked to update before a step was begun; call BeginStep");
  }
  AIT_RETURN_IF_ERROR(CheckSlice(slice));
  if (slice.gradients.count != slice.parameters.count) {
    return InvalidArgumentError("slice at element ", slice.begin, " has ", slice.parameters.count,
                                " parameters and ", slice.gradients.count, " gradients");
  }
  if (slice.parameters.count == 0) return OkStatus();
  AIT_RETURN_IF_ERROR(CheckReal(slice.gradients.dtype, "gradients"));
  if (offloaded_ == nullptr) return UpdateOwned(slice);
  return WithState(RangeOf(slice), StateAccess::kReadWrite, [&](ElementRange range) {
    const std::int64_t before = range.begin - slice.begin;
    std::vector<void*> copies;
    for (void* const copy : slice.copies) {
      copies.push_back(static_cast<std::byte*>(copy) + before * SizeOf(slice.parameters.dtype));
    }
    return UpdateOwned({.begin = range.begin,
                        .parameters = slice.parameters.Slice(before, range.size()),
                        .gradients = slice.gradients.Slice(before, range.size()),
                        .copies = copies});
  });
}

Status FlatOptimizer::SetParameters(const UpdateSlice& slice, std::span<const float> values) {
  AIT_RETURN_IF_ERROR(CheckValues(slice, values.size()));
  const auto set = [&](ElementRange part) {
    ForEachPiece(part, [&](const OwnedPiece& piece, ElementRange range) {
      access_.Set(values.data() + (range.begin - slice.begin),
                  At(slice, slice.parameters, range.begin), BesideAt(piece, range.begin),
                  range.size());
      CopyOut(slice, range);
    });
    return OkStatus();
  };
  return has_beside_ ? WithState(RangeOf(slice), StateAccess::kReadWrite, set)
                     : set(RangeOf(slice));
}

Status FlatOptimizer::GetParameters(const UpdateSlice& slice, std::span<float> values) {
  AIT_RETURN_IF_ERROR(CheckValues(slice, values.size()));
  const auto get = [&](ElementRange part) {
    ForEachPiece(part, [&](const OwnedPiece& piece, ElementRange range) {
      ReadValues(slice, piece, range, values.data() + (range.begin - slice.begin));
    });
    return OkStatus();
  };
  return has_beside_ ? WithState(RangeOf(slice), StateAccess::kRead, get) : get(RangeOf(slice));
}

Status FlatOptimizer::set_step(std::int64_t step) {
  if (step < 0) {
    return InvalidArgumentError("step of the optimizer is ", step, "; it must not be negative");
  }
  step_ = step;
  begun_ = false;
  return OkStatus();
}

std::vector<StateSlice> FlatOptimizer::State() {
  if (offloaded_ != nullptr) return {};
  return SlicesOf({0, kMaxElements});
}

Status FlatOptimizer::VisitState(StateAccess access,
                                 const std::function<Status(const StateSlice&)>& visit) {
  if (offloaded_ == nullptr) return BoundOptimizer::VisitState(access, visit);
  return WithState({0, kMaxElements}, access, [&](ElementRange range) {
    for (const StateSlice& slice : SlicesOf(range)) AIT_RETURN_IF_ERROR(visit(slice));
    return OkStatus();
  });
}

// Of the pieces that begin in the range.
std::vector<StateSlice> FlatOptimizer::SlicesOf(ElementRange range) const {
  std::vector<StateSlice> slices;
  auto first = FirstPiece(range.begin);
  const auto end = std::find_if(first, pieces_.end(), [&](const OwnedPiece& piece) {
    return piece.range.begin >= range.end;
  });
  // Pieces are in ascending order, hence those of one parameter follow each other.
  while (first != end) {
    const auto last = std::find_if(
        first, end, [&](const OwnedPiece& piece) { return piece.parameter != first->parameter; });
    const ParameterSegment& parameter = parameters_[first->parameter];
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      for (auto piece = first; piece != last; ++piece) {
        if (piece->state[i] == nullptr) continue;
        const StateArray& array = arrays_[i];
        const std::int64_t entries = array.EntriesOf(piece->range.size());
        slices.push_back(
            {.parameter = parameter.name,
             .state = array.name,
             .begin = (piece->range.begin - parameter.begin) / array.block,
             .dtype = array.dtype,
             .bytes = {piece->state[i], static_cast<std::size_t>(entries * SizeOf(array.dtype))},
             .block = array.block});
      }
    }
    first = last;
  }
  return slices;
}

std::int64_t FlatOptimizer::state_bytes() const {
  if (offloaded_ != nullptr) return offloaded_->memory_bytes();
  std::int64_t bytes = 0;
  for (const HostBuffer& buffer : buffers_) bytes += static_cast<std::int64_t>(buffer.size_bytes());
  return bytes;
}

std::int64_t FlatOptimizer::master_bytes() const {
  return has_beside_ && !buffers_.empty() ? static_cast<std::int64_t>(buffers_.back().size_bytes())
                                          : 0;
}

std::int64_t FlatOptimizer::offloaded_bytes() const {
  return offloaded_ == nullptr ? 0 : offloaded_->file_bytes();
}

std::string FlatOptimizer::DescribeState() const {
  return offloaded_ == nullptr ? "memory" : offloaded_->description();
}

std::vector<OwnedPiece>::const_iterator FlatOptimizer::FirstPiece(std::int64_t element) const {
  return std::upper_bound(
      pieces_.begin(), pieces_.end(), element,
      [](std::int64_t begin, const OwnedPiece& piece) { return begin < piece.range.end; });
}

Status FlatOptimizer::CheckSlice(const UpdateSlice& slice) const {
  if (slice.parameters.count == 0) return OkStatus();
  if (slice.parameters.dtype != access_.dtype()) {
    return InvalidArgumentError("parameters are ", Name(slice.parameters.dtype),
                                "; the optimizer is bound to ", Name(access_.dtype()));
  }
  const ElementRange range = RangeOf(slice);
  const auto next = std::upper_bound(
      owned_.begin(), owned_.end(), range.begin,
      [](std::int64_t begin, const ElementRange& owned) { return begin < owned.begin; });
  if (next == owned_.begin() || range.end > std::prev(next)->end) {
    return InvalidArgumentError("slice [", range.begin, ", ", range.end,
                                ") is not inside one of the ", owned_.size(), " ranges owned");
  }
  std::int64_t block = 1;
  for (const StateArray& array : arrays_) block = std::max(block, array.block);
  if (block == 1 && ownership_ == Ownership::kElements) return OkStatus();
  for (const std::int64_t cut : {range.begin, range.end}) {
    const auto piece = FirstPiece(cut);
    if (piece == pieces_.end() || cut <= piece->range.begin) continue;
    if (ownership_ == Ownership::kElements && cut % block == 0) continue;
    return InvalidArgumentError("slice [", range.begin, ", ", range.end, ") cuts parameter \"",
                                parameters_[piece->parameter].name, "\", which begins at element ",
                                parameters_[piece->parameter].begin, "; this optimizer needs ",
                                ownership_ == Ownership::kElements
                                    ? StrCat("cuts at multiples of ", block)
                                    : std::string("whole parameters"));
  }
  return OkStatus();
}

Status FlatOptimizer::CheckValues(const UpdateSlice& slice, std::size_t count) const {
  AIT_RETURN_IF_ERROR(CheckSlice(slice));
  if (static_cast<std::size_t>(slice.parameters.count) == count) return OkStatus();
  return InvalidArgumentError("slice at element ", slice.begin, " has ", slice.parameters.count,
                              " parameters and ", count, " values");
}

void FlatOptimizer::ReadValues(const UpdateSlice& slice, const OwnedPiece& piece,
                               ElementRange range, float* values) const {
  access_.Read(At(slice, slice.parameters, range.begin), BesideAt(piece, range.begin), values,
               range.size());
}

void FlatOptimizer::WriteValues(const UpdateSlice& slice, const OwnedPiece& piece,
                                ElementRange range, const float* values) const {
  access_.Write(values, ModelElement(piece, range.begin), At(slice, slice.parameters, range.begin),
                BesideAt(piece, range.begin), range.size());
  CopyOut(slice, range);
}

void FlatOptimizer::ReadGradients(const UpdateSlice& slice, ElementRange range,
                                  float* values) const {
  ReadReal(access_.kernels(), slice.gradients.dtype, At(slice, slice.gradients, range.begin),
           values, range.size());
  if (prepared_scales_.empty() || range.size() == 0) return;
  const int group = FirstPiece(range.begin)->group;
  const float scale = prepared_scales_[static_cast<std::size_t>(group)];
  for (std::int64_t i = 0; i < range.size(); ++i) {
    values[i] = std::min(std::max(values[i] * scale, -clip_value_), clip_value_);
  }
}

void FlatOptimizer::ZeroGradients(const UpdateSlice& slice, ElementRange range) {
  std::memset(At(slice, slice.gradients, range.begin), 0,
              static_cast<std::size_t>(range.size() * SizeOf(slice.gradients.dtype)));
}

void FlatOptimizer::CopyOut(const UpdateSlice& slice, ElementRange range) {
  const Buffer from = slice.parameters.Slice(range.begin - slice.begin, range.size());
  for (void* const copy : slice.copies) {
    std::memcpy(static_cast<std::byte*>(copy) + (range.begin - slice.begin) * SizeOf(from.dtype),
                from.data, static_cast<std::size_t>(from.bytes().value()));
  }
}

}  // namespace ait::inline v0::internal
