// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "ait/base/float16.h"
#include "parallel/agreement_internal.h"
#include "parallel/decision_internal.h"

namespace ait::inline v0::internal {
namespace {

// Words of a line: the squares, then these.
enum Word { kCount = SumOfSquares::kWords, kLoss, kMustAgree, kNotFinite, kRequests, kLineWords };

// Squares of elements that are not fp32: a piece at a time, converted. A piece is whole blocks.
template <typename T>
SumOfSquares SquaresOf(const Buffer& slice) {
  const T* values = static_cast<const T*>(slice.data);
  std::array<float, 32 * SumOfSquares::kBlockElements> piece;
  SumOfSquares sum;
  for (std::int64_t begin = 0; begin < slice.count;) {
    const auto size = std::min<std::int64_t>(piece.size(), slice.count - begin);
    std::transform(values + begin, values + begin + size, piece.begin(),
                   [](T value) { return static_cast<float>(value); });
    sum.Add(ComputeSumOfSquares({piece.data(), static_cast<std::size_t>(size)}));
    begin += size;
  }
  return sum;
}

SumOfSquares SquaresOf(const Buffer& slice, const Executor& executor) {
  switch (slice.dtype) {
    case DType::kFloat64:
      return SquaresOf<double>(slice);
    case DType::kFloat16:
      return SquaresOf<Float16>(slice);
    case DType::kBFloat16:
      return SquaresOf<BFloat16>(slice);
    default:
      return ComputeSumOfSquares(
          {static_cast<const float*>(slice.data), static_cast<std::size_t>(slice.count)}, executor);
  }
}

template <typename T>
void AddTo(NormSum& sum, const Buffer& slice) {
  const T* values = static_cast<const T*>(slice.data);
  std::array<float, 64 * SumOfSquares::kBlockElements> piece;
  for (std::int64_t begin = 0; begin < slice.count;) {
    const auto size = std::min<std::int64_t>(piece.size(), slice.count - begin);
    std::transform(values + begin, values + begin + size, piece.begin(),
                   [](T value) { return static_cast<float>(value); });
    sum.Add({piece.data(), static_cast<std::size_t>(size)});
    begin += size;
  }
}

void AddTo(NormSum& sum, const Buffer& slice, const Executor& executor) {
  switch (slice.dtype) {
    case DType::kFloat64:
      return AddTo<double>(sum, slice);
    case DType::kFloat16:
      return AddTo<Float16>(sum, slice);
    case DType::kBFloat16:
      return AddTo<BFloat16>(sum, slice);
    default:
      return sum.Add({static_cast<const float*>(slice.data), static_cast<std::size_t>(slice.count)},
                     executor);
  }
}

// Calls body(parameter, range) for the elements of each parameter of a bucket that lie in the slice
// of `rank`, counted from its begin.
template <typename Body>
void ForEachOwned(const FlatLayout& layout, int b, Rank rank, const Body& body) {
  const FlatBucket& bucket = layout.buckets()[static_cast<std::size_t>(b)];
  const ElementRange owned = bucket.slice(rank);
  for (const int parameter : bucket.parameters) {
    const FlatSlot& slot = *layout.slot(parameter);
    const ElementRange range = Intersection(owned, {slot.offset, slot.offset + slot.count});
    if (range.size() > 0) body(parameter, {range.begin - owned.begin, range.end - owned.begin});
  }
}

}  // namespace

std::optional<NormPlan> MakeNormPlan(const FlatLayout& layout, const NormOptions& options,
                                     const ParameterGroups& groups) {
  if (options == NormOptions{}) return std::nullopt;
  NormPlan plan{.p = options.p, .is_by_group = options.scope == NormScope::kEachGroup};
  if (plan.is_by_group) plan.norms = static_cast<int>(groups.size()) + 1;
  for (const ParameterInfo& info : layout.parameters()) {
    const auto matches = [&](const std::string& pattern) {
      return MatchesPattern(pattern, info.name);
    };
    const ParameterSegment segment{.name = info.name, .shape = info.sizes};
    plan.norm_of.push_back(std::ranges::any_of(options.not_counted, matches) ? -1
                           : !plan.is_by_group                               ? 0
                                               : GroupOf(groups, segment).value_or(plan.norms - 1));
  }
  return plan;
}

void OwnedNorms::AddSlice(const FlatLayout& layout, int b, const Buffer& slice, Rank rank,
                          const Executor& executor) {
  ForEachOwned(layout, b, rank, [&](int parameter, ElementRange range) {
    const int norm = plan_->norm_of[static_cast<std::size_t>(parameter)];
    if (norm < 0) return;
    AddTo(sums_[static_cast<std::size_t>(norm)], slice.Slice(range.begin, range.size()), executor);
  });
}

void OwnedSquares::AddSlice(const FlatLayout& layout, int b, const Buffer& slice, Rank rank,
                            const Executor& executor, const SumOfSquares* known) {
  const FlatBucket& bucket = layout.buckets()[static_cast<std::size_t>(b)];
  const auto [begin, end] = bucket.slice(rank);
  const SumOfSquares squares = known != nullptr ? *known : SquaresOf(slice, executor);
  sum.Add(squares);
  if (squares.finite() || not_finite >= 0) return;
  for (const int parameter : bucket.parameters) {
    const FlatSlot& slot = *layout.slot(parameter);
    const std::int64_t first = std::max(begin, slot.offset);
    const std::int64_t last = std::min(end, slot.offset + slot.count);
    if (first >= last || SquaresOf(slice.Slice(first - begin, last - first), {}).finite()) continue;
    not_finite = parameter;
    return;
  }
}

void OwnedSquares::Add(const FlatLayout& layout, int b, const Buffer& gradients, Rank rank,
                       const Executor& executor) {
  const auto [begin, end] = layout.buckets()[static_cast<std::size_t>(b)].slice(rank);
  AddSlice(layout, b, gradients.Slice(begin, end - begin), rank, executor);
}

DecisionLine MakeDecisionLine(const StepInput& input, OwnedSquares squares,
                              std::span<const NormSum> norms) {
  const auto words = squares.sum.words();
  DecisionLine line(words.begin(), words.end());
  line.push_back(input.count);
  line.push_back(std::bit_cast<std::int64_t>(input.loss_sum));
  line.push_back(static_cast<std::int64_t>(input.must_agree));
  line.push_back(squares.not_finite);
  line.push_back(static_cast<std::int64_t>(input.requests));
  for (const NormSum& norm : norms) norm.AppendWords(line);
  return line;
}

StatusOr<GradientSummary> Summarize(const FlatLayout& layout, std::span<const std::int64_t> lines,
                                    double loss_scale, const NormPlan* plan) {
  GradientSummary summary;
  SumOfSquares squares;
  std::vector<int> negative;
  std::vector<int> differ;
  std::vector<int> large;  // that alone, on every rank, would be too much
  bool overflows = false;
  int not_finite = -1;
  std::vector<NormSum> norms;
  if (plan != nullptr) norms.assign(static_cast<std::size_t>(plan->norms), NormSum(plan->p));
  const auto norm_words = static_cast<std::size_t>(plan == nullptr ? 0 : NormSum::WordsOf(plan->p));
  const std::size_t words = kLineWords + norms.size() * norm_words;
  const auto ranks = static_cast<int>(lines.size() / words);
  for (int r = 0; r < ranks; ++r) {
    const auto line = lines.subspan(static_cast<std::size_t>(r) * words, words);
    for (int w = 0; w < SumOfSquares::kWords; ++w) {
      squares.words()[static_cast<std::size_t>(w)] += line[static_cast<std::size_t>(w)];
    }
    if (line[kCount] < 0) negative.push_back(r);
    if (line[kMustAgree] != lines[kMustAgree]) differ.push_back(r);
    if (line[kCount] > std::numeric_limits<std::int64_t>::max() / ranks) large.push_back(r);
    overflows = overflows || __builtin_add_overflow(summary.count, line[kCount], &summary.count);
    const auto loss_sum = std::bit_cast<double>(line[kLoss]);
    summary.loss_sum += loss_sum;
    if (!std::isfinite(loss_sum) && summary.loss_not_finite < 0) summary.loss_not_finite = r;
    summary.requests |= static_cast<std::uint64_t>(line[kRequests]);
    // Of several, the one that is registered first.
    const auto bad = static_cast<int>(line[kNotFinite]);
    if (bad >= 0 && (not_finite < 0 || bad < not_finite)) not_finite = bad;
    for (std::size_t n = 0; n < norms.size(); ++n) {
      norms[n].AddWords(line.subspan(kLineWords + n * norm_words, norm_words));
    }
  }
  if (!negative.empty()) {
    return InvalidArgumentError("the count of ", RankList(negative),
                                " is negative; give the number of tokens or samples summed over");
  }
  if (overflows) {
    return InvalidArgumentError("the counts of all ranks add up to more than ",
                                std::numeric_limits<std::int64_t>::max(),
                                large.size() == 1 ? "; that of " : "; those of ", RankList(large),
                                large.size() == 1 ? " is" : " are",
                                " too large; give the number of tokens or samples summed over");
  }
  if (summary.count == 0) {
    return InvalidArgumentError(
        "all ranks together counted 0 tokens or samples in this step; "
        "skip such a step with Discard");
  }
  if (!differ.empty()) {
    return InvalidArgumentError("must_agree of ", RankList(differ),
                                differ.size() == 1 ? " is" : " are",
                                " not the same as on rank 0; give all ranks the same learning rate "
                                "and optimizer options");
  }
  if (!(loss_scale > 0) || std::isinf(loss_scale)) {
    return InvalidArgumentError("loss_scale is ", loss_scale, "; it must be finite and above 0");
  }
  const double scale = 1.0 / (static_cast<double>(summary.count) * loss_scale);
  const GradientNorm norm = GlobalNorm(squares, scale);
  summary.norm = norm.value;
  summary.finite = norm.finite;
  if (plan != nullptr) {
    NormSum all(plan->p);
    for (const NormSum& sum : norms) {
      all.Add(sum);
      if (plan->is_by_group) summary.group_norms.push_back(sum.norm(scale));
    }
    summary.norm = all.norm(scale);
  }
  if (not_finite >= 0) {
    summary.not_finite = layout.parameters()[static_cast<std::size_t>(not_finite)].name;
  }
  return summary;
}

}  // namespace ait::inline v0::internal
