// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "optim/elementwise_optimizer.h"
#include "optim/matrix_product.h"
#include "optim/whole_kernels.h"
#include "optim/whole_parameter_optimizer.h"

namespace ait::inline v0 {
namespace {

using internal::GroupRates;
using internal::WholeKernels;
using internal::WholeParameter;

constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;

// A parameter as a matrix, and as the iteration sees it: `low` is the lesser of its sides.
struct Matrix {
  std::int64_t rows, columns;
  std::int64_t low() const { return std::min(rows, columns); }
  std::int64_t high() const { return std::max(rows, columns); }
  std::int64_t count() const { return rows * columns; }
};

Matrix MatrixOf(const ParameterSegment& parameter) {
  const std::int64_t rows = parameter.shape[0];
  return {rows, parameter.size() / rows};
}

class Rule final : public internal::WholeParameterRule {
 public:
  Rule(MuonOptions options, std::vector<GroupRates> rates, const WholeKernels& kernels)
      : options_(std::move(options)), rates_(std::move(rates)), kernels_(kernels) {}

  std::vector<internal::ShapedArray> StateOf(const ParameterSegment& parameter) const override {
    return {{"momentum_buffer", parameter.shape}};
  }

  std::size_t ScratchBytes(const ParameterSegment& parameter) const override {
    const Matrix m = MatrixOf(parameter);
    return (static_cast<std::size_t>(m.count() + m.low() * m.low()) + ProductFloats(m)) *
           sizeof(float);
  }

  void BeginStep(std::int64_t, const StepOptions& options) override {
    learning_rate_factor_ = options.learning_rate_factor;
    scale_ = static_cast<float>(options.gradient_scale);
  }

  void Update(const WholeParameter& parameter) const override {
    const Matrix m = MatrixOf(parameter.segment);
    float* const x = reinterpret_cast<float*>(parameter.scratch);
    float* const gram = x + m.count();
    MomentumInto(x, parameter, m);
    Orthogonalize(x, gram, gram + m.low() * m.low(), m, parameter.executor);
    const GroupRates& rates = rates_[static_cast<std::size_t>(parameter.group)];
    const double rate = rates.learning_rate * learning_rate_factor_;
    const auto decay = static_cast<float>(1 - rate * rates.weight_decay);
    const auto step = static_cast<float>(-rate * AdjustmentOf(m));
    if (m.rows <= m.columns) {
      internal::ForEachChunk(parameter.executor, m.count(),
                             [&](std::int64_t begin, std::int64_t size) {
                               float* const p = parameter.values + begin;
                               kernels_.combine(p, decay, p, step, x + begin, size);
                             });
    } else {
      internal::ForEachUnit(parameter.executor, m.rows, m.columns, [&](std::int64_t row) {
        float* const p = parameter.values + row * m.columns;
        for (std::int64_t c = 0; c < m.columns; ++c)
          p[c] = decay * p[c] + step * x[c * m.rows + row];
      });
    }
  }

 private:
  static std::size_t ProductFloats(const Matrix& m) {
    using internal::MatrixProduct;
    return std::max({MatrixProduct::ScratchFloats(m.low(), m.high(), m.low()),
                     MatrixProduct::ScratchFloats(m.low(), m.low(), m.high()),
                     MatrixProduct::ScratchFloats(m.low(), m.low(), m.low())});
  }

  double AdjustmentOf(const Matrix& m) const {
    return options_.adjustment == Adjustment::kOriginal
               ? std::sqrt(
                     std::max(1.0, static_cast<double>(m.rows) / static_cast<double>(m.columns)))
               : 0.2 * std::sqrt(static_cast<double>(m.high()));
  }

