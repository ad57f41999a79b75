// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_WHOLE_PARAMETER_OPTIMIZER_H_
#define AIT_OPTIM_WHOLE_PARAMETER_OPTIMIZER_H_

// What all optimizers share whose update of an element depends on the whole parameter: state of any
// shape, parameters and gradients as row-major fp32 whatever they are in the flat buffer. The
// arithmetic is a `WholeParameterRule`.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ait/optim/optimizer.h"
#include "ait/optim/parameter_groups.h"
#include "optim/partition.h"

namespace ait::inline v0::internal {

/// A state array of one parameter: fp32, row-major.
struct ShapedArray {
  std::string_view name;  // static
  std::vector<std::int64_t> shape;
};

/// One parameter during its update.
struct WholeParameter {
  const ParameterSegment& segment;
  int group;
  float* values;
  const float* gradients;  // as they came: not scaled yet
  std::span<float* const> state;
  std::byte* scratch;  // `WholeParameterRule::ScratchBytes` of it, aligned to 64
  const Executor& executor;
};

/// The arithmetic of an algorithm. Groups are counted from 0; the last is that of parameters in no
/// group.
class WholeParameterRule {
 public:
  virtual ~WholeParameterRule() = default;
  /// The same whenever it is asked.
  virtual std::vector<ShapedArray> StateOf(const ParameterSegment& parameter) const = 0;
  virtual std::size_t ScratchBytes(const ParameterSegment&) const { return 0; }
  /// Computes the factors of every group for step `step` ≥ 1.
  virtual void BeginStep(std::int64_t step, const StepOptions& options) = 0;
  /// Called by several threads, for different parameters.
  virtual void Update(const WholeParameter& parameter) const = 0;
};

/// Binds a rule to a layout, see `Optimizer::Bind`.
StatusOr<std::unique_ptr<BoundOptimizer>> BindWholeParameters(
    const ParameterLayout& layout, const ParameterGroups& groups, BindOptions options,
    std::unique_ptr<WholeParameterRule> rule);

/// Elements of a pass that are one unit of work and of summation: never a function of the threads.
inline constexpr std::int64_t kChunk = 4096;

inline std::int64_t ChunksOf(std::int64_t elements) { return (elements + kChunk - 1) / kChunk; }

/// Calls `body` with each of `count` units, cut over the threads as contiguous runs; each has about
/// `elements` elements.
template <typename Body>
void ForEachUnit(const Executor& executor, std::int64_t count, std::int64_t elements,
                 const Body& body) {
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  };
  const auto parts = static_cast<int>(std::min<std::int64_t>(
      std::min<std::int64_t>(executor.threads, count), count * elements / kLeastPartElements));
  if (parts <= 1) return run(0, count);
  executor.run(parts, [&](int part) { run(count * part / parts, count * (part + 1) / parts); });
}

/// Calls `body(begin, size)` for every chunk of `elements`, cut over the threads.
template <typename Body>
void ForEachChunk(const Executor& executor, std::int64_t elements, const Body& body) {
  ForEachUnit(executor, ChunksOf(elements), kChunk, [&](std::int64_t chunk) {
    const std::int64_t begin = chunk * kChunk;
    body(begin, std::min(kChunk, elements - begin));
  });
}

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_WHOLE_PARAMETER_OPTIMIZER_H_
