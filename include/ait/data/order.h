// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_ORDER_H_
#define AIT_DATA_ORDER_H_

// The order of the samples of an epoch, as a function instead of a shuffled list.
//
// Item i of epoch e under seed s over n items is a specified permutation: integer arithmetic only,
// the same on every machine and in every version, computed for any i in constant time and memory.
// That is what lets a dataset resume anywhere, on any number of ranks. It is not a source of
// random numbers and not cryptography. docs/data.md specifies it to the bit and gives test vectors.
//
//   Permutation order(dataset_size, seed, epoch);
//   for (std::int64_t i = 0; i < dataset_size; ++i) Visit(order(i));   // each item exactly once

#include <array>
#include <cstdint>
#include <limits>

namespace ait::inline v0 {

/// The order in which a dataset delivers its samples.
enum class SampleOrder {
  kShuffled,    // a new permutation for every epoch
  kSequential,  // as they lie in the file, in every epoch
  /// A new permutation of the blocks (shards) for every epoch, and of the samples within a few of
  /// them: for storage that is read in long pieces. Of a `DataPlan` only.
  kBlockShuffled,
};

/// For the number of epochs: never ends.
inline constexpr std::int64_t kUnlimitedEpochs = std::numeric_limits<std::int64_t>::max();

/// What becomes of the samples at the end that do not fill a batch.
enum class LastBatch {
  kShort,  // delivered in a smaller batch; a rank gets no row of it if there are fewer than ranks
  kDrop,   // left out
  kPad,    // filled up with samples that came before, marked as padding. Of a `DataPlan` only.
};

/// A pseudo-random permutation of 0 … size-1, chosen by seed and epoch.
/// **Thread-safety.** Immutable. **Cost.** Less than 100 ns a call.
class Permutation {
 public:
  /// 1 ≤ `size` ≤ 2^62, `epoch` ≥ 0.
  Permutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch);

  std::int64_t size() const { return static_cast<std::int64_t>(size_); }

  /// The item at `position`, 0 ≤ position < size.
  std::int64_t operator()(std::int64_t position) const;

 private:
  static constexpr int kRounds = 8;
  std::uint64_t size_;
  int low_bits_;
  std::uint64_t low_mask_;
  std::uint64_t high_mask_;
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_ORDER_H_