  // Moves the momentum on and makes x its unit, [low, high].
  void MomentumInto(float* x, const WholeParameter& parameter, const Matrix& m) const {
    float* const buffer = parameter.state[0];
    const auto weight =
        static_cast<float>(options_.momentum_form == Momentum::kNesterov ? options_.momentum : 1.0);
    const auto new_weight = static_cast<float>(1 - options_.momentum);
    std::vector<double> sums(static_cast<std::size_t>(internal::ChunksOf(m.count())));
    internal::ForEachChunk(
        parameter.executor, m.count(), [&](std::int64_t begin, std::int64_t size) {
          kernels_.lerp(buffer + begin, parameter.gradients + begin, scale_, new_weight, size);
          float mixed[internal::kChunk];
          float* const out = m.rows <= m.columns ? x + begin : mixed;
          kernels_.mix(out, parameter.gradients + begin, buffer + begin, scale_, weight, size);
          sums[static_cast<std::size_t>(begin / internal::kChunk)] = kernels_.squares(out, 1, size);
          if (m.rows <= m.columns) return;
          for (std::int64_t i = 0; i < size; ++i)
            x[(begin + i) % m.columns * m.rows + (begin + i) / m.columns] = mixed[i];
        });
    double total = 0;
    for (const double sum : sums) total += sum;
    const auto scale = static_cast<float>(1 / std::max(std::sqrt(total), options_.epsilon));
    internal::ForEachChunk(parameter.executor, m.count(),
                           [&](std::int64_t begin, std::int64_t size) {
                             for (std::int64_t i = begin; i < begin + size; ++i) x[i] *= scale;
                           });
  }

  void Orthogonalize(float* x, float* gram, float* scratch, const Matrix& m,
                     const Executor& executor) const {
    using internal::Symmetry;
    const internal::MatrixProduct product(kernels_, executor);
    for (int step = 0; step < options_.steps; ++step) {
      product.Gram(x, m.low(), m.high(), gram, scratch);
      product.Multiply(gram, gram, m.low(), m.low(), m.low(), kC, kB, Symmetry::kSymmetric, gram,
                       scratch);
      product.Multiply(gram, x, m.low(), m.low(), m.high(), 1, kA, Symmetry::kNone, x, scratch);
    }
  }

  MuonOptions options_;
  std::vector<GroupRates> rates_;
  const WholeKernels& kernels_;
  double learning_rate_factor_ = 1;
  float scale_ = 1;
};

// Two optimizers of one buffer, each of its own parameters. What neither owns is padding.
class MatricesAndRest final : public BoundOptimizer {
 public:
  // A run of the buffer whose parameters are all of one of the two.
  struct Run {
    ElementRange range;
    BoundOptimizer* optimizer;
  };

  MatricesAndRest(std::unique_ptr<BoundOptimizer> matrices, std::unique_ptr<BoundOptimizer> rest,
                  std::vector<ElementRange> owned)
      : matrices_(std::move(matrices)), rest_(std::move(rest)), owned_(std::move(owned)) {}

  void Add(ElementRange range, bool is_matrix) {
    runs_.push_back({range, is_matrix ? matrices_.get() : rest_.get()});
  }

  Status BeginStep(const StepOptions& options) override {
    AIT_RETURN_IF_ERROR(matrices_->BeginStep(options));
    begun_ = true;
    return rest_->BeginStep(options);
  }

  Status Update(const UpdateSlice& slice) override {
    if (!begun_) {
      return FailedPreconditionError(
          "the optimizer is asked to update before a step was begun; call BeginStep");
    }
    if (slice.gradients.count != slice.parameters.count) {
      return InvalidArgumentError("slice at element ", slice.begin, " has ", slice.parameters.count,
                                  " parameters and ", slice.gradients.count, " gradients");
    }
    AIT_RETURN_IF_ERROR(Check(slice));
    return ForEachRun(slice, [](BoundOptimizer& optimizer, const UpdateSlice& part) {
      return optimizer.Update(part);
    });
  }

  Status SetParameters(const UpdateSlice& slice, std::span<const float> values) override {
    AIT_RETURN_IF_ERROR(CheckValues(slice, values.size()));
    return ForEachRun(slice, [&](BoundOptimizer& optimizer, const UpdateSlice& part) {
      return optimizer.SetParameters(part, values.subspan(OffsetOf(slice, part), CountOf(part)));
    });
  }

