// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/adafactor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "optim/elementwise_optimizer.h"
#include "optim/whole_kernels.h"
#include "optim/whole_parameter_optimizer.h"

namespace ait::inline v0 {
namespace {

using internal::AdafactorFactors;
using internal::GroupRates;
using internal::WholeKernels;
using internal::WholeParameter;

// A parameter as [outer, rows, middle, columns, inner], in row-major order; rows and columns are
// what is factored. A line is all of it at one (outer, row, middle): columns · inner elements.
struct Factoring {
  std::int64_t outer = 1, rows = 1, middle = 1, columns = 1, inner = 1;
  std::size_t row_dimension = 0, column_dimension = 0;

  std::int64_t line() const { return columns * inner; }
  std::int64_t lines() const { return outer * rows * middle; }
};

std::optional<Factoring> FactoringOf(const AdafactorOptions& options,
                                     const std::vector<std::int64_t>& shape) {
  if (shape.size() < 2) return std::nullopt;
  std::size_t row = shape.size() - 2, column = shape.size() - 1;
  if (options.rule == AdafactorRule::kT5x) {
    // The two largest, the later of equals.
    std::vector<std::size_t> order(shape.size());
    for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
    std::ranges::stable_sort(order, {}, [&](std::size_t d) { return shape[d]; });
    row = std::min(order[order.size() - 2], order.back());
    column = std::max(order[order.size() - 2], order.back());
    if (std::min(shape[row], shape[column]) < options.least_factored) return std::nullopt;
  }
  Factoring f{.rows = shape[row],
              .columns = shape[column],
              .row_dimension = row,
              .column_dimension = column};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d < row) f.outer *= shape[d];
    if (d > row && d < column) f.middle *= shape[d];
    if (d > column) f.inner *= shape[d];
  }
  return f;
}

