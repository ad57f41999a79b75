// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "parallel/bucket_reducer_internal.h"

namespace ait::inline v0::internal {
namespace {

// "bucket 3 (head.weight, head.bias and 4 more)"
std::string Label(const FlatLayout& layout, std::size_t b) {
  const std::vector<int>& members = layout.buckets()[b].parameters;
  std::string names;
  for (std::size_t i = 0; i < std::min<std::size_t>(2, members.size()); ++i) {
    names +=
        StrCat(i == 0 ? "" : ", ", layout.parameters()[static_cast<std::size_t>(members[i])].name);
  }
  if (members.size() > 2) names += StrCat(" and ", members.size() - 2, " more");
  return StrCat("bucket ", b, " (", names, ")");
}

}  // namespace

BucketReducer::BucketReducer(const FlatLayout& layout, ReducerOptions options)
    : layout_(layout),
      shard_(options.shard),
      replicate_(options.replicate),
      scatter_(options.scatter),
      options_(std::move(options.operation)),
      bucket_of_(layout.parameters().size(), -1) {
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.label = Label(layout, b);
    for (const int parameter : layout.buckets()[b].parameters) {
      bucket_of_[static_cast<std::size_t>(parameter)] = static_cast<int>(b);
      bucket.expected += options.handles[static_cast<std::size_t>(parameter)];
    }
  }
  if (options.compression != nullptr) {
    queue_ = std::make_unique<CompressionQueue>(*options.compression, shard_);
  }
}

BucketReducer::~BucketReducer() {
  if (taken_ == next_) return;
  const Status reason = AbortedError("the data-parallel engine of rank ", shard_.rank(),
                                     " was destroyed while gradients were being reduced");
  shard_.Abort(reason);
  if (replicate_ != nullptr) replicate_->Abort(reason);
  for (const Bucket& bucket : buckets_) {
    (void)bucket.work.Wait();
    (void)bucket.across.Wait();
  }
}

void BucketReducer::SetCallbacks(std::function<OnReduced(int bucket)> on_reduced,
                                 std::function<void(int bucket)> then) {
  on_reduced_ = std::move(on_reduced);
  then_ = std::move(then);
}

void BucketReducer::Begin() {
  for (Bucket& bucket : buckets_) {
    bucket.pending = bucket.expected;
    bucket.unused = 0;
    bucket.ready = Time{};
    bucket.exposed = Duration::zero();
    bucket.moves = false;
    bucket.work = bucket.across = Work();
    bucket.compressed = {};
  }
  taken_ = crossed_ = next_ = 0;
  failed_ = OkStatus();
  stalled_ = Duration::zero();
}

void BucketReducer::MarkReady(int owner) {
  --At(bucket_of_[static_cast<std::size_t>(owner)]).pending;
  while (unissued() > 0 && At(next_).pending == 0) Issue();
  Poll();
}

void BucketReducer::IssueRest() {
  while (unissued() > 0) {
    At(next_).unused = At(next_).pending;
    Issue();
    Poll();
  }
}

void BucketReducer::Issue() {
  const int index = next_;
  Bucket& bucket = At(index);
  bucket.ready = SystemClock().now();
  StatusOr<Buffer> wire = failed_.ok() ? store_->Wire(index) : failed_;
  ++next_;
  if (!wire.ok()) return Fail(wire.status(), bucket);
  bucket.bytes = wire->bytes().value();
  if (wire->count == 0) return;
  bucket.moves = !is_alone();
  OperationOptions options = options_;
  options.label = bucket.label;
  if (scatter_) {
    bucket.output = store_->Output(index, *wire);
    options.on_reduced = on_reduced_(index);
    bucket.work = shard_.ReduceScatter(
        *wire, bucket.output, layout_.buckets()[static_cast<std::size_t>(index)].slice_counts,
        ReduceOp::kSum, std::move(options));
  } else if (is_alone()) {
    return;
  } else if (queue_ != nullptr) {
    const FlatBucket& planned = layout_.buckets()[static_cast<std::size_t>(index)];
    bucket.work =
        queue_->Push({.index = index, .begin = planned.begin, .values = *wire, .layout = &layout_},
                     std::move(options), &bucket.compressed);
  } else {
    bucket.work = shard_.AllReduce(*wire, ReduceOp::kSum, std::move(options));
  }
}

