// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_COMPRESSION_PACKED_INTERNAL_H_
#define AIT_PARALLEL_COMPRESSION_PACKED_INTERNAL_H_

// What the methods of compression share: which elements of a bucket are compressed, the exact rest,
// residuals, their state.
//
// The compressed parameters of a bucket are gathered in one run of elements, "packed", in which
// every parameter starts on a multiple of the method's alignment and gaps are zeros. Where that
// would be a copy of the whole bucket, packed is the bucket itself.

#include <span>
#include <string>
#include <vector>

#include "ait/parallel/compression.h"
#include "parallel/compression_wire_internal.h"

namespace ait::inline v0::internal {

/// One parameter of a bucket.
struct PackedSegment {
  int parameter = 0;
  std::int64_t in_bucket = 0;  // elements from the begin of the bucket
  std::int64_t in_packed = 0;
  std::int64_t count = 0;
};

struct PackedBucket {
  std::vector<PackedSegment> compressed;  // by offset, both orders
  std::vector<PackedSegment> exact;       // `in_packed`: place among the exact ones
  std::int64_t packed_count = 0;
  std::int64_t exact_count = 0;
  bool in_place = false;  // packed is the bucket itself
  /// Packed, with error feedback only.
  std::vector<float> residual;
  std::vector<float> next_residual;  // if the step counts
  bool has_residual = false;         // it is not all zeros
  bool reduced = false;              // in the step that is not over
};

class PackedCompression : public GradientCompression {
 public:
  std::string Describe() const final;
  Status Bind(const FlatLayout& layout, Rank rank, WorldSize size) final;
  Status Reduce(const GradientBucket& bucket, Communicator& communicator,
                const OperationOptions& options, CompressionCounters& counters) final;
  void EndStep(StepEnd end) final;
  CompressionState Save() const final;
  StatusOr<std::string> Load(std::span<const CompressionState> states) final;

 protected:
  PackedCompression(std::string method, CompressionScope scope, ErrorFeedback feedback,
                    std::int64_t alignment)
      : method_(std::move(method)),
        scope_(std::move(scope)),
        feedback_(feedback),
        alignment_(alignment) {}

  // A method is these.

  virtual Status CheckOptions() const = 0;
  /// The options, as text.
  virtual std::string OptionsText() const = 0;
  /// Can the method do something for this parameter?
  virtual bool Fits(const ParameterInfo&) const { return true; }
  /// After the buckets have been divided.
  virtual Status BindMethod() { return OkStatus(); }
  /// True if this step sums the whole bucket exactly.
  virtual bool IsExactNow(const PackedBucket&) const { return false; }
  /// Makes `values`, packed, the sum over ranks. With error feedback `error` gets what this rank
  /// leaves for the next step, else it is empty. Without it, adds to `error_squares`.
  virtual Status Exchange(std::size_t bucket, std::span<float> values, std::span<float> error,
                          Wire& wire) = 0;
  virtual void EndMethodStep(StepEnd) {}
  /// Entries that are the same on all ranks.
  virtual void SaveShared(std::vector<CompressionEntry>&) const {}
  /// Takes up one of them; false if it does not fit.
  virtual bool LoadShared(const CompressionEntry&) { return false; }
  /// A hash of them.
  virtual std::uint64_t SharedHash() const { return 0; }

  const ParameterInfo& info(int parameter) const {
    return parameters_[static_cast<std::size_t>(parameter)];
  }
  const std::vector<PackedBucket>& buckets() const { return buckets_; }
  WorldSize size() const { return size_; }
  bool has_feedback() const { return feedback_ == ErrorFeedback::kOn; }
  /// Steps that counted.
  std::int64_t step() const { return step_; }

 private:
  bool IsCompressed(const ParameterInfo& parameter) const;
  void Divide(const FlatLayout& layout, const FlatBucket& planned, PackedBucket& bucket) const;
  Status ReduceExactly(PackedBucket& bucket, const Buffer& values, Wire& wire);
  std::string FoldResiduals(std::span<const CompressionState> states);

  std::string method_;
  CompressionScope scope_;
  ErrorFeedback feedback_;
  std::int64_t alignment_;

  std::vector<ParameterInfo> parameters_;
  std::vector<PackedBucket> buckets_;
  std::vector<float> packed_;  // scratch, as large as the largest bucket needs
  std::vector<float> exact_;
  Rank rank_;
  WorldSize size_{1};
  std::int64_t step_ = 0;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_COMPRESSION_PACKED_INTERNAL_H_
