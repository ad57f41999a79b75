// SPDX-License-Identifier: Apache-2.0
#include "optim/offloaded_state.h"

#include <algorithm>
#include <numeric>

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kCacheLine = 64;  // bytes: where the arrays of a piece begin

// The arrays that a piece has.
using Arrays = std::vector<const StateArray*>;

std::int64_t BytesOf(const Arrays& arrays, std::int64_t elements) {
  std::int64_t bytes = 0;
  for (const StateArray* array : arrays) {
    if (array == nullptr) continue;
    bytes += RoundUp(array->EntriesOf(elements) * SizeOf(array->dtype), kCacheLine);
  }
  return bytes;
}

// The most of `elements`, which begin `before` elements into a parameter, that `room` bytes hold
// and after which the parameter may be cut.
std::int64_t Fit(const Arrays& arrays, std::int64_t room, std::int64_t before,
                 std::int64_t elements, std::int64_t step) {
  if (BytesOf(arrays, elements) <= room) return elements;
  std::int64_t fits = before / step;  // a cut after fits · step elements of the parameter
  std::int64_t exceeds = (before + elements + step - 1) / step;
  while (exceeds - fits > 1) {
    const std::int64_t middle = fits + (exceeds - fits) / 2;
    (BytesOf(arrays, middle * step - before) <= room ? fits : exceeds) = middle;
  }
  return std::max<std::int64_t>(fits * step - before, 0);
}

}  // namespace

StatusOr<ChunkPlan> PlanChunks(const std::vector<OwnedPiece>& pieces,
                               const std::vector<StateArray>& arrays,
                               const std::vector<ParameterSegment>& parameters,
                               std::int64_t chunk_bytes) {
  ChunkPlan plan{.chunk_begins = {0}};
  std::int64_t used = 0;  // bytes of the last chunk
  for (const OwnedPiece& piece : pieces) {
    const ParameterSegment& parameter = parameters[piece.parameter];
    Arrays own(arrays.size());
    std::int64_t step = 64;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (arrays[i].of && !arrays[i].of(parameter)) continue;
      own[i] = &arrays[i];
      step = std::lcm(step, arrays[i].block);
    }
    ElementRange rest = piece.range;
    while (rest.size() > 0) {
      const std::int64_t count =
          Fit(own, chunk_bytes - used, rest.begin - parameter.begin, rest.size(), step);
      if (count == 0) {
        if (used == 0) {
          return InvalidArgumentError(
              "StateOffload::chunk is ", chunk_bytes, " bytes, which do not hold the state of ",
              step, " elements of parameter \"", parameter.name, "\"; make it larger");
        }
        plan.chunk_begins.push_back(plan.pieces.size());
        used = 0;
        continue;
      }
      plan.pieces.push_back(piece);
      plan.pieces.back().range = {rest.begin, rest.begin + count};
      rest.begin += count;
      for (const StateArray* array : own) {
        plan.offsets.push_back(array == nullptr ? -1 : used);
        used += BytesOf({array}, count);
      }
    }
  }
  plan.chunk_begins.push_back(plan.pieces.size());
  return plan;
}

StatusOr<std::unique_ptr<OffloadedState>> OffloadedState::Create(
    const StateOffload& offload, const std::vector<StateArray>& arrays,
    const std::vector<ParameterSegment>& parameters, std::vector<OwnedPiece>& pieces) {
  AIT_RETURN_IF_ERROR(offload.Validate());
  AIT_ASSIGN_OR_RETURN(ChunkPlan plan,
                       PlanChunks(pieces, arrays, parameters, offload.chunk.value()));
  pieces = plan.pieces;
  std::unique_ptr<OffloadedState> state(new OffloadedState(std::move(plan), arrays.size(), pieces));
  const auto chunks = static_cast<std::int64_t>(state->plan_.chunk_begins.size()) - 1;
  AIT_ASSIGN_OR_RETURN(state->file_, StateFile::Create({.offload = offload, .count = chunks}));
  return state;
}

void OffloadedState::Point(std::size_t chunk, std::byte* data) {
  for (std::size_t p = plan_.chunk_begins[chunk]; p < plan_.chunk_begins[chunk + 1]; ++p) {
    for (std::size_t a = 0; a < arrays_; ++a) {
      const std::int64_t offset = plan_.offsets[p * arrays_ + a];
      pieces_[p].state[a] = data == nullptr || offset < 0 ? nullptr : data + offset;
    }
  }
}

Status OffloadedState::ForEachChunk(ElementRange range, StateAccess access,
                                    const std::function<Status(ElementRange)>& body) {
  const std::lock_guard lock(mutex_);
  const auto first =
      std::ranges::upper_bound(plan_.chunk_begins, range.begin, {}, [&](std::size_t piece) {
        return piece < pieces_.size() ? pieces_[piece].range.begin : kMaxElements;
      });
  auto chunk =
      static_cast<std::size_t>(std::max<std::ptrdiff_t>(first - plan_.chunk_begins.begin() - 1, 0));
  for (; chunk + 1 < plan_.chunk_begins.size(); ++chunk) {
    const ElementRange inside =
        Intersection(range, {pieces_[plan_.chunk_begins[chunk]].range.begin,
                             pieces_[plan_.chunk_begins[chunk + 1] - 1].range.end});
    if (pieces_[plan_.chunk_begins[chunk]].range.begin >= range.end) break;
    if (inside.size() == 0) continue;
    AIT_RETURN_IF_ERROR(file_->Use(static_cast<std::int64_t>(chunk), access, [&](std::byte* data) {
      Point(chunk, data);
      Status done = body(inside);
      Point(chunk, nullptr);
      return done;
    }));
  }
  return OkStatus();
}

}  // namespace ait::inline v0::internal
