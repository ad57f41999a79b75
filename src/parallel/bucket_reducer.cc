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

BucketReducer::BucketReducer(Communicator& communicator, const FlatLayout& layout,
                             std::vector<Buffer> gradients, std::vector<int> handles,
                             OperationOptions options, GradientCompression* compression)
    : communicator_(communicator),
      layout_(layout),
      options_(std::move(options)),
      bucket_of_(layout.parameters().size(), -1) {
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    const FlatBucket& planned = layout.buckets()[b];
    Bucket& bucket = buckets_.emplace_back();
    bucket.buffer =
        gradients[static_cast<std::size_t>(planned.group)].Slice(planned.begin, planned.count);
    bucket.label = Label(layout, b);
    for (const int parameter : planned.parameters) {
      bucket_of_[static_cast<std::size_t>(parameter)] = static_cast<int>(b);
      bucket.expected += handles[static_cast<std::size_t>(parameter)];
    }
  }
  if (compression != nullptr) {
    queue_ = std::make_unique<CompressionQueue>(*compression, communicator);
  }
}

BucketReducer::~BucketReducer() {
  if (!in_flight_) return;
  communicator_.Abort(AbortedError("the data-parallel engine of rank ", communicator_.rank(),
                                   " was destroyed while gradients were being reduced"));
  for (const Bucket& bucket : buckets_) (void)bucket.work.Wait();
}

void BucketReducer::Begin() {
  for (Bucket& bucket : buckets_) {
    bucket.pending = bucket.expected;
    bucket.unused = 0;
    bucket.ready = Time{};
    bucket.exposed = Duration::zero();
    bucket.work = Work();
    bucket.compressed = {};
  }
  next_ = 0;
}

void BucketReducer::MarkReady(int owner) {
  --buckets_[static_cast<std::size_t>(bucket_of_[static_cast<std::size_t>(owner)])].pending;
  while (unissued() > 0 && buckets_[static_cast<std::size_t>(next_)].pending == 0) Issue();
}

void BucketReducer::IssueRest() {
  while (unissued() > 0) {
    Bucket& bucket = buckets_[static_cast<std::size_t>(next_)];
    bucket.unused = bucket.pending;
    Issue();
  }
}

void BucketReducer::Issue() {
  const int index = next_++;
  Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
  bucket.ready = SystemClock().now();
  if (communicator_.size().value() == 1 || bucket.buffer.count == 0) return;
  OperationOptions options = options_;
  options.label = bucket.label;
  if (queue_ != nullptr) {
    const FlatBucket& planned = layout_.buckets()[static_cast<std::size_t>(index)];
    bucket.work = queue_->Push(
        {.index = index, .begin = planned.begin, .values = bucket.buffer, .layout = &layout_},
        std::move(options), &bucket.compressed);
  } else {
    bucket.work = communicator_.AllReduce(bucket.buffer, ReduceOp::kSum, std::move(options));
  }
  in_flight_ = true;
}

Status BucketReducer::Finish(const std::function<void(int bucket)>& then) {
  Status first;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    const Time begin = SystemClock().now();
    const Status status = bucket.work.Wait();
    bucket.exposed = SystemClock().now() - begin;
    if (!status.ok() && first.ok()) {
      first = Annotate(status, StrCat("reducing the gradients of ", bucket.label));
      communicator_.Abort(first);
    }
    if (first.ok()) then(static_cast<int>(b));
  }
  in_flight_ = false;
  return first;
}

void BucketReducer::Report(Time start, Time end, StepCounters& counters) const {
  counters.buckets.clear();
  counters.unreduced_buckets = unissued();
  for (const Bucket& bucket : buckets_) {
    BucketCounters& report = counters.buckets.emplace_back();
    report.bytes = bucket.buffer.bytes().value();
    report.unused_parameters = bucket.unused;
    if (bucket.ready != Time{}) report.ready = bucket.ready - start;
    report.exposed = bucket.exposed;
    counters.unused_parameters += bucket.unused;
    counters.exposed += bucket.exposed;
    if (communicator_.size().value() == 1 || bucket.buffer.count == 0) continue;
    counters.collectives += queue_ == nullptr ? 1 : bucket.compressed.collectives;
    counters.communicated_bytes +=
        queue_ == nullptr ? report.bytes : bucket.compressed.handed_bytes;
    counters.compression += bucket.compressed;
    const WorkTimes times = bucket.work.times();
    if (times.started == Time{} || times.finished == Time{}) continue;  // failed before its turn
    report.communication = times.finished - times.started;
    counters.communication += report.communication;
    counters.overlap += std::max(Duration::zero(), std::min(times.finished, end) - times.started);
  }
}

}  // namespace ait::inline v0::internal
