// SPDX-License-Identifier: Apache-2.0
#include "comm/hierarchical_collectives.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "ait/memory/heap.h"
#include "comm/convert.h"
#include "comm/direct.h"
#include "comm/operation_compare.h"

namespace ait::inline v0::internal {
namespace {

// Operations between hosts that are queued while one runs.
constexpr std::int64_t kQueued = 2;

using Counts = std::vector<std::int64_t>;
constexpr std::nullopt_t kNothing = std::nullopt;

/// `count` in `pieces` of whole cache lines.
Counts Cut(std::int64_t count, int pieces, DType dtype) {
  const std::int64_t piece = RoundUp((count + pieces - 1) / pieces, 64 / SizeOf(dtype));
  Counts counts;
  for (int i = 0; i < pieces; ++i) {
    counts.push_back(std::clamp<std::int64_t>(count - piece * i, 0, piece));
  }
  return counts;
}

std::int64_t Before(const Counts& counts, int i) {
  return std::accumulate(counts.begin(), counts.begin() + i, std::int64_t{0});
}

std::int64_t Total(const Counts& counts) { return Before(counts, static_cast<int>(counts.size())); }

Buffer PartOf(const Buffer& all, const Counts& counts, int i) {
  return all.Slice(Before(counts, i), counts[static_cast<std::size_t>(i)]);
}

}  // namespace

HierarchicalCollectives::HierarchicalCollectives(HierarchicalLines& lines, Options options)
    : lines_(lines),
      options_(std::move(options)),
      host_(layout().host_of[static_cast<std::size_t>(options_.rank)]),
      local_(layout().local_of[static_cast<std::size_t>(options_.rank)]),
      local_size_(static_cast<int>(layout().hosts[static_cast<std::size_t>(host_)].size())) {}

Status HierarchicalCollectives::Run(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::kAllReduce:
      return operation.output.count == 0 ? Meet(operation) : AllReduce(operation);
    case OperationKind::kReduceScatter:
      return operation.input.count == 0 ? Meet(operation) : ReduceScatter(operation);
    case OperationKind::kAllGather:
      return operation.output.count == 0 ? Meet(operation) : AllGather(operation);
    case OperationKind::kBroadcast:
      return operation.output.count == 0 ? Meet(operation) : Broadcast(operation);
    case OperationKind::kBarrier:
      return Meet(operation);
    default:
      return Forward(operation);
  }
}

HierarchicalCollectives::Numbers HierarchicalCollectives::NumbersOf(
    const Operation& operation) const {
  const DType dtype = operation.dtype;
  Numbers numbers{.sum = dtype, .wire = dtype, .reduce = operation.reduce};
  numbers.average = operation.reduce == ReduceOp::kAverage;
  if (numbers.average) numbers.reduce = ReduceOp::kSum;
  const bool is_half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  const bool is_sum = numbers.reduce == ReduceOp::kSum;
  if (is_half && (is_sum || numbers.reduce == ReduceOp::kProduct)) numbers.sum = DType::kFloat32;
  numbers.wire = numbers.sum;
  if (options_.tuning.wire == WirePrecision::kBf16 && is_sum && numbers.sum == DType::kFloat32 &&
      dtype != DType::kFloat16) {
    numbers.wire = DType::kBFloat16;
  }
  return numbers;
}

