// SPDX-License-Identifier: Apache-2.0
#include "cli/comm_bench.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ait/base/clock.h"
#include "ait/memory/buffer.h"
#include "cli/comm_bench_data.h"

namespace ait::cli {
namespace {

bool HasParts(OperationKind kind) {
  return kind == OperationKind::kReduceScatter || kind == OperationKind::kAllGather ||
         kind == OperationKind::kAllToAll || kind == OperationKind::kGather ||
         kind == OperationKind::kScatter;
}
bool Reduces(OperationKind kind) {
  return kind == OperationKind::kAllReduce || kind == OperationKind::kReduceScatter;
}
bool HasRoot(OperationKind kind) {
  return kind == OperationKind::kBroadcast || kind == OperationKind::kGather ||
         kind == OperationKind::kScatter;
}
// All-reduce and broadcast are in place by their interface.
bool HasOutOfPlace(OperationKind kind) {
  return kind != OperationKind::kAllReduce && kind != OperationKind::kBroadcast;
}
bool HasInPlace(OperationKind kind) {
  return kind != OperationKind::kAllToAll && kind != OperationKind::kSend &&
         kind != OperationKind::kBarrier;
}

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

/// One operation of one size, in or out of place.
class Measurement {
 public:
  Measurement(Communicator& all, const CommBenchOptions& options, Buffer input, Buffer output,
              CommBenchRow row, bool in_place)
      : all_(all),
        options_(options),
        row_(row),
        in_place_(in_place),
        rank_(all.rank().value()),
        ranks_(all.size().value()),
        root_(row.root.value_or(0)),
        part_(row.count) {
    const std::int64_t whole = HasParts(row.kind) ? part_ * ranks_ : part_;
    input_ = input.Slice(0, whole);
    output_ = output.Slice(0, whole);
    const bool at_root = rank_ == root_;
    switch (row.kind) {
      case OperationKind::kAllReduce:
      case OperationKind::kBroadcast:
        input_ = output_;
        break;
      case OperationKind::kReduceScatter:
        if (in_place) input_ = output_;
        result_ = in_place ? output_.Slice(rank_ * part_, part_) : output_.Slice(0, part_);
        break;
      case OperationKind::kAllGather:
        given_ = in_place ? output_.Slice(rank_ * part_, part_) : input_.Slice(0, part_);
        break;
      case OperationKind::kGather:
        given_ = in_place && at_root ? output_.Slice(rank_ * part_, part_) : input_.Slice(0, part_);
        break;
      case OperationKind::kScatter:
        result_ =
            in_place && at_root ? input_.Slice(rank_ * part_, part_) : output_.Slice(0, part_);
        break;
      default:
        break;
    }
    if (given_.data == nullptr) given_ = input_;
    if (result_.data == nullptr) result_ = output_;
  }

  StatusOr<CommBenchTime> Run() {
    CommBenchTime time;
    if (options_.check && row_.kind != OperationKind::kBarrier) {
      AIT_ASSIGN_OR_RETURN(time.wrong, Check());
    }
    // Sums of zeros stay finite.
    std::memset(input_.data, 0, static_cast<std::size_t>(input_.bytes().value()));
    std::memset(output_.data, 0, static_cast<std::size_t>(output_.bytes().value()));
    for (int i = 0; i < options_.warmup; ++i) AIT_RETURN_IF_ERROR(Call());
    AIT_RETURN_IF_ERROR(all_.Barrier().Wait());
    std::vector<double> calls;
    const auto begin = Clock::now();
    auto last = begin;
    for (int i = 0; i < options_.iterations; ++i) {
      AIT_RETURN_IF_ERROR(Call());
      const auto now = Clock::now();
      calls.push_back(Microseconds(now - last).count());
      last = now;
    }
    std::sort(calls.begin(), calls.end());
    const auto at = [&](double share) {
      return calls[std::min(calls.size() - 1,
                            static_cast<std::size_t>(share * static_cast<double>(calls.size())))];
    };
    double mean = Microseconds(last - begin).count() / options_.iterations;
    double slowest[3] = {at(0.5), at(0.99), calls.back()};
    AIT_RETURN_IF_ERROR(
        all_.AllReduce(Buffer{&mean, 1, DType::kFloat64}, ReduceOp::kAverage).Wait());
    AIT_RETURN_IF_ERROR(all_.AllReduce(View(slowest), ReduceOp::kMax).Wait());
    time.us = mean;
    time.algbw = static_cast<double>(row_.bytes) / mean / 1e3;
    time.busbw = time.algbw * BusFactor(row_.kind, ranks_);
    time.p50 = slowest[0];
    time.p99 = slowest[1];
    time.max = slowest[2];
    return time;
  }