  Status GetParameters(const UpdateSlice& slice, std::span<float> values) override {
    AIT_RETURN_IF_ERROR(CheckValues(slice, values.size()));
    return ForEachRun(slice, [&](BoundOptimizer& optimizer, const UpdateSlice& part) {
      return optimizer.GetParameters(part, values.subspan(OffsetOf(slice, part), CountOf(part)));
    });
  }

  std::int64_t step() const override { return rest_->step(); }

  Status set_step(std::int64_t step) override {
    AIT_RETURN_IF_ERROR(matrices_->set_step(step));
    begun_ = false;
    return rest_->set_step(step);
  }

  std::vector<StateSlice> State() override {
    std::vector<StateSlice> slices = matrices_->State();
    for (StateSlice& slice : rest_->State()) slices.push_back(slice);
    return slices;
  }

  Status VisitState(StateAccess access,
                    const std::function<Status(const StateSlice&)>& visit) override {
    AIT_RETURN_IF_ERROR(matrices_->VisitState(access, visit));
    return rest_->VisitState(access, visit);
  }

  std::int64_t state_bytes() const override {
    return matrices_->state_bytes() + rest_->state_bytes();
  }
  std::int64_t master_bytes() const override {
    return matrices_->master_bytes() + rest_->master_bytes();
  }

 private:
  static std::size_t CountOf(const UpdateSlice& slice) {
    return static_cast<std::size_t>(slice.parameters.count);
  }
  static std::size_t OffsetOf(const UpdateSlice& slice, const UpdateSlice& part) {
    return static_cast<std::size_t>(part.begin - slice.begin);
  }

  Status Check(const UpdateSlice& slice) const {
    const ElementRange range{slice.begin, slice.begin + slice.parameters.count};
    const bool is_inside =
        range.size() == 0 || std::ranges::any_of(owned_, [&](const ElementRange& owned) {
          return range.begin >= owned.begin && range.end <= owned.end;
        });
    if (is_inside) return OkStatus();
    return InvalidArgumentError("slice [", range.begin, ", ", range.end,
                                ") is not inside one of the ", owned_.size(), " ranges owned");
  }

  Status CheckValues(const UpdateSlice& slice, std::size_t count) const {
    AIT_RETURN_IF_ERROR(Check(slice));
    if (CountOf(slice) == count) return OkStatus();
    return InvalidArgumentError("slice at element ", slice.begin, " has ", slice.parameters.count,
                                " parameters and ", count, " values");
  }

  // Calls body(optimizer, part of the slice) for every run that the slice meets.
  template <typename Body>
  Status ForEachRun(const UpdateSlice& slice, const Body& body) {
    const ElementRange range{slice.begin, slice.begin + slice.parameters.count};
    for (const Run& run : runs_) {
      const ElementRange both = Intersection(run.range, range);
      if (both.size() == 0) continue;
      const std::int64_t offset = both.begin - slice.begin;
      std::vector<void*> copies;
      for (void* const copy : slice.copies) {
        copies.push_back(static_cast<std::byte*>(copy) + offset * SizeOf(slice.parameters.dtype));
      }
      UpdateSlice part{.begin = both.begin,
                       .parameters = slice.parameters.Slice(offset, both.size()),
                       .copies = copies};
      if (slice.gradients.count > 0) part.gradients = slice.gradients.Slice(offset, both.size());
      AIT_RETURN_IF_ERROR(body(*run.optimizer, part));
    }
    return OkStatus();
  }

