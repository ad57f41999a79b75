// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BENCHMARKS_MEMORY_STREAMING_FLOOR_H_
#define AIT_BENCHMARKS_MEMORY_STREAMING_FLOOR_H_

// The floor of BandwidthProbe: copy and triad written by hand for the widest registers that the
// processor has, with stores that go past the caches and with plain ones.

#include <cstddef>
#include <vector>

namespace ait::benchmarks {

struct FloorKernel {
  const char* name;
  void (*run)(float* a, const float* b, const float* c, std::size_t n);  // aligned; n: 16s
};

std::vector<FloorKernel> FloorCopies();
std::vector<FloorKernel> FloorTriads();

/// Seconds of one pass over `n` floats by so many threads, each with its span of the arrays.
double SecondsOf(const FloorKernel& kernel, int threads, float* a, const float* b, const float* c,
                 std::size_t n);

}  // namespace ait::benchmarks

#endif  // AIT_BENCHMARKS_MEMORY_STREAMING_FLOOR_H_