// Goes on with what has ended meanwhile, without waiting.
void BucketReducer::Poll() {
  if (replicate_ != nullptr) {
    while (crossed_ < next_ && At(crossed_).work.done()) Cross();
  }
  while (taken_ < next_) {
    const Bucket& front = At(taken_);
    if (!front.work.done() || !front.across.done()) return;
    TakeFront();
  }
}

// Hands the slice of the next bucket to the replicas. The slices of a shard group are issued in the
// order of the buckets on all ranks.
void BucketReducer::Cross() {
  Bucket& bucket = At(crossed_++);
  const Status status = bucket.work.Wait();
  if (!status.ok()) return Fail(status, bucket);
  if (!failed_.ok() || bucket.output.count == 0) return;
  OperationOptions options = options_;
  options.label = StrCat(bucket.label, " over replicas");
  bucket.across = replicate_->AllReduce(bucket.output, ReduceOp::kSum, std::move(options));
}

void BucketReducer::Fail(const Status& status, const Bucket& bucket) {
  if (!failed_.ok()) return;
  failed_ = Annotate(status, StrCat("reducing the gradients of ", bucket.label));
  shard_.Abort(failed_);
  if (replicate_ != nullptr) replicate_->Abort(failed_);
}

// **Blocks.** Until the oldest bucket in flight is reduced, and passes it on.
void BucketReducer::TakeFront() {
  const int index = taken_;
  Bucket& bucket = At(index);
  const Time begin = SystemClock().now();
  Status status = bucket.work.Wait();
  if (replicate_ != nullptr) {
    while (crossed_ <= index) Cross();
    if (status.ok()) status = bucket.across.Wait();
  }
  bucket.exposed += SystemClock().now() - begin;
  ++taken_;
  if (!status.ok()) return Fail(status, bucket);
  if (!failed_.ok()) return;
  store_->Reduced(index);
  then_(index);
}

StatusOr<bool> BucketReducer::WaitForOne() {
  if (taken_ == next_) return false;
  const Time begin = SystemClock().now();
  TakeFront();
  stalled_ += SystemClock().now() - begin;
  if (!failed_.ok()) return failed_;
  return true;
}

StatusOr<bool> BucketReducer::TakeOneIfDone() {
  if (taken_ == next_) return false;
  const int oldest = taken_;
  Poll();
  if (!failed_.ok()) return failed_;
  return taken_ > oldest;
}

Status BucketReducer::Finish() {
  while (taken_ < next_) {
    TakeFront();
    Poll();
  }
  return failed_;
}

void BucketReducer::Report(Time start, Time end, StepCounters& counters) const {
  counters.buckets.clear();
  counters.unreduced_buckets = unissued();
  counters.unused_parameters = 0;
  for (const Bucket& bucket : buckets_) {
    BucketCounters& report = counters.buckets.emplace_back();
    report.bytes = bucket.bytes;
    report.unused_parameters = bucket.unused;
    if (bucket.ready != Time{}) report.ready = bucket.ready - start;
    report.exposed = bucket.exposed;
    counters.unused_parameters += bucket.unused;
    counters.exposed += bucket.exposed;
    if (!bucket.moves) continue;
    counters.collectives += queue_ != nullptr       ? bucket.compressed.collectives
                            : replicate_ != nullptr ? 2
                                                    : 1;
    counters.communicated_bytes +=
        queue_ != nullptr
            ? bucket.compressed.handed_bytes
            : report.bytes + (replicate_ != nullptr ? bucket.output.bytes().value() : 0);
    counters.compression += bucket.compressed;
    const WorkTimes times = bucket.work.times();
    Time finished = times.finished;
    if (replicate_ != nullptr) finished = std::max(finished, bucket.across.times().finished);
    if (times.started == Time{} || finished == Time{}) continue;  // failed before its turn
    report.communication = finished - times.started;
    counters.communication += report.communication;
    counters.overlap += std::max(Duration::zero(), std::min(finished, end) - times.started);
  }
}

}  // namespace ait::inline v0::internal
