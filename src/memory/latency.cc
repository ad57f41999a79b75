// SPDX-License-Identifier: Apache-2.0
// The walk through memory of bandwidth.h.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "ait/memory/bandwidth.h"
#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/topology/binding.h"

namespace ait::inline v0 {
namespace {

constexpr std::size_t kLine = 64;  // bytes

/// The same on every machine (Steele, Lea, Flood 2014: SplitMix64).
std::uint64_t Next(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// Each line holds the address of the next one, in one cycle over all lines (Sattolo 1986).
void LinkInRandomOrder(std::byte* data, std::size_t lines) {
  std::vector<std::uint32_t> next(lines);
  std::iota(next.begin(), next.end(), 0u);
  std::uint64_t state = 1;
  for (std::size_t i = lines - 1; i > 0; --i) std::swap(next[i], next[Next(state) % i]);
  for (std::size_t i = 0; i < lines; ++i) {
    *reinterpret_cast<void**>(data + i * kLine) = data + next[i] * kLine;
  }
}

}  // namespace

StatusOr<double> MeasureLatency(const LatencyOptions& options) {
  constexpr std::size_t kMostLines = std::numeric_limits<std::uint32_t>::max();
  if (options.bytes < KiB(4) ||
      static_cast<std::size_t>(options.bytes.value()) / kLine > kMostLines) {
    return InvalidArgumentError("cannot walk through ", options.bytes.value(),
                                " bytes; 4 KiB to 256 GiB are possible");
  }
  if (options.repetitions < 1) {
    return InvalidArgumentError("repetitions must be at least 1, not ", options.repetitions);
  }
  std::optional<ScopedBinding> binding;
  if (!options.cpus.empty()) {
    AIT_ASSIGN_OR_RETURN(ScopedBinding bound, ScopedBinding::Create(options.cpus));
    binding.emplace(std::move(bound));
  }
  const MemoryHandle memory =
      options.memory ? options.memory : MemoryHandle(HeapResource::Create());
  const std::size_t lines = static_cast<std::size_t>(options.bytes.value()) / kLine;
  AIT_ASSIGN_OR_RETURN(HostBuffer buffer,
                       HostBuffer::Create(memory, lines * kLine, MemoryResource::kMaxAlignment));
  LinkInRandomOrder(buffer.data(), lines);
  const std::size_t loads = std::min(lines, std::size_t{1} << 20);
  double best = std::numeric_limits<double>::infinity();
  void** at = reinterpret_cast<void**>(buffer.data());  // each repetition walks on from there
  for (int i = 0; i < options.repetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t load = 0; load < loads; ++load) at = static_cast<void**>(*at);
    asm volatile("" : "+r"(at));  // the walk is used
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    best = std::min(best, time.count() / static_cast<double>(loads));
  }
  return best;
}

}  // namespace ait::inline v0