double SumOf(const std::vector<double>& sums) {
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

class Rule final : public internal::WholeParameterRule {
 public:
  Rule(AdafactorOptions options, std::vector<GroupRates> rates, const WholeKernels& kernels)
      : options_(std::move(options)), rates_(std::move(rates)), kernels_(kernels) {
    is_torch_ = options_.rule == AdafactorRule::kTorch;
    epsilon1_ = options_.epsilon1.value_or(
        is_torch_ ? static_cast<double>(std::numeric_limits<float>::epsilon()) : 1e-30);
  }

  std::vector<internal::ShapedArray> StateOf(const ParameterSegment& parameter) const override {
    std::vector<internal::ShapedArray> arrays;
    if (const auto f = FactoringOf(options_, parameter.shape)) {
      std::vector<std::int64_t> row = parameter.shape, column = parameter.shape;
      row[f->column_dimension] = 1;
      column[f->row_dimension] = 1;
      arrays = {{"row_var", std::move(row)}, {"col_var", std::move(column)}};
    } else {
      arrays = {{"variance", parameter.shape}};
    }
    if (options_.beta1 > 0) arrays.push_back({"exp_avg", parameter.shape});
    return arrays;
  }

  void BeginStep(std::int64_t step, const StepOptions& options) override {
    step_ = static_cast<double>(step);
    learning_rate_factor_ = options.learning_rate_factor;
    scale_ = static_cast<float>(options.gradient_scale);
    weight_ = static_cast<float>(std::pow(step_, options_.beta2_decay));
  }

  void Update(const WholeParameter& parameter) const override {
    const auto factoring = FactoringOf(options_, parameter.segment.shape);
    factoring ? UpdateFactored(parameter, *factoring) : UpdateVector(parameter);
  }

 private:
  // As torch's lerp: exact at both ends.
  float Lerp(float from, double to) const {
    const auto end = static_cast<float>(to);
    return weight_ < 0.5f ? from + weight_ * (end - from) : end - (end - from) * (1 - weight_);
  }

  // With the size of the parameter and of the update: how the step is taken.
  AdafactorFactors FactorsOf(const WholeParameter& parameter, double squares,
                             double update_squares) const {
    const GroupRates& rates = rates_[static_cast<std::size_t>(parameter.group)];
    const double rate = rates.learning_rate * learning_rate_factor_;
    const auto count = static_cast<double>(parameter.segment.size());
    const double size = std::max(options_.epsilon2, std::sqrt(squares / count));
    double alpha = rate;
    if (is_torch_) {
      alpha = size * std::min(rate, 1 / std::sqrt(step_));
    } else if (options_.step == StepSize::kRelative) {
      alpha = size * rate;
    }
    const double clip =
        std::max(1.0, std::sqrt(update_squares / count) / options_.clipping_threshold);
    AdafactorFactors factors = UnitFactors();
    factors.decay = static_cast<float>(1 - rate * rates.weight_decay);
    factors.step = static_cast<float>(alpha / clip);
    return factors;
  }

  AdafactorFactors UnitFactors() const {
    return {.gradient_scale = scale_,
            .floor = is_torch_ ? static_cast<float>(epsilon1_ * epsilon1_) : 0.0f,
            .decay = 1,
            .step = 1,
            .beta1 = static_cast<float>(options_.beta1),
            .one_minus_beta1 = static_cast<float>(1 - options_.beta1)};
  }

  double SquaresOfParameters(const WholeParameter& parameter) const {
    const std::int64_t count = parameter.segment.size();
    std::vector<double> sums(static_cast<std::size_t>(internal::ChunksOf(count)));
    internal::ForEachChunk(parameter.executor, count, [&](std::int64_t begin, std::int64_t size) {
      sums[static_cast<std::size_t>(begin / internal::kChunk)] =
          kernels_.squares(parameter.values + begin, 1, size);
    });
    return SumOf(sums);
  }

  void UpdateVector(const WholeParameter& parameter) const {
    const std::int64_t count = parameter.segment.size();
    float* const variance = parameter.state[0];
    float* const momentum = options_.beta1 > 0 ? parameter.state[1] : nullptr;
    const AdafactorFactors unit = UnitFactors();
    const double squares = SquaresOfParameters(parameter);
    std::vector<double> sums(static_cast<std::size_t>(internal::ChunksOf(count)));
    internal::ForEachChunk(parameter.executor, count, [&](std::int64_t begin, std::int64_t size) {
      kernels_.variance(parameter.gradients + begin, scale_,
                        is_torch_ ? 0.0f : static_cast<float>(epsilon1_), variance + begin, size,
                        weight_);
      sums[static_cast<std::size_t>(begin / internal::kChunk)] =
          kernels_.update_squares(parameter.gradients + begin, 1, variance + begin, 1, size, unit);
    });
    const AdafactorFactors factors = FactorsOf(parameter, squares, SumOf(sums));
    internal::ForEachChunk(parameter.executor, count, [&](std::int64_t begin, std::int64_t size) {
      kernels_.update_apply(parameter.values + begin, parameter.gradients + begin, 1,
                            variance + begin, 1, momentum == nullptr ? nullptr : momentum + begin,
                            size, factors);
    });
  }

  // Moves row_var and col_var on by the squares of the gradients.
  void UpdateMoments(const WholeParameter& parameter, const Factoring& f) const {
    const std::int64_t count = f.outer * f.middle, size = f.rows * f.line();
    // The rows of a large matrix are cut into so many pieces, each of which sums the columns for
    // itself; small matrices are taken many at a time. Both are functions of the shape.
    if (size >= kPieces * internal::kChunk) {
      const std::int64_t pieces = std::min<std::int64_t>(f.rows, kPieces);
      for (std::int64_t o = 0; o < count; ++o) {
        std::vector<double> columns(static_cast<std::size_t>(pieces * f.line()), 0.0);
        internal::ForEachUnit(parameter.executor, pieces, size / pieces, [&](std::int64_t piece) {
          AddRows(parameter, f, o, {f.rows * piece / pieces, f.rows * (piece + 1) / pieces},
                  columns.data() + piece * f.line());
        });
        UpdateColumns(parameter, f, o, columns, pieces);
      }
      return;
    }
    const std::int64_t at_a_time = internal::kChunk / std::max<std::int64_t>(size, 1) + 1;
    internal::ForEachUnit(parameter.executor, (count + at_a_time - 1) / at_a_time, at_a_time * size,
                          [&](std::int64_t unit) {
                            std::vector<double> columns(static_cast<std::size_t>(f.line()));
                            for (std::int64_t o = unit * at_a_time;
                                 o < std::min((unit + 1) * at_a_time, count); ++o) {
                              std::ranges::fill(columns, 0.0);
                              AddRows(parameter, f, o, {0, f.rows}, columns.data());
                              UpdateColumns(parameter, f, o, columns, 1);
                            }
                          });
  }

  // Adds some rows of matrix o to the sums of its columns, and moves their row_var on.
  void AddRows(const WholeParameter& parameter, const Factoring& f, std::int64_t o,
               ElementRange rows, double* sums) const {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::int64_t place = (o / f.middle * f.rows + row) * f.middle + o % f.middle;
      AddLine(parameter.gradients + place * f.line(), f, is_torch_ ? 0 : epsilon1_, sums,
              parameter.state[0] + place * f.inner);
    }
  }

  // Moves the col_var of matrix o on by the sums of so many pieces.
  void UpdateColumns(const WholeParameter& parameter, const Factoring& f, std::int64_t o,
                     const std::vector<double>& columns, std::int64_t pieces) const {
    float* const of_columns = parameter.state[1] + o * f.line();
    for (std::int64_t j = 0; j < f.line(); ++j) {
      double sum = 0;
      for (std::int64_t piece = 0; piece < pieces; ++piece)
        sum += columns[static_cast<std::size_t>(piece * f.line() + j)];
      of_columns[j] = Lerp(of_columns[j], MeanOf(sum, f.rows));
    }
  }

  // Adds the squares of a line to the sums of the columns, and moves its row_var on.
  void AddLine(const float* gradients, const Factoring& f, double added, double* sums,
               float* row_var) const {
    if (f.inner == 1) {
      const double sum = kernels_.line_squares(gradients, scale_, added, f.columns, sums);
      *row_var = Lerp(*row_var, MeanOf(sum, f.columns));
      return;
    }
    std::vector<double> rows(static_cast<std::size_t>(f.inner), 0.0);
    for (std::int64_t column = 0; column < f.columns; ++column) {
      for (std::int64_t i = 0; i < f.inner; ++i) {
        const std::int64_t j = column * f.inner + i;
        const auto value = static_cast<double>(gradients[j] * scale_);
        const double square = value * value + added;
        sums[j] += square;
        rows[static_cast<std::size_t>(i)] += square;
      }
    }
    for (std::int64_t i = 0; i < f.inner; ++i)
      row_var[i] = Lerp(row_var[i], MeanOf(rows[static_cast<std::size_t>(i)], f.columns));
  }

  // Calls body(place of the line, i, row, columns of the line, mean) for each line and each
  // i < inner: v̂ is row · columns[j · inner + i] / mean for element j · inner + i of the line.
  template <typename Body>
  void ForEachRow(const WholeParameter& parameter, const Factoring& f, const Body& body) const {
    const float* const row_var = parameter.state[0];
    const float* const col_var = parameter.state[1];
    const std::vector<double> means = RowMeans(row_var, f);
    internal::ForEachUnit(parameter.executor, f.lines(), f.line(), [&](std::int64_t place) {
      const std::int64_t middle = place % f.middle;
      const std::int64_t outer = place / f.middle / f.rows;
      const float* const columns = col_var + (outer * f.middle + middle) * f.line();
      const double* const mean = means.data() + (outer * f.middle + middle) * f.inner;
      for (std::int64_t i = 0; i < f.inner; ++i) {
        // T5X divides the row first, so that the product of two ε₁ does not become 0.
        const float row = row_var[place * f.inner + i];
        is_torch_ ? body(place, i, row, columns, static_cast<float>(mean[i]))
                  : body(place, i, static_cast<float>(row / mean[i]), columns, 1.0f);
      }
    });
  }

  // The mean of squares from their sum; the torch rule rounds as torch does, by way of the norm.
  double MeanOf(double sum, std::int64_t count) const {
    if (!is_torch_) return sum / static_cast<double>(count);
    const auto norm = static_cast<float>(std::sqrt(sum));
    return static_cast<double>(norm * norm / static_cast<float>(count));
  }

  // Means of row_var over the rows, for each (outer, middle, inner).
  std::vector<double> RowMeans(const float* row_var, const Factoring& f) const {
    std::vector<double> means(static_cast<std::size_t>(f.outer * f.middle * f.inner), 0.0);
    for (std::int64_t outer = 0; outer < f.outer; ++outer) {
      double* const of_outer = means.data() + outer * f.middle * f.inner;
      for (std::int64_t row = 0; row < f.rows; ++row) {
        const float* const of_row = row_var + (outer * f.rows + row) * f.middle * f.inner;
        for (std::int64_t i = 0; i < f.middle * f.inner; ++i)
          of_outer[i] += static_cast<double>(of_row[i]);
      }
    }
    for (double& mean : means) {
      mean /= static_cast<double>(f.rows);
      if (is_torch_) mean = std::max(mean, epsilon1_);
    }
    return means;
  }

  void UpdateFactored(const WholeParameter& parameter, const Factoring& f) const {
    float* const momentum = options_.beta1 > 0 ? parameter.state[2] : nullptr;
    const double squares = SquaresOfParameters(parameter);
    UpdateMoments(parameter, f);
    const AdafactorFactors unit = UnitFactors();
    const std::int64_t run = f.inner == 1 ? f.columns : 1;  // elements of a row side by side
    const std::int64_t runs = f.inner == 1 ? 1 : f.columns;
    std::vector<double> sums(static_cast<std::size_t>(f.lines()), 0.0);
    ForEachRow(parameter, f,
               [&](std::int64_t place, std::int64_t i, float row, const float* cols, float mean) {
                 for (std::int64_t j = 0; j < runs; ++j) {
                   const std::int64_t at = j * f.inner + i;
                   sums[static_cast<std::size_t>(place)] +=
                       kernels_.update_squares(parameter.gradients + place * f.line() + at, row,
                                               cols + at, mean, run, unit);
                 }
               });
    const AdafactorFactors factors = FactorsOf(parameter, squares, SumOf(sums));
    ForEachRow(parameter, f,
               [&](std::int64_t place, std::int64_t i, float row, const float* cols, float mean) {
                 for (std::int64_t j = 0; j < runs; ++j) {
                   const std::int64_t at = j * f.inner + i;
                   const std::int64_t element = place * f.line() + at;
                   kernels_.update_apply(
                       parameter.values + element, parameter.gradients + element, row, cols + at,
                       mean, momentum == nullptr ? nullptr : momentum + element, run, factors);
                 }
               });
  }

  static constexpr std::int64_t kPieces = 16;

  AdafactorOptions options_;
  std::vector<GroupRates> rates_;
  const WholeKernels& kernels_;
  bool is_torch_ = true;
  double epsilon1_ = 0;
  double step_ = 0;
  double learning_rate_factor_ = 1;
  float weight_ = 1;  // of the new square: t^beta2_decay
  float scale_ = 1;
};

