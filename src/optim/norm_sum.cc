// SPDX-License-Identifier: Apache-2.0
// Norms other than L2, and the words that carry any of them from rank to rank.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "ait/base/types.h"
#include "ait/optim/norm.h"

namespace ait::inline v0 {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kBlock = SumOfSquares::kBlockElements;
constexpr std::int64_t kChunk = 64 * kBlock;
constexpr int kLanes = 8;

// Up to this p the powers of all floats, their sums and roots are in the range of double; above it
// magnitudes are divided by the largest one first.
constexpr double kLargestPlainP = 4;

// What one chunk gives: the sum of (|x| / scale)^p.
struct Partial {
  double scale = 1;
  double sum = 0;
  double error = 0;
  bool finite = true;
};

// sum + term, and what rounding takes off it (Knuth, The Art of Computer Programming 2, 4.2.2).
void TwoSum(double& sum, double& error, double term) {
  const double total = sum + term;
  const double part = total - sum;
  // An infinite sum has no error, and infinity − infinity must not become one.
  if (std::isfinite(total)) error += (sum - (total - part)) + (term - part);
  sum = total;
}

template <typename Power>
double SumOfBlock(const float* x, std::int64_t n, const Power& power) {
  std::array<double, kLanes> lanes{};
  for (std::int64_t i = 0; i < n; ++i) {
    lanes[static_cast<std::size_t>(i % kLanes)] += power(std::abs(static_cast<double>(x[i])));
  }
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

double PowersOfBlock(const float* x, std::int64_t n, double p, double scale) {
  if (p == 1) return SumOfBlock(x, n, [](double a) { return a; });
  if (p == 3) return SumOfBlock(x, n, [](double a) { return a * a * a; });
  if (p == 4) return SumOfBlock(x, n, [](double a) { return (a * a) * (a * a); });
  return SumOfBlock(x, n, [p, scale](double a) { return std::pow(a / scale, p); });
}

Partial OfChunk(std::span<const float> values, double p) {
  Partial partial;
  float largest = 0;
  for (const float value : values) {
    const float magnitude = std::abs(value);
    partial.finite &= magnitude <= std::numeric_limits<float>::max();  // false for NaN
    largest = std::max(largest, magnitude);
  }
  if (p == kInfinity) {
    partial.sum = largest;
    return partial;
  }
  if (!partial.finite || largest == 0) return partial;
  if (p > kLargestPlainP) partial.scale = largest;
  const auto size = static_cast<std::int64_t>(values.size());
  for (std::int64_t i = 0; i < size; i += kBlock) {
    TwoSum(partial.sum, partial.error,
           PowersOfBlock(values.data() + i, std::min(kBlock, size - i), p, partial.scale));
  }
  return partial;
}

}  // namespace

Status NormOptions::Validate() const {
  if (p >= 1) return OkStatus();
  return InvalidArgumentError("norm: p is ", p, "; it must be at least 1, or infinity");
}

void NormSum::AddTerm(double scale, double sum, double error) {
  if (p_ == kInfinity) {
    sum_ = std::max(sum_, sum);
    return;
  }
  if (sum == 0) return;
  if (sum_ == 0) scale_ = scale;
  if (scale > scale_) {
    const double factor = std::pow(scale_ / scale, p_);
    scale_ = scale;
    sum_ *= factor;
    sum_error_ *= factor;
  } else if (scale < scale_) {
    const double factor = std::pow(scale / scale_, p_);
    sum *= factor;
    error *= factor;
  }
  TwoSum(sum_, sum_error_, sum);
  sum_error_ += error;
}

void NormSum::Add(std::span<const float> values, const Executor& executor,
                  SimdLevel max_simd_level) {
  if (p_ == 2) return squares_.Add(ComputeSumOfSquares(values, executor, max_simd_level));
  const auto size = static_cast<std::int64_t>(values.size());
  const std::int64_t chunks = (size + kChunk - 1) / kChunk;
  std::vector<Partial> partials(static_cast<std::size_t>(chunks));
  const auto parts = static_cast<int>(std::min<std::int64_t>(executor.threads, chunks));
  const auto run = [&](int part) {
    for (std::int64_t c = chunks * part / parts; c < chunks * (part + 1) / parts; ++c) {
      partials[static_cast<std::size_t>(c)] =
          OfChunk(values.subspan(static_cast<std::size_t>(c * kChunk),
                                 static_cast<std::size_t>(std::min(kChunk, size - c * kChunk))),
                  p_);
    }
  };
  if (parts > 1) {
    executor.run(parts, run);
  } else if (parts == 1) {
    run(0);
  }
  for (const Partial& partial : partials) {
    AddTerm(partial.scale, partial.sum, partial.error);
    finite_ = finite_ && partial.finite;
  }
}

void NormSum::Add(const NormSum& other) {
  squares_.Add(other.squares_);
  AddTerm(other.scale_, other.sum_, other.sum_error_);
  finite_ = finite_ && other.finite_;
}

double NormSum::norm(double scale) const {
  if (!finite()) return kInfinity;
  if (p_ == 2) return GlobalNorm(squares_, scale).value;
  const double sum = sum_ + sum_error_;
  const double root = p_ == kInfinity || p_ == 1 ? sum : std::pow(sum, 1 / p_);
  return std::abs(scale) * (scale_ * root);
}

int NormSum::WordsOf(double p) { return p == 2 ? SumOfSquares::kWords : 4; }

void NormSum::AppendWords(std::vector<std::int64_t>& words) const {
  if (p_ == 2) {
    SumOfSquares squares = squares_;
    const auto own = squares.words();
    words.insert(words.end(), own.begin(), own.end());
    return;
  }
  words.push_back(std::bit_cast<std::int64_t>(scale_));
  words.push_back(std::bit_cast<std::int64_t>(sum_));
  words.push_back(std::bit_cast<std::int64_t>(sum_error_));
  words.push_back(finite_ ? 1 : 0);
}

void NormSum::AddWords(std::span<const std::int64_t> words) {
  if (p_ == 2) {
    SumOfSquares other;
    std::ranges::copy(words.first(SumOfSquares::kWords), other.words().begin());
    return squares_.Add(other);
  }
  AddTerm(std::bit_cast<double>(words[0]), std::bit_cast<double>(words[1]),
          std::bit_cast<double>(words[2]));
  finite_ = finite_ && words[3] != 0;
}

}  // namespace ait::inline v0