 private:
  Status Call() {
    const Rank root(root_);
    switch (row_.kind) {
      case OperationKind::kBroadcast:
        return all_.Broadcast(output_, root).Wait();
      case OperationKind::kAllReduce:
        return all_.AllReduce(output_, *row_.reduce).Wait();
      case OperationKind::kReduceScatter:
        return all_.ReduceScatter(input_, result_, *row_.reduce).Wait();
      case OperationKind::kAllGather:
        return all_.AllGather(given_, output_).Wait();
      case OperationKind::kAllToAll:
        return all_.AllToAll(input_, output_).Wait();
      case OperationKind::kGather:
        return all_.Gather(given_, output_, root).Wait();
      case OperationKind::kScatter:
        return all_.Scatter(input_, result_, root).Wait();
      case OperationKind::kSend:
      case OperationKind::kReceive: {
        const Work receive = all_.Receive(output_, Rank((rank_ + ranks_ - 1) % ranks_));
        const Work send = all_.Send(input_, Rank((rank_ + 1) % ranks_));
        const Status sent = send.Wait();
        const Status received = receive.Wait();
        return sent.ok() ? received : sent;
      }
      case OperationKind::kBarrier:
        return all_.Barrier().Wait();
    }
    return OkStatus();
  }

  double Given(int rank, std::int64_t i) const {
    return GivenElement(rank, i, ranks_, row_.dtype, row_.reduce);
  }

  double Expected(std::int64_t i) const {
    switch (row_.kind) {
      case OperationKind::kAllReduce:
        return ReducedElement(i, ranks_, row_.dtype, *row_.reduce);
      case OperationKind::kReduceScatter:
        return ReducedElement(rank_ * part_ + i, ranks_, row_.dtype, *row_.reduce);
      case OperationKind::kBroadcast:
        return Given(root_, i);
      case OperationKind::kAllGather:
      case OperationKind::kGather:
        return Given(static_cast<int>(i / part_), i % part_);
      case OperationKind::kAllToAll:
        return Given(static_cast<int>(i / part_), rank_ * part_ + i % part_);
      case OperationKind::kScatter:
        return Given(root_, rank_ * part_ + i);
      default:
        return Given((rank_ + ranks_ - 1) % ranks_, i);
    }
  }

  /// Elements that are wrong, over all ranks.
  StatusOr<std::int64_t> Check() {
    std::memset(output_.data, 0x55, static_cast<std::size_t>(output_.bytes().value()));
    Fill(given_, [this](std::int64_t i) { return Given(rank_, i); });
    AIT_RETURN_IF_ERROR(Call());
    const bool has_result = row_.kind != OperationKind::kGather || rank_ == root_;
    std::int64_t wrong =
        has_result ? CountWrong(result_, [this](std::int64_t i) { return Expected(i); }) : 0;
    AIT_RETURN_IF_ERROR(all_.AllReduce(Buffer{&wrong, 1, DType::kInt64}, ReduceOp::kSum).Wait());
    return wrong;
  }

