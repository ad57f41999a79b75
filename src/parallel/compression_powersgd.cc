// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "parallel/compression_kernels_internal.h"
#include "parallel/compression_packed_internal.h"
#include "parallel/hash_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

// A standard normal number that is a function of its arguments (Box and Muller).
float Normal(std::uint64_t seed, std::uint64_t index) {
  const auto uniform = [&](std::uint64_t which) {
    const std::uint64_t bits = Hash64().Add(seed).Add(2 * index + which).value();
    return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
  };
  return static_cast<float>(std::sqrt(-2 * std::log(uniform(0))) *
                            std::cos(2 * std::numbers::pi * uniform(1)));
}

// Factors are stored as vectors, one after the other: P as `rank` vectors of `rows`, Q as `rank`
// vectors of `columns`.
struct Matrix {
  int parameter = 0;
  std::size_t in_packed = 0;
  std::size_t rows = 0, columns = 0, rank = 0;
  std::size_t in_p = 0, in_q = 0;  // places in the factors of the bucket

  std::span<float> Row(std::span<float> packed, std::size_t row) const {
    return packed.subspan(in_packed + row * columns, columns);
  }
  std::span<float> P(std::span<float> all) const { return all.subspan(in_p, rank * rows); }
  std::span<float> Q(std::span<float> all) const { return all.subspan(in_q, rank * columns); }
};

// The factors of all matrices of a bucket.
struct Factors {
  std::vector<Matrix> matrices;
  std::vector<float> p, q;
  std::vector<float> next_q;  // if the step counts
  bool reduced = false;       // in the step that is not over
};

class PowerSgd final : public PackedCompression {
 public:
  explicit PowerSgd(PowerSgdCompressionOptions options)
      : PackedCompression("powersgd", options.scope, options.error_feedback, 16),
        options_(std::move(options)) {}

 private:
  static constexpr int kMaxRank = 64;

  Status CheckOptions() const override {
    if (options_.rank < 1 || options_.rank > kMaxRank) {
      return InvalidArgumentError("compression by powersgd: a rank of ", options_.rank,
                                  " is not from 1 to ", kMaxRank);
    }
    if (!(options_.min_ratio >= 1)) {
      return InvalidArgumentError("compression by powersgd: min_ratio is ", options_.min_ratio,
                                  "; give 1 or more");
    }
    if (options_.start_step < 0) {
      return InvalidArgumentError("compression by powersgd: start_step is ", options_.start_step,
                                  "; give 0 or more");
    }
    return OkStatus();
  }
  std::string OptionsText() const override {
    return StrCat("rank ", options_.rank, ", start_step ", options_.start_step, ", min_ratio ",
                  options_.min_ratio, ", seed ", options_.seed,
                  has_feedback() ? ", error feedback" : "");
  }

  // In the order of memory: rows are the outermost dimension there.
  Matrix Shape(const ParameterInfo& info) const {
    Matrix matrix;
    const std::int64_t count = info.count();
    if (info.sizes.size() < 2 || count == 0) return matrix;
    std::size_t outermost = 0;
    for (std::size_t d = 1; d < info.sizes.size(); ++d) {
      const bool is_outer = info.sizes[d] > 1 && (info.sizes[outermost] == 1 ||
                                                  info.strides[d] > info.strides[outermost]);
      if (is_outer) outermost = d;
    }
    matrix.rows = static_cast<std::size_t>(info.sizes[outermost]);
    matrix.columns = static_cast<std::size_t>(count) / matrix.rows;
    matrix.rank = std::min({static_cast<std::size_t>(options_.rank), matrix.rows, matrix.columns});
    return matrix;
  }
  bool Fits(const ParameterInfo& info) const override {
    const Matrix matrix = Shape(info);
    return matrix.rank > 0 && static_cast<double>(info.count()) >=
                                  options_.min_ratio * static_cast<double>(matrix.rank) *
                                      static_cast<double>(matrix.rows + matrix.columns);
  }

  Status BindMethod() override {
    factors_.clear();
    for (const PackedBucket& bucket : buckets()) {
      Factors& factors = factors_.emplace_back();
      std::size_t p = 0;
      std::size_t q = 0;
      for (const PackedSegment& segment : bucket.compressed) {
        Matrix matrix = Shape(info(segment.parameter));
        matrix.parameter = segment.parameter;
        matrix.in_packed = static_cast<std::size_t>(segment.in_packed);
        matrix.in_p = p;
        matrix.in_q = q;
        p += matrix.rank * matrix.rows;
        q += matrix.rank * matrix.columns;
        factors.matrices.push_back(matrix);
      }
      factors.p.assign(p, 0.0f);
      factors.q.assign(q, 0.0f);  // a vector of zeros is drawn when it is used
      factors.next_q.assign(q, 0.0f);
    }
    return OkStatus();
  }

  bool IsExactNow(const PackedBucket&) const override { return step() < options_.start_step; }

