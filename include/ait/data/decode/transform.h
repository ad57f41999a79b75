// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_TRANSFORM_H_
#define AIT_DATA_DECODE_TRANSFORM_H_

// What happens to a sample between storage and batch: a function, and the random numbers it may
// use.
//
// A transform changes the fields of one sample in place. Any callable will do; those of ait (decode
// an image, crop, normalise) are made by the functions beside this header. `Chain` puts several
// after each other. Random numbers depend on the seed, the epoch and the sample, never on threads
// or ranks, so that augmentation is the same however the data is read.
//
//   Transform brighter = [](Sample& sample, SampleRandom& random) -> Status {
//     const double gain = random.Uniform(0.8, 1.2);
//     return Scale(sample, gain);
//   };
//
// **Thread-safety.** A transform is called by several threads at the same time, for different
// samples. What it throws becomes an error of the sample.

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/sample.h"

namespace ait::inline v0 {

/// A stream of random numbers that belongs to one sample in one epoch. Philox4x32-10 (Salmon et
/// al., "Parallel random numbers: as easy as 1, 2, 3", 2011) with the seed as key and (epoch,
/// sample) in the counter: the same numbers on every machine and in every version.
/// **Thread-safety.** One thread at a time.
class SampleRandom {
 public:
  /// `source` tells apart equal ids of several sources; epochs and sources below 2^16.
  SampleRandom(std::uint64_t seed, std::int64_t epoch, std::int32_t source, std::int64_t sample);

  /// 32 random bits.
  std::uint32_t Bits();
  /// Uniform in [low, high); low if they are equal. 53 random bits.
  double Uniform(double low = 0, double high = 1);
  /// Uniform in 0 … size - 1, without bias; size ≥ 1.
  std::int64_t Below(std::int64_t size);
  /// True with this probability.
  bool Chance(double probability) { return Uniform() < probability; }
  /// Normal with mean 0 and deviation 1 (Box and Muller).
  double Normal();

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_ = {};
  int used_ = 4;
};

/// **Errors.** Any; the loader adds where the sample lies. A sample that DataLoss or
/// InvalidArgument is said of is a bad sample, and counts against the budget of those.
using Transform = std::function<Status(Sample&, SampleRandom&)>;

/// One after the other; ends at the first error.
Transform Chain(std::vector<Transform> transforms);

namespace internal {
/// Philox4x32-10 of one counter; a function of its own for tests against the published vectors.
std::array<std::uint32_t, 4> Philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key);
}  // namespace internal

}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_TRANSFORM_H_