  Communicator& all_;
  const CommBenchOptions& options_;
  const CommBenchRow row_;
  const bool in_place_;
  const int rank_, ranks_, root_;
  const std::int64_t part_;
  Buffer input_, output_;  // all parts
  Buffer given_, result_;  // what this rank gives and gets
};

std::vector<std::int64_t> Sizes(const CommBenchOptions& options, OperationKind kind) {
  if (kind == OperationKind::kBarrier) return {0};
  std::vector<std::int64_t> sizes;
  for (double bytes = static_cast<double>(options.min_bytes);
       bytes <= static_cast<double>(options.max_bytes); bytes *= options.factor) {
    sizes.push_back(static_cast<std::int64_t>(bytes));
  }
  return sizes;
}

}  // namespace

double BusFactor(OperationKind kind, int ranks) {
  const double n = ranks;
  if (kind == OperationKind::kAllReduce) return 2 * (n - 1) / n;
  return HasParts(kind) ? (n - 1) / n : 1;
}

std::string_view CommBenchName(OperationKind kind) {
  switch (kind) {
    case OperationKind::kBroadcast:
      return "broadcast";
    case OperationKind::kAllReduce:
      return "all_reduce";
    case OperationKind::kReduceScatter:
      return "reduce_scatter";
    case OperationKind::kAllGather:
      return "all_gather";
    case OperationKind::kAllToAll:
      return "alltoall";
    case OperationKind::kGather:
      return "gather";
    case OperationKind::kScatter:
      return "scatter";
    case OperationKind::kSend:
    case OperationKind::kReceive:
      return "sendrecv";
    case OperationKind::kBarrier:
      return "barrier";
  }
  return "unknown";
}

const std::vector<OperationKind>& CommBenchKinds() {
  static const auto* const kKinds = new std::vector<OperationKind>{
      OperationKind::kAllReduce, OperationKind::kReduceScatter, OperationKind::kAllGather,
      OperationKind::kBroadcast, OperationKind::kAllToAll,      OperationKind::kGather,
      OperationKind::kScatter,   OperationKind::kSend,          OperationKind::kBarrier};
  return *kKinds;
}

Status MeasureCollectives(Communicator& all, MemoryHandle memory, const CommBenchOptions& options,
                          const std::function<void(const CommBenchRow&)>& on_row) {
  const int ranks = all.size().value();
  const auto most = static_cast<std::size_t>(options.max_bytes);
  AIT_ASSIGN_OR_RETURN(HostBuffer input, HostBuffer::Create(memory, most));
  AIT_ASSIGN_OR_RETURN(HostBuffer output, HostBuffer::Create(memory, most));
  const auto measure = [&](OperationKind kind, DType dtype, std::optional<ReduceOp> reduce,
                           std::int64_t bytes) -> Status {
    const std::int64_t element = SizeOf(dtype);
    const std::int64_t parts = HasParts(kind) ? ranks : 1;
    CommBenchRow row{.kind = kind, .dtype = dtype, .reduce = reduce};
    row.count = bytes / element / parts;
    row.bytes = row.count * parts * element;
    if (row.count == 0 && kind != OperationKind::kBarrier) return OkStatus();
    if (HasRoot(kind)) row.root = options.root;
    const std::int64_t elements = options.max_bytes / element;
    const Buffer in{input.data(), elements, dtype}, out{output.data(), elements, dtype};
    if (HasOutOfPlace(kind)) {
      AIT_ASSIGN_OR_RETURN(row.out_of_place, Measurement(all, options, in, out, row, false).Run());
    }
    if (HasInPlace(kind)) {
      AIT_ASSIGN_OR_RETURN(row.in_place, Measurement(all, options, in, out, row, true).Run());
    }
    on_row(row);
    return OkStatus();
  };
  for (const OperationKind kind : options.kinds) {
    if (kind == OperationKind::kSend && ranks == 1) {  // nobody to send to
      if (options.kinds.size() > 1) continue;
      return InvalidArgumentError("sendrecv needs two ranks or more, and there is one");
    }
    for (const DType dtype : options.dtypes) {
      if (kind == OperationKind::kBarrier && dtype != options.dtypes.front()) continue;
      std::vector<std::optional<ReduceOp>> reduce_ops = {std::nullopt};
      if (Reduces(kind)) reduce_ops.assign(options.reduce_ops.begin(), options.reduce_ops.end());
      for (const std::optional<ReduceOp> reduce : reduce_ops) {
        if (reduce == ReduceOp::kAverage && !IsFloatingPoint(dtype)) continue;  // is refused
        for (const std::int64_t bytes : Sizes(options, kind)) {
          AIT_RETURN_IF_ERROR(measure(kind, dtype, reduce, bytes));
        }
      }
    }
  }
  return OkStatus();
}

}  // namespace ait::cli