Status HierarchicalCollectives::RunPipeline(std::int64_t chunks,
                                            std::span<const LaggedStep> steps) {
  // A chunk's memory is free again when its last step is done, a chunk after that was started.
  const std::int64_t last_lag = steps.back().lag;
  slots_ = last_lag + 2;
  std::vector<std::vector<std::optional<Work>>> works(
      steps.size(), std::vector<std::optional<Work>>(static_cast<std::size_t>(slots_)));
  const auto await = [&](std::size_t step, std::int64_t chunk) -> Status {
    std::optional<Work>& work = works[step][static_cast<std::size_t>(chunk % slots_)];
    if (!work) return OkStatus();
    return lines_.Await(*std::exchange(work, std::nullopt));
  };
  for (std::int64_t turn = 0; turn <= chunks + last_lag; ++turn) {
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const std::int64_t chunk = turn - steps[step].lag;
      if (chunk < 0 || chunk >= chunks) continue;
      if (step > 0) AIT_RETURN_IF_ERROR(await(step - 1, chunk));
      AIT_ASSIGN_OR_RETURN(works[step][static_cast<std::size_t>(chunk % slots_)],
                           steps[step].start(chunk));
    }
    if (const std::int64_t chunk = turn - last_lag - 1; chunk >= 0) {
      AIT_RETURN_IF_ERROR(await(steps.size() - 1, chunk));
    }
  }
  return OkStatus();
}

StatusOr<Buffer> HierarchicalCollectives::Scratch(Use use, std::int64_t chunk, std::int64_t count,
                                                  DType dtype) {
  auto& buffers = scratch_[use];
  const auto slot = static_cast<std::size_t>(chunk % slots_);
  if (buffers.size() <= slot) buffers.resize(slot + 1);
  const auto bytes = static_cast<std::size_t>(count * SizeOf(dtype));
  if (buffers[slot].size_bytes() < bytes) {
    buffers[slot] = HostBuffer();
    StatusOr<HostBuffer> made = ResourceExhaustedError("no memory that the peers reach");
    if (options_.memory) made = HostBuffer::Create(options_.memory, bytes);
    if (!made.ok()) made = HostBuffer::Create(HeapResource::Create(), bytes);
    AIT_ASSIGN_OR_RETURN(buffers[slot], std::move(made));
  }
  return Buffer{buffers[slot].data(), count, dtype};
}

Counts HierarchicalCollectives::ByLocal(const std::function<std::int64_t(int)>& of_column) const {
  Counts counts;
  for (int local = 0; local < local_size_; ++local) {
    counts.push_back(local < layout().width ? of_column(local) : 0);
  }
  return counts;
}

Counts HierarchicalCollectives::SectionsOf(std::int64_t count, DType dtype) const {
  const Counts sections = Cut(count, layout().width, dtype);
  return ByLocal([&](int column) { return sections[static_cast<std::size_t>(column)]; });
}

Counts HierarchicalCollectives::HostParts(std::int64_t count, DType dtype) const {
  return Cut(count, layout().host_count(), dtype);
}

Work HierarchicalCollectives::BeginReduceScatter(Line line, const Buffer& buffer, Counts counts,
                                                 ReduceOp reduce) {
  const Buffer own = PartOf(buffer, counts, line == Line::kInside ? local_ : host_);
  return lines_.Begin(line, {.kind = OperationKind::kReduceScatter,
                             .reduce = reduce,
                             .dtype = buffer.dtype,
                             .input = buffer,
                             .output = own,
                             .counts = std::move(counts)});
}

Work HierarchicalCollectives::BeginAllGather(Line line, ConstBuffer input, const Buffer& output,
                                             Counts counts) {
  return lines_.Begin(line, {.kind = OperationKind::kAllGather,
                             .dtype = output.dtype,
                             .input = input,
                             .output = output,
                             .counts = std::move(counts)});
}

Work HierarchicalCollectives::BeginAllGather(Line line, const Buffer& buffer, Counts counts) {
  const Buffer own = PartOf(buffer, counts, line == Line::kInside ? local_ : host_);
  return BeginAllGather(line, own, buffer, std::move(counts));
}

