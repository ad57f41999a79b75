// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_TOKEN_BATCH_H_
#define AIT_DATA_TOKEN_BATCH_H_

// One rank's part of a batch of token sequences, as plain memory.
//
// Row r holds sequence_length + 1 tokens; the inputs of the model are the first sequence_length of
// them, the targets the last: input j is followed by target j. Both are views of the same memory.
//
//   for (std::int64_t r = 0; r < batch.rows(); ++r) Train(batch.inputs(r), batch.targets(r));

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ait::inline v0 {

struct TokenBatch {
  std::int64_t sequence_length = 0;
  std::vector<std::int64_t> tokens;      // rows × (sequence_length + 1), row by row
  std::vector<std::int64_t> sample_ids;  // one a row: which window of the corpus it is
  std::int64_t global_rows = 0;          // rows of this batch on all ranks together
  std::int64_t epoch = 0;                // of the first row of the batch, the same on all ranks

  std::int64_t rows() const { return static_cast<std::int64_t>(sample_ids.size()); }
  /// Number of targets on this rank.
  std::int64_t token_count() const { return rows() * sequence_length; }
  std::span<const std::int64_t> inputs(std::int64_t row) const { return View(row, 0); }
  std::span<const std::int64_t> targets(std::int64_t row) const { return View(row, 1); }

 private:
  std::span<const std::int64_t> View(std::int64_t row, std::int64_t shift) const {
    return std::span(tokens).subspan(static_cast<std::size_t>(row * (sequence_length + 1) + shift),
                                     static_cast<std::size_t>(sequence_length));
  }
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_TOKEN_BATCH_H_
