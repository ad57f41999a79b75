// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_LOADER_COLLATE_H_
#define AIT_DATA_LOADER_COLLATE_H_

// From samples to the arrays of a batch: stacking, padding, packing, or a function of the program's
// own.
//
//   LoaderOptions options = {.collate = Stack({.padding = {{.field = "tokens",
//                                                           .mask = PaddingMask::kMask}}})};
//
//   options.collate = [](const CollateInput& input, BatchBuilder& out) -> Status {
//     const auto rows = static_cast<std::int64_t>(input.samples.size());
//     AIT_ASSIGN_OR_RETURN(auto labels, out.Add("label", DType::kInt64, {rows}));
//     …                                     // fill it from input.samples
//     out.Drop("cls");                      // is in the batch now, need not stay with the samples
//     return OkStatus();
//   };

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/base/status.h"
#include "ait/data/sample.h"

namespace ait::inline v0 {

/// Where a collate function puts its arrays.
/// **Thread-safety.** One thread at a time.
class BatchBuilder {
 public:
  virtual ~BatchBuilder() = default;

  /// Adds an array to the batch and returns its bytes, whose contents are unspecified.
  /// **Errors.** InvalidArgument: a name twice, or a shape that is none; ResourceExhausted: no
  /// memory. Aborted: the budget of the loader has no room for it now; return it, and the function
  /// is called once more when there is room.
  virtual StatusOr<std::span<std::byte>> Add(std::string_view name, DType dtype,
                                             std::span<const std::int64_t> shape) = 0;
  StatusOr<std::span<std::byte>> Add(std::string_view name, DType dtype,
                                     std::initializer_list<std::int64_t> shape) {
    return Add(name, dtype, std::span<const std::int64_t>(shape.begin(), shape.size()));
  }

  /// Takes the field of this name from all samples, once the function has returned without an
  /// error.
  virtual void Drop(std::string_view field) = 0;
};

struct CollateInput {
  std::span<const Sample> samples;           // not empty
  std::span<const float> weights;            // of each of the samples, as in DataBatch
  std::span<const std::int64_t> row_begins;  // as in DataBatch
};

/// Makes the arrays of a batch. Called by several threads at the same time for different batches,
/// and again for the same one after it returned an error of `BatchBuilder::Add`. What it throws
/// ends the data with an error.
using Collate = std::function<Status(const CollateInput&, BatchBuilder&)>;

/// What is told about padding beside the padded array `x`.
enum class PaddingMask {
  kNone,
  kLengths,  // "x.length", int64 of {rows}: how much of each row is not padding
  kMask,     // "x.mask", bool of {rows, length}: true where it is not padding
};

/// Arrays of a field that differ in their first dimension, and in no other.
struct FieldPadding {
  std::string field;
  double value = 0;              // what is put behind the shorter ones; rounded for integers
  std::int64_t length = 0;       // of all rows, ≥ the longest; 0: as the longest of the batch …
  std::int64_t multiple_of = 1;  // … rounded up to a multiple of this, ≥ 1
  PaddingMask mask = PaddingMask::kNone;
};

struct StackOptions {
  std::vector<FieldPadding> padding;
  /// Fields that must come out as arrays: an error says which sample prevents it. Without it a
  /// field that some sample has not, or in another shape, just stays with the samples.
  std::vector<std::string> required;
};

/// Stacks every field that is an array of one dtype and shape in all samples (or can be padded to
/// one) and drops it from the samples. In a packed batch the arrays of a row follow each other along
/// their first dimension, and are padded by 0 to the longest row unless `padding` says otherwise;
/// "x.segments", int32 of {rows, length}, then says of each place which sample of its row it belongs
/// to, from 1; 0: padding.
/// **Errors** of the function. InvalidArgument: a required field cannot be stacked, or a row is
/// longer than a fixed length.
Collate Stack(StackOptions options = {});

}  // namespace ait::inline v0

#endif  // AIT_DATA_LOADER_COLLATE_H_