// Three forms between hosts: an all-reduce where the section lies; one of a copy in bf16; or, for
// half floats, a reduce-scatter of the fp32 sums and an all-gather of what they are rounded to.
Status HierarchicalCollectives::AllReduce(const Operation& operation) {
  const Buffer& all = operation.output;
  const Numbers numbers = NumbersOf(operation);
  const bool is_rounded = numbers.wire != numbers.sum;
  const bool is_split = !is_rounded && numbers.sum != all.dtype;
  const std::int64_t step = options_.tuning.chunk.value() / SizeOf(all.dtype);
  const auto chunk_of = [&](std::int64_t k) {
    return all.Slice(k * step, std::min(step, all.count - k * step));
  };
  const auto partial_of = [&](std::int64_t k) -> StatusOr<Buffer> {
    const Buffer chunk = chunk_of(k);
    if (numbers.sum == all.dtype) return chunk;
    return Scratch(kPartial, k, chunk.count, numbers.sum);
  };
  const auto section_of = [&](const Buffer& chunk) {
    return is_column() ? PartOf(chunk, SectionsOf(chunk.count, all.dtype), local_)
                       : chunk.Slice(0, 0);
  };
  const auto divide = [&](const Buffer& sums) {
    if (numbers.average) Divide(sums, layout().size());
  };

  const Step inside = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    AIT_ASSIGN_OR_RETURN(const Buffer partial, partial_of(k));
    Convert(chunk_of(k), partial);
    if (is_alone()) return kNothing;
    return BeginReduceScatter(Line::kInside, partial, SectionsOf(partial.count, all.dtype),
                              numbers.reduce);
  };
  const Step between = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    AIT_ASSIGN_OR_RETURN(const Buffer partial, partial_of(k));
    Buffer section = section_of(partial);
    if (section.count == 0) return kNothing;
    if (is_split) {
      return BeginReduceScatter(Line::kColumn, section, HostParts(section.count, all.dtype),
                                numbers.reduce);
    }
    if (is_rounded) {
      AIT_ASSIGN_OR_RETURN(const Buffer wire, Scratch(kWire, k, section.count, numbers.wire));
      Convert(section, wire);
      section = wire;
    }
    return lines_.Begin(Line::kColumn, {.kind = OperationKind::kAllReduce,
                                        .reduce = numbers.reduce,
                                        .dtype = section.dtype,
                                        .input = section,
                                        .output = section});
  };
  const Step round = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    AIT_ASSIGN_OR_RETURN(const Buffer partial, partial_of(k));
    const Buffer section = section_of(partial);
    if (section.count == 0) return kNothing;
    Counts parts = HostParts(section.count, all.dtype);
    AIT_ASSIGN_OR_RETURN(const Buffer result, Scratch(kWire, k, section.count, all.dtype));
    const Buffer own = PartOf(section, parts, host_);
    divide(own);
    Convert(own, PartOf(result, parts, host_));
    return BeginAllGather(Line::kColumn, result, std::move(parts));
  };
  const Step spread = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    const Buffer chunk = chunk_of(k), own = section_of(chunk);
    if (own.count > 0 && (is_rounded || is_split)) {
      AIT_ASSIGN_OR_RETURN(const Buffer wire,
                           Scratch(kWire, k, own.count, is_split ? all.dtype : numbers.wire));
      AIT_ASSIGN_OR_RETURN(const Buffer partial, partial_of(k));
      Buffer from = wire;
      if (is_rounded && numbers.average) {
        from = section_of(partial);
        Convert(wire, from);
        divide(from);
      }
      Convert(from, own);
    } else if (own.count > 0) {
      divide(own);
    }
    if (is_alone()) return kNothing;
    return BeginAllGather(Line::kInside, chunk, SectionsOf(chunk.count, all.dtype));
  };
  const std::int64_t chunks = (all.count + step - 1) / step;
  const LaggedStep whole[] = {{0, inside}, {1, between}, {1 + kQueued, spread}};
  const LaggedStep split[] = {
      {0, inside}, {1, between}, {1 + kQueued, round}, {1 + 2 * kQueued, spread}};
  return is_split ? RunPipeline(chunks, split) : RunPipeline(chunks, whole);
}