Status CheckForRule(const AdafactorOptions& o) {
  if (o.rule == AdafactorRule::kT5x) return OkStatus();
  if (o.beta1 != 0 || o.step != StepSize::kRelative) {
    return InvalidArgumentError("adafactor: beta1 is ", o.beta1, " and step is ",
                                o.step == StepSize::kRelative ? "relative" : "absolute",
                                "; momentum and absolute steps are of AdafactorRule::kT5x");
  }
  if (o.clipping_threshold < 1) {
    return InvalidArgumentError("adafactor: clipping_threshold is ", o.clipping_threshold,
                                "; it must be at least 1 with AdafactorRule::kTorch");
  }
  return OkStatus();
}

}  // namespace

Adafactor::Adafactor(Options options, ParameterGroups groups)
    : options_(options), groups_(std::move(groups)) {}

StatusOr<std::unique_ptr<BoundOptimizer>> Adafactor::Bind(const ParameterLayout& layout,
                                                          BindOptions options) const {
  using internal::CheckOption;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Options& o = options_;
  AIT_RETURN_IF_ERROR(CheckOption(name(), "learning_rate", o.learning_rate, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "-beta2_decay", -o.beta2_decay, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "epsilon1", o.epsilon1.value_or(0), 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "epsilon2", o.epsilon2, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "clipping_threshold", o.clipping_threshold,
                                  std::numeric_limits<double>::min(), kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "weight_decay", o.weight_decay, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "beta1", o.beta1, 0, 1));
  AIT_RETURN_IF_ERROR(
      CheckOption(name(), "least_factored", static_cast<double>(o.least_factored), 1, kInfinity));
  AIT_RETURN_IF_ERROR(CheckForRule(o));
  auto rule = std::make_unique<Rule>(o,
                                     internal::RatesOf(groups_, {.learning_rate = o.learning_rate,
                                                                 .weight_decay = o.weight_decay}),
                                     internal::WholeKernelsFor(options.max_simd_level));
  return internal::BindWholeParameters(layout, groups_, std::move(options), std::move(rule));
}

std::vector<std::string> Adafactor::state_names() const {
  std::vector<std::string> names = {"row_var", "col_var", "variance"};
  if (options_.beta1 > 0) names.emplace_back("exp_avg");
  return names;
}

std::string Adafactor::Describe() const {
  const Options& o = options_;
  return internal::DescribeOptimizer(
      *this, StrCat(o.rule == AdafactorRule::kTorch ? "torch" : "t5x", " learning_rate ",
                    o.learning_rate, " beta2_decay ", o.beta2_decay, " epsilon1 ",
                    o.epsilon1 ? StrCat(*o.epsilon1) : std::string("default"), " epsilon2 ",
                    o.epsilon2, " clipping_threshold ", o.clipping_threshold, " weight_decay ",
                    o.weight_decay, " beta1 ", o.beta1, " least_factored ", o.least_factored,
                    " step ", o.step == StepSize::kRelative ? "relative" : "absolute"));
}

}  // namespace ait::inline v0
