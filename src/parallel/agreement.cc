// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <string_view>

#include "parallel/agreement_internal.h"
#include "parallel/hash_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kDifferencesShown = 3;

// The texts of all ranks. A text is a list of facts, each ended by a zero byte.
StatusOr<std::vector<Facts>> GatherFacts(Communicator& communicator, const Facts& facts,
                                         std::span<const std::int64_t> counts,
                                         OperationOptions options) {
  std::string mine;
  for (const std::string& fact : facts) mine.append(fact).push_back('\0');
  std::string all(static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0L)),
                  '\0');
  options.label = "texts of the start-up check";
  AIT_RETURN_IF_ERROR(
      communicator
          .AllGather({mine.data(), static_cast<std::int64_t>(mine.size()), DType::kUInt8},
                     {all.data(), static_cast<std::int64_t>(all.size()), DType::kUInt8}, counts,
                     options)
          .Wait());
  std::vector<Facts> of_rank;
  std::string_view rest = all;
  for (const std::int64_t count : counts) {
    std::string_view text = rest.substr(0, static_cast<std::size_t>(count));
    rest.remove_prefix(text.size());
    Facts& list = of_rank.emplace_back();
    while (!text.empty()) {
      const std::size_t end = text.find('\0');
      list.emplace_back(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
  }
  return of_rank;
}

std::string At(const Facts& facts, std::size_t i) {
  return i < facts.size() ? facts[i] : std::string("nothing");
}

Status Explain(const std::vector<Facts>& of_rank) {
  std::size_t longest = 0;
  for (const Facts& facts : of_rank) longest = std::max(longest, facts.size());
  std::string text;
  std::size_t differences = 0;
  for (std::size_t i = 0; i < longest; ++i) {
    std::map<std::string, std::vector<int>> others;
    for (std::size_t r = 1; r < of_rank.size(); ++r) {
      if (At(of_rank[r], i) != At(of_rank[0], i)) {
        others[At(of_rank[r], i)].push_back(static_cast<int>(r));
      }
    }
    if (others.empty() || ++differences > kDifferencesShown) continue;
    text += StrCat(text.empty() ? "" : "; ", "rank 0 has ", At(of_rank[0], i));
    for (const auto& [fact, ranks] : others) {
      text += StrCat(", ", RankList(ranks), ranks.size() == 1 ? " has " : " have ", fact);
    }
  }
  if (differences == 0) return InternalError("the ranks have different layouts of the same model");
  if (differences > kDifferencesShown) {
    text += StrCat("; and ", differences - kDifferencesShown, " more differences");
  }
  return InvalidArgumentError("the ranks do not have the same model and options: ", text,
                              "; build the same model with the same options on every rank");
}

}  // namespace

Facts FactsOf(const std::vector<ParameterInfo>& parameters) {
  Facts facts;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ParameterInfo info = parameters[i];
    info.device = info.device.substr(0, info.device.find(':'));  // cuda:0 here is cuda:1 there
    facts.push_back(StrCat("parameter ", info.name, ": ", Describe(info)));
  }
  return facts;
}

std::string RankList(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += StrCat(i == 0 ? "" : ", ", ranks[i]);
  return text;
}

Status CheckAgreement(Communicator& communicator, const Status& local, const Facts& facts,
                      std::uint64_t layout_hash, const OperationOptions& options) {
  if (communicator.size().value() == 1) return local;
  const Facts sent = local.ok() ? facts : Facts{Message(local)};
  Hash64 hash;
  hash.Add(layout_hash).Add(static_cast<std::uint64_t>(local.code()));
  std::int64_t bytes = 0;
  for (const std::string& fact : sent) {
    hash.Add(fact);
    bytes += static_cast<std::int64_t>(fact.size()) + 1;
  }
  // One line a rank: fingerprint, status code, bytes of text.
  const auto ranks = static_cast<std::size_t>(communicator.size().value());
  const std::vector<std::int64_t> mine = {static_cast<std::int64_t>(hash.value()),
                                          static_cast<std::int64_t>(local.code()), bytes};
  std::vector<std::int64_t> lines(mine.size() * ranks);
  OperationOptions labelled = options;
  labelled.label = "start-up check";
  AIT_RETURN_IF_ERROR(communicator.AllGather(View(mine), View(lines), labelled).Wait());
  std::vector<std::int64_t> counts;
  std::vector<int> failed;
  bool equal = true;
  for (std::size_t r = 0; r < ranks; ++r) {
    equal = equal && lines[3 * r] == lines[0];
    if (lines[3 * r + 1] != 0) failed.push_back(static_cast<int>(r));
    counts.push_back(lines[3 * r + 2]);
  }
  if (equal && failed.empty()) return OkStatus();
  AIT_ASSIGN_OR_RETURN(const std::vector<Facts> of_rank,
                       GatherFacts(communicator, sent, counts, options));
  if (!local.ok()) return local;
  if (!failed.empty()) {
    return InvalidArgumentError(RankList(failed), " cannot take part: ",
                                At(of_rank[static_cast<std::size_t>(failed.front())], 0));
  }
  return Explain(of_rank);
}

Status CheckEqual(Communicator& communicator, const std::vector<std::string>& names,
                  const std::vector<std::uint64_t>& values, std::string_view what,
                  const OperationOptions& options) {
  if (communicator.size().value() == 1) return OkStatus();
  const std::vector<std::int64_t> mine(values.begin(), values.end());
  std::vector<std::int64_t> all(mine.size() *
                                static_cast<std::size_t>(communicator.size().value()));
  OperationOptions labelled = options;
  labelled.label = StrCat("comparison of ", what);
  AIT_RETURN_IF_ERROR(communicator.AllGather(View(mine), View(all), labelled).Wait());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    std::vector<int> differ;
    for (std::size_t r = 1; r * mine.size() < all.size(); ++r) {
      if (all[r * mine.size() + i] != all[i]) differ.push_back(static_cast<int>(r));
    }
    if (differ.empty()) continue;
    return InvalidArgumentError(what, " of ", names[i], " on ", RankList(differ),
                                differ.size() == 1 ? " is" : " are", " not the same as on rank 0");
  }
  return OkStatus();
}

}  // namespace ait::inline v0::internal