// Chunk k holds elements [k * step, (k + 1) * step) of the part of every rank, in the order of the
// columns: a column gets one range, and in it each host another.
Status HierarchicalCollectives::ReduceScatter(const Operation& operation) {
  const Numbers numbers = NumbersOf(operation);
  const DType dtype = operation.dtype;
  const Counts& counts = operation.counts;
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  const std::int64_t step =
      std::max<std::int64_t>(1, options_.tuning.chunk.value() / SizeOf(dtype) / layout().size());
  const auto piece = [&](std::int64_t k, int rank) {
    return std::clamp<std::int64_t>(counts[static_cast<std::size_t>(rank)] - k * step, 0, step);
  };
  const auto order_of = [&](std::int64_t k) {
    return ColumnOrder::Of(layout(), [&](int rank) { return piece(k, rank); });
  };
  const auto is_idle = [&](const ColumnOrder& order) {
    return !is_column() || order.Section(local_) == 0;
  };
  const auto section_of = [&](const ColumnOrder& order, const Buffer& buffer) {
    return buffer.Slice(order.begin[static_cast<std::size_t>(local_)], order.Section(local_));
  };
  const bool has_others = local_size_ > layout().width;  // whose parts a column carries
  const auto here = [&](const ColumnOrder& order) {      // what the columns carry for this host
    return ByLocal([&](int column) {
      return order.of_host[static_cast<std::size_t>(column)][static_cast<std::size_t>(host_)];
    });
  };

  const Step inside = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    const ColumnOrder order = order_of(k);
    AIT_ASSIGN_OR_RETURN(const Buffer partial,
                         Scratch(kPartial, k, order.begin.back(), numbers.sum));
    for (int rank = 0; rank < layout().size(); ++rank) {
      const std::int64_t length = piece(k, rank);
      Convert(operation.input.Slice(Before(counts, rank) + k * step, length),
              partial.Slice(order.offset[static_cast<std::size_t>(rank)], length));
    }
    if (is_alone()) return kNothing;
    return BeginReduceScatter(Line::kInside, partial,
                              ByLocal([&](int column) { return order.Section(column); }),
                              numbers.reduce);
  };
  const Step between = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    const ColumnOrder order = order_of(k);
    if (is_idle(order)) return kNothing;
    AIT_ASSIGN_OR_RETURN(const Buffer partial,
                         Scratch(kPartial, k, order.begin.back(), numbers.sum));
    Buffer section = section_of(order, partial);
    if (numbers.wire != numbers.sum) {
      AIT_ASSIGN_OR_RETURN(const Buffer wire, Scratch(kWire, k, section.count, numbers.wire));
      Convert(section, wire);
      section = wire;
    }
    return BeginReduceScatter(Line::kColumn, section,
                              order.of_host[static_cast<std::size_t>(local_)], numbers.reduce);
  };
  const Step finish = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    const ColumnOrder order = order_of(k);
    const Counts carried = here(order);
    const Buffer own =
        operation.output.Slice(std::min(k * step, operation.output.count), piece(k, options_.rank));
    Buffer results = own;
    if (has_others) {
      AIT_ASSIGN_OR_RETURN(results, Scratch(kGathered, k, Total(carried), dtype));
    }
    if (!is_idle(order)) {
      AIT_ASSIGN_OR_RETURN(const Buffer partial,
                           Scratch(kPartial, k, order.begin.back(), numbers.sum));
      const Buffer sums = PartOf(section_of(order, partial),
                                 order.of_host[static_cast<std::size_t>(local_)], host_);
      if (numbers.wire != numbers.sum) {
        AIT_ASSIGN_OR_RETURN(const Buffer wire,
                             Scratch(kWire, k, order.Section(local_), numbers.wire));
        Convert(PartOf(wire, order.of_host[static_cast<std::size_t>(local_)], host_), sums);
      }
      if (numbers.average) Divide(sums, layout().size());
      Convert(sums, has_others ? PartOf(results, carried, local_) : own);
    }
    if (!has_others) return kNothing;
    return BeginAllGather(Line::kInside, results, carried);
  };
  const Step take = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    const std::int64_t length = piece(k, options_.rank);
    if (!has_others || length == 0) return kNothing;
    const ColumnOrder order = order_of(k);
    const Counts carried = here(order);
    AIT_ASSIGN_OR_RETURN(const Buffer results, Scratch(kGathered, k, Total(carried), dtype));
    const int column = layout().ColumnOf(options_.rank);
    const int carrier =
        layout().hosts[static_cast<std::size_t>(host_)][static_cast<std::size_t>(column)];
    const std::int64_t at = Before(carried, column) +
                            order.offset[static_cast<std::size_t>(options_.rank)] -
                            order.offset[static_cast<std::size_t>(carrier)];
    CopyElements(results.Slice(at, length), operation.output.Slice(k * step, length));
    return kNothing;
  };
  const LaggedStep steps[] = {
      {0, inside}, {1, between}, {1 + kQueued, finish}, {2 + kQueued, take}};
  return RunPipeline((most + step - 1) / step, steps);
}

