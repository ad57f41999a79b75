// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_LOADER_DATA_BATCH_H_
#define AIT_DATA_LOADER_DATA_BATCH_H_

// What a loader delivers: some samples of a rank, their arrays stacked.
//
//   while (const DataBatch* batch = loader->Next()) {
//     const BatchArray* images = batch->Find("image");       // shape {rows, 3, 224, 224}
//     if (images == nullptr) return NotFoundError("no field \"image\" of one shape");
//     Train(images->As<float>(), batch->weights);
//   }
//
// Fields that hold arrays of one dtype and shape in all samples lie behind each other in one array,
// row by row. All other fields stay with their samples.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/base/status.h"
#include "ait/data/dataset_state.h"
#include "ait/data/plan/batch_plan.h"
#include "ait/data/sample.h"
#include "ait/memory/buffer.h"

namespace ait::inline v0 {

/// One field of all rows.
struct BatchArray {
  std::string name;  // of the field
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;  // of all rows together: shape[0] is the number of rows
  HostBuffer buffer;  // holds the numbers row by row; may be larger, since it is reused
  /// The same numbers in memory of a GPU, if the loader was asked to copy them; else nullptr. Ready
  /// for what is given to the consumer's stream after `Next` returned.
  void* device = nullptr;

  std::size_t size_bytes() const {
    return static_cast<std::size_t>(ElementCount(shape)) * static_cast<std::size_t>(SizeOf(dtype));
  }
  std::span<const std::byte> bytes() const { return buffer.bytes().first(size_bytes()); }
  /// The numbers; T is the C++ type of `dtype`.
  template <typename T>
  std::span<const T> As() const {
    return buffer.As<T>().first(static_cast<std::size_t>(ElementCount(shape)));
  }
};

struct DataBatch {
  std::vector<BatchArray> arrays;  // in the order of the fields of the first sample
  /// The samples with the fields that no array holds. samples[i].id differs from planned[i].id if
  /// another sample stands in for a bad one.
  std::vector<Sample> samples;
  std::vector<PlannedSample> planned;  // what the plan says of each of `samples`
  /// What each of `samples` counts: 1; 0 for one that fills up the batch, and for one that stands
  /// in for a sample that was dropped.
  std::vector<float> weights;
  /// Of a packed batch: row r is made of the samples row_begins[r] to before row_begins[r + 1].
  /// Empty: every sample is a row.
  std::vector<std::int64_t> row_begins;
  std::int64_t global_samples = 0;  // of all ranks together, filling left out
  DatasetState after;               // the state of the data once this batch is delivered

  /// The array of that name; nullptr if there is none.
  const BatchArray* Find(std::string_view name) const {
    for (const BatchArray& array : arrays) {
      if (array.name == name) return &array;
    }
    return nullptr;
  }
};

/// A batch that stays valid when the loader goes on: arrays in memory of its own on the heap;
/// samples shared. **Errors.** ResourceExhausted; FailedPrecondition: an array is on a device, and
/// who uses the batch would look for it there.
StatusOr<DataBatch> CopyBatch(const DataBatch& batch);

}  // namespace ait::inline v0

#endif  // AIT_DATA_LOADER_DATA_BATCH_H_