  std::unique_ptr<BoundOptimizer> matrices_;
  std::unique_ptr<BoundOptimizer> rest_;
  std::vector<ElementRange> owned_;
  std::vector<Run> runs_;
  bool begun_ = false;
};

Status CheckOptions(const MuonOptions& o) {
  using internal::CheckOption;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  AIT_RETURN_IF_ERROR(CheckOption("muon", "learning_rate", o.learning_rate, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption("muon", "weight_decay", o.weight_decay, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption("muon", "momentum", o.momentum, 0, 1));
  AIT_RETURN_IF_ERROR(
      CheckOption("muon", "epsilon", o.epsilon, std::numeric_limits<double>::min(), kInfinity));
  return CheckOption("muon", "steps", o.steps, 1, 100);
}

}  // namespace

Muon::Muon(Options options, ParameterGroups groups)
    : options_(std::move(options)), groups_(std::move(groups)) {}

bool Muon::IsMatrix(const ParameterSegment& parameter) const {
  const std::size_t dimensions = parameter.shape.size();
  if (dimensions < 2 || parameter.size() == 0) return false;
  if (dimensions > 2 && options_.higher_dimensions == HigherDimensions::kAdamW) return false;
  return std::ranges::none_of(options_.adamw_parameters, [&](const std::string& pattern) {
    return MatchesPattern(pattern, parameter.name);
  });
}

StatusOr<std::unique_ptr<BoundOptimizer>> Muon::Bind(const ParameterLayout& layout,
                                                     BindOptions options) const {
  AIT_RETURN_IF_ERROR(Validate(layout));
  AIT_RETURN_IF_ERROR(CheckOptions(options_));
  // Each of the two sees its own parameters, and owns exactly those of them that are owned.
  ParameterLayout matrices, rest;
  std::vector<std::pair<ElementRange, bool>> runs;
  for (const ParameterSegment& parameter : layout.parameters) {
    const bool is_matrix = IsMatrix(parameter);
    ParameterLayout& of = is_matrix ? matrices : rest;
    of.parameters.push_back(parameter);
    for (const ElementRange& range : layout.owned) {
      const ElementRange both = Intersection(parameter.range(), range);
      if (both.size() == 0) continue;
      of.owned.push_back(both);
      runs.emplace_back(both, is_matrix);
    }
  }
  auto rule =
      std::make_unique<Rule>(options_,
                             internal::RatesOf(groups_, {.learning_rate = options_.learning_rate,
                                                         .weight_decay = options_.weight_decay}),
                             internal::WholeKernelsFor(options.max_simd_level));
  AIT_ASSIGN_OR_RETURN(auto bound_matrices,
                       internal::BindWholeParameters(matrices, groups_, options, std::move(rule)));
  AIT_ASSIGN_OR_RETURN(auto bound_rest,
                       AdamW(options_.adamw, groups_).Bind(rest, std::move(options)));
  auto both = std::make_unique<MatricesAndRest>(std::move(bound_matrices), std::move(bound_rest),
                                                layout.owned);
  for (const auto& [range, is_matrix] : runs) both->Add(range, is_matrix);
  return std::unique_ptr<BoundOptimizer>(std::move(both));
}

std::vector<std::string> Muon::state_names() const {
  std::vector<std::string> names = AdamW(options_.adamw).state_names();
  names.insert(names.begin(), "momentum_buffer");
  return names;
}

std::string Muon::Describe() const {
  const Options& o = options_;
  std::string text = StrCat(
      "learning_rate ", o.learning_rate, " weight_decay ", o.weight_decay, " momentum ", o.momentum,
      o.momentum_form == Momentum::kNesterov ? " nesterov" : " classical", " epsilon ", o.epsilon,
      " steps ", o.steps, " adjustment ",
      o.adjustment == Adjustment::kOriginal ? "original" : "match_adamw", " higher_dimensions ",
      o.higher_dimensions == HigherDimensions::kAdamW ? "adamw" : "flattened");
  for (const std::string& pattern : o.adamw_parameters)
    text += StrCat(" adamw_parameters ", pattern.size(), ":", pattern);
  return internal::DescribeOptimizer(*this, StrCat(text, " ", AdamW(o.adamw).Describe()));
}

}  // namespace ait::inline v0