// Inside first, since the column carries the parts of ranks that are in none.
Status HierarchicalCollectives::AllGather(const Operation& operation) {
  const DType dtype = operation.dtype;
  const Counts& counts = operation.counts;
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  const std::int64_t step =
      std::max<std::int64_t>(1, options_.tuning.chunk.value() / SizeOf(dtype) / layout().size());
  const auto piece = [&](std::int64_t k, int rank) {
    return std::clamp<std::int64_t>(counts[static_cast<std::size_t>(rank)] - k * step, 0, step);
  };
  const auto order_of = [&](std::int64_t k) {
    return ColumnOrder::Of(layout(), [&](int rank) { return piece(k, rank); });
  };
  const std::vector<int>& host = layout().hosts[static_cast<std::size_t>(host_)];
  const auto here = [&](std::int64_t k) {
    Counts pieces;
    for (const int rank : host) pieces.push_back(piece(k, rank));
    return pieces;
  };

  const Step inside = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    Counts pieces = here(k);
    const ConstBuffer own =
        operation.input.Slice(std::min(k * step, operation.input.count), piece(k, options_.rank));
    AIT_ASSIGN_OR_RETURN(const Buffer gathered, Scratch(kPartial, k, Total(pieces), dtype));
    if (is_alone()) {
      CopyElements(own, gathered);
      return kNothing;
    }
    return BeginAllGather(Line::kInside, own, gathered, std::move(pieces));
  };
  const Step between = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    const ColumnOrder order = order_of(k);
    if (!is_column() || order.Section(local_) == 0) return kNothing;
    const Counts pieces = here(k);
    AIT_ASSIGN_OR_RETURN(const Buffer gathered, Scratch(kPartial, k, Total(pieces), dtype));
    AIT_ASSIGN_OR_RETURN(const Buffer all, Scratch(kGathered, k, order.begin.back(), dtype));
    for (int local = local_; local < local_size_; local += layout().width) {
      const Buffer from = PartOf(gathered, pieces, local);
      const int rank = host[static_cast<std::size_t>(local)];
      CopyElements(from, all.Slice(order.offset[static_cast<std::size_t>(rank)], from.count));
    }
    return BeginAllGather(
        Line::kColumn,
        all.Slice(order.begin[static_cast<std::size_t>(local_)], order.Section(local_)),
        order.of_host[static_cast<std::size_t>(local_)]);
  };
  const Step spread = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    if (is_alone()) return kNothing;
    const ColumnOrder order = order_of(k);
    AIT_ASSIGN_OR_RETURN(const Buffer all, Scratch(kGathered, k, order.begin.back(), dtype));
    return BeginAllGather(Line::kInside, all,
                          ByLocal([&](int column) { return order.Section(column); }));
  };
  const Step place = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    const ColumnOrder order = order_of(k);
    AIT_ASSIGN_OR_RETURN(const Buffer all, Scratch(kGathered, k, order.begin.back(), dtype));
    for (int rank = 0; rank < layout().size(); ++rank) {
      const std::int64_t length = piece(k, rank);
      CopyElements(all.Slice(order.offset[static_cast<std::size_t>(rank)], length),
                   operation.output.Slice(Before(counts, rank) + k * step, length));
    }
    return kNothing;
  };
  const LaggedStep steps[] = {
      {0, inside}, {1, between}, {1 + kQueued, spread}, {2 + kQueued, place}};
  return RunPipeline((most + step - 1) / step, steps);
}