  Status Exchange(std::size_t bucket, std::span<float> values, std::span<float> error,
                  Wire& wire) override {
    Factors& factors = factors_[bucket];
    for (const Matrix& matrix : factors.matrices) {
      const std::span<float> q = matrix.Q(factors.next_q);
      std::ranges::copy(matrix.Q(factors.q), q.begin());
      Draw(matrix, q);
      Orthonormalise(q, matrix.columns);
      const std::span<float> p = matrix.P(factors.p);
      for (std::size_t row = 0; row < matrix.rows; ++row) {
        compression::DotMany(matrix.Row(values, row), q, {dots_.data(), matrix.rank});
        for (std::size_t k = 0; k < matrix.rank; ++k) {
          p[k * matrix.rows + row] = static_cast<float>(dots_[k]);
        }
      }
    }
    AIT_RETURN_IF_ERROR(wire.AllReduceSum(View(factors.p)).Wait());
    for (const Matrix& matrix : factors.matrices) {
      const std::span<float> p = matrix.P(factors.p);
      Orthonormalise(p, matrix.rows);
      const std::span<float> q = matrix.Q(factors.next_q);  // this rank's part, then the sum
      std::ranges::fill(q, 0.0f);
      for (std::size_t row = 0; row < matrix.rows; ++row) {
        compression::AddScaledToMany(q, Column(matrix, p, row, 1), matrix.Row(values, row));
      }
    }
    if (has_feedback()) {
      std::ranges::copy(values, error.begin());
      for (const Matrix& matrix : factors.matrices) {
        AddProduct(matrix, factors.p, factors.next_q, -1, error);
      }
    } else {  // P is orthonormal, so |M - P·Qᵀ|² = |M|² - |Q|²
      const double rest = compression::Squares(values) - compression::Squares(factors.next_q);
      wire.counters().error_squares += std::max(0.0, rest);
    }
    const Work sum = wire.AllReduceSum(View(factors.next_q));
    std::ranges::fill(values, 0.0f);
    AIT_RETURN_IF_ERROR(sum.Wait());
    for (const Matrix& matrix : factors.matrices) {
      AddProduct(matrix, factors.p, factors.next_q, 1, values);
    }
    factors.reduced = true;
    return OkStatus();
  }

  // Draws the vectors that are zero or not finite: at first, and where a gradient had fewer
  // independent columns than the rank. The same on all ranks.
  void Draw(const Matrix& matrix, std::span<float> q) const {
    for (std::size_t k = 0; k < matrix.rank; ++k) {
      const std::span<float> vector = q.subspan(k * matrix.columns, matrix.columns);
      const float largest = compression::LargestMagnitude(vector);
      if (largest > 0 && std::isfinite(largest)) continue;
      const std::uint64_t seed = Hash64()
                                     .Add(options_.seed)
                                     .Add(info(matrix.parameter).name)
                                     .Add(static_cast<std::uint64_t>(step()))
                                     .Add(k)
                                     .value();
      for (std::size_t i = 0; i < vector.size(); ++i) vector[i] = Normal(seed, i);
    }
  }

  static void Orthonormalise(std::span<float> vectors, std::size_t length) {
    compression::Orthonormalise(vectors, static_cast<std::int64_t>(length));
  }

  // Element `row` of the vectors of P, times `sign`; valid until the next call.
  std::span<const float> Column(const Matrix& matrix, std::span<const float> p, std::size_t row,
                                float sign) {
    for (std::size_t k = 0; k < matrix.rank; ++k) column_[k] = sign * p[k * matrix.rows + row];
    return {column_.data(), matrix.rank};
  }

  // to += sign · P·Qᵀ
  void AddProduct(const Matrix& matrix, std::span<float> all_p, std::span<float> all_q, float sign,
                  std::span<float> to) {
    const std::span<const float> p = matrix.P(all_p);
    for (std::size_t row = 0; row < matrix.rows; ++row) {
      compression::AddManyScaled(matrix.Row(to, row), Column(matrix, p, row, sign),
                                 matrix.Q(all_q));
    }
  }

  void EndMethodStep(StepEnd end) override {
    for (Factors& factors : factors_) {
      if (std::exchange(factors.reduced, false) && end == StepEnd::kUpdated) {
        factors.q.swap(factors.next_q);
      }
    }
  }

  void SaveShared(std::vector<CompressionEntry>& entries) const override {
    if (step() <= options_.start_step) return;  // drawn, not learned
    for (const Factors& factors : factors_) {
      for (const Matrix& matrix : factors.matrices) {
        const auto begin = factors.q.begin() + static_cast<std::ptrdiff_t>(matrix.in_q);
        const auto count = static_cast<std::ptrdiff_t>(matrix.rank * matrix.columns);
        entries.push_back({info(matrix.parameter).name, "factor", {begin, begin + count}});
      }
    }
  }

  bool LoadShared(const CompressionEntry& entry) override {
    for (Factors& factors : factors_) {
      for (const Matrix& matrix : factors.matrices) {
        if (info(matrix.parameter).name != entry.parameter) continue;
        const std::span<float> q = matrix.Q(factors.q);
        if (q.size() != entry.values.size()) return false;
        std::ranges::copy(entry.values, q.begin());
        return true;
      }
    }
    return false;
  }

  std::uint64_t SharedHash() const override {
    Hash64 hash;
    for (const Factors& factors : factors_) {
      hash.Add(HashBytes(factors.q.data(), factors.q.size() * sizeof(float)));
    }
    return hash.value();
  }

  PowerSgdCompressionOptions options_;
  std::vector<Factors> factors_;
  std::array<double, kMaxRank> dots_{};
  std::array<float, kMaxRank> column_{};
};

}  // namespace
}  // namespace internal

std::shared_ptr<GradientCompression> PowerSgdCompression(PowerSgdCompressionOptions options) {
  return std::make_shared<internal::PowerSgd>(std::move(options));
}

}  // namespace ait::inline v0