// The root could end before the others have come; so all meet, while the data moves.
Status HierarchicalCollectives::Broadcast(const Operation& operation) {
  const Work meeting = BeginMeeting(operation);
  const Buffer& all = operation.output;
  const auto root = static_cast<std::size_t>(operation.peer.value());
  const int root_host = layout().host_of[root];
  const bool is_here = host_ == root_host;
  const std::int64_t step = options_.tuning.chunk.value() / SizeOf(all.dtype);
  const auto chunk_of = [&](std::int64_t k) {
    return all.Slice(k * step, std::min(step, all.count - k * step));
  };
  const auto broadcast = [&](Line line, const Buffer& buffer, int from) {
    return lines_.Begin(line, {.kind = OperationKind::kBroadcast,
                               .dtype = all.dtype,
                               .input = buffer,
                               .output = buffer,
                               .peer = Rank(from)});
  };
  const Step inside = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    if (!is_here || is_alone()) return kNothing;
    return broadcast(Line::kInside, chunk_of(k), layout().local_of[root]);
  };
  const Step between = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    if (!is_column()) return kNothing;
    const Buffer chunk = chunk_of(k);
    const Buffer section = PartOf(chunk, SectionsOf(chunk.count, all.dtype), local_);
    if (section.count == 0) return kNothing;
    return broadcast(Line::kColumn, section, root_host);
  };
  const Step spread = [&](std::int64_t k) -> StatusOr<std::optional<Work>> {
    if (is_here || is_alone()) return kNothing;
    const Buffer chunk = chunk_of(k);
    return BeginAllGather(Line::kInside, chunk, SectionsOf(chunk.count, all.dtype));
  };
  const LaggedStep steps[] = {{0, inside}, {1, between}, {1 + kQueued, spread}};
  AIT_RETURN_IF_ERROR(RunPipeline((all.count + step - 1) / step, steps));
  return EndMeeting(meeting);
}

Status HierarchicalCollectives::Meet(const Operation& operation) {
  return EndMeeting(BeginMeeting(operation));
}

Work HierarchicalCollectives::BeginMeeting(const Operation& operation) {
  const auto size = static_cast<std::size_t>(layout().size());
  signatures_.assign(size, 0);
  const Buffer all = View(signatures_), own = all.Slice(options_.rank, 1);
  signatures_[static_cast<std::size_t>(options_.rank)] =
      static_cast<std::int64_t>(operation.Signature());
  return lines_.Begin(Line::kAll, {.kind = OperationKind::kAllGather,
                                   .dtype = all.dtype,
                                   .input = own,
                                   .output = all,
                                   .counts = Counts(size, 1),
                                   .sequence = operation.sequence,
                                   .label = operation.Describe()});
}

Status HierarchicalCollectives::EndMeeting(const Work& work) {
  AIT_RETURN_IF_ERROR(lines_.Await(work));
  std::vector<int> others;
  for (std::size_t rank = 0; rank < signatures_.size(); ++rank) {
    if (signatures_[rank] != signatures_[static_cast<std::size_t>(options_.rank)]) {
      others.push_back(static_cast<int>(rank));
    }
  }
  if (others.empty()) return OkStatus();
  return InvalidArgumentError(RankList(others), " mean another operation than rank ", options_.rank,
                              "; issue the same collectives in the same order on every rank");
}

Status HierarchicalCollectives::Forward(const Operation& operation) {
  return lines_.Await(lines_.Begin(Line::kAll, operation));
}

}  // namespace ait::inline v0::internal
