// SPDX-License-Identifier: Apache-2.0
#include "ait/data/plan/plan_agreement.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/mix_internal.h"

namespace ait::inline v0 {
namespace {

constexpr std::size_t kDifferencesShown = 3;
using Lines = std::vector<std::string>;

// What is compared of a fact.
std::string_view Compared(std::string_view fact) { return fact.substr(0, fact.find('\t')); }

std::string RankList(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += StrCat(i == 0 ? "" : ", ", ranks[i]);
  return text;
}

// The lines of all ranks, which hold no zero byte.
StatusOr<std::vector<Lines>> GatherLines(Communicator& communicator, const Lines& lines,
                                         OperationOptions options) {
  std::string mine;
  for (const std::string& line : lines) mine.append(line).push_back('\0');
  options.label = "texts of the check of the data plan";
  const std::vector<std::int64_t> size = {static_cast<std::int64_t>(mine.size())};
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(communicator.size().value()));
  AIT_RETURN_IF_ERROR(communicator.AllGather(View(size), View(sizes), options).Wait());
  std::string all(static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), 0L)), '\0');
  AIT_RETURN_IF_ERROR(
      communicator
          .AllGather({mine.data(), size[0], DType::kUInt8},
                     {all.data(), static_cast<std::int64_t>(all.size()), DType::kUInt8}, sizes,
                     options)
          .Wait());
  std::vector<Lines> of_rank;
  std::string_view rest = all;
  for (const std::int64_t bytes : sizes) {
    std::string_view text = rest.substr(0, static_cast<std::size_t>(bytes));
    rest.remove_prefix(text.size());
    Lines& list = of_rank.emplace_back();
    while (!text.empty()) {
      const std::size_t end = text.find('\0');
      list.emplace_back(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
  }
  return of_rank;
}

// What is not as on rank 0: "rank 0 has A, ranks 1, 3 have B; rank 0 has …". Empty: nothing.
std::string Differences(const std::vector<Lines>& of_rank) {
  const auto at = [](const Lines& lines, std::size_t i) {
    return i < lines.size() ? lines[i] : std::string("nothing");
  };
  std::size_t longest = 0;
  for (const Lines& lines : of_rank) longest = std::max(longest, lines.size());
  std::string text;
  std::size_t differences = 0;
  for (std::size_t i = 0; i < longest; ++i) {
    std::map<std::string, std::vector<int>> others;
    for (std::size_t r = 1; r < of_rank.size(); ++r) {
      if (Compared(at(of_rank[r], i)) != Compared(at(of_rank[0], i))) {
        others[at(of_rank[r], i)].push_back(static_cast<int>(r));
      }
    }
    if (others.empty() || ++differences > kDifferencesShown) continue;
    text += StrCat(text.empty() ? "" : "; ", "rank 0 has ", at(of_rank[0], i));
    for (const auto& [line, ranks] : others) {
      text += StrCat(", ", RankList(ranks), ranks.size() == 1 ? " has " : " have ", line);
    }
  }
  std::replace(text.begin(), text.end(), '\t', ' ');
  if (differences > kDifferencesShown) {
    text += StrCat("; and ", differences - kDifferencesShown, " more differences");
  }
  return text;
}

// Makes a failure of one rank one of all.
Status Share(Communicator& communicator, const Status& local, OperationOptions options) {
  options.label = "verdict of the check of the data plan";
  const std::vector<std::int64_t> mine = {static_cast<std::int64_t>(local.code())};
  std::vector<std::int64_t> codes(static_cast<std::size_t>(communicator.size().value()));
  AIT_RETURN_IF_ERROR(communicator.AllGather(View(mine), View(codes), options).Wait());
  const auto failed =
      std::find_if(codes.begin(), codes.end(), [](std::int64_t code) { return code != 0; });
  if (failed == codes.end()) return OkStatus();
  Lines line;
  if (!local.ok()) line.push_back(Message(local));
  AIT_ASSIGN_OR_RETURN(const std::vector<Lines> of_rank,
                       GatherLines(communicator, line, std::move(options)));
  std::map<std::string, std::vector<int>> ranks_of;
  for (std::size_t r = 0; r < of_rank.size(); ++r) {
    if (!of_rank[r].empty()) ranks_of[of_rank[r][0]].push_back(static_cast<int>(r));
  }
  std::string text;
  for (const auto& [message, ranks] : ranks_of) {
    text += StrCat(text.empty() ? "" : "; ", RankList(ranks), ": ", message);
  }
  return Status(static_cast<StatusCode>(*failed), text);
}

// Who reads which part.
Status CheckParts(const std::vector<std::int64_t>& parts) {
  std::map<std::int64_t, std::vector<int>> ranks_of;
  for (std::size_t r = 0; r < parts.size(); ++r) ranks_of[parts[r]].push_back(static_cast<int>(r));
  if (ranks_of.size() == parts.size()) return OkStatus();
  std::string text;
  for (const auto& [part, ranks] : ranks_of) {
    if (ranks.size() == 1) continue;
    text += StrCat(text.empty() ? "" : "; ", RankList(ranks), " read part ", part, " of ",
                   parts.size());
  }
  std::vector<std::int64_t> unread;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    if (!ranks_of.contains(static_cast<std::int64_t>(part))) {
      unread.push_back(static_cast<std::int64_t>(part));
    }
  }
  text += unread.size() == 1 ? ", and nobody reads part " : ", and nobody reads parts ";
  for (std::size_t i = 0; i < unread.size(); ++i) text += StrCat(i == 0 ? "" : ", ", unread[i]);
  return InvalidArgumentError("the parts of the data overlap: ", text,
                              "; give every rank its own part, such as World::shard()");
}

std::uint64_t HashOf(const PlannedBatch& batch) {
  std::uint64_t hash = internal::Fold(0, batch.samples.size());
  for (const PlannedSample& sample : batch.samples) {
    for (const std::int64_t word : {std::int64_t{sample.source}, sample.id, sample.epoch,
                                    sample.position, std::int64_t{sample.is_padding}}) {
      hash = internal::Fold(hash, static_cast<std::uint64_t>(word));
    }
  }
  for (const std::int64_t begin : batch.row_begins) {
    hash = internal::Fold(hash, static_cast<std::uint64_t>(begin));
  }
  return hash;
}

std::uint64_t HashOf(const Lines& lines) {
  std::uint64_t hash = 0;
  for (const std::string& fact : lines) {
    const std::string_view line = Compared(fact);
    hash = internal::Fold(hash, line.size());
    for (const char c : line) hash = internal::Fold(hash, static_cast<unsigned char>(c));
  }
  return hash;
}

// The slices of all ranks by this rank's plan, compared with what they say they have.
Status CheckSlices(const BatchPlan& plan, const DatasetState& from,
                   const std::vector<std::int64_t>& parts,
                   const std::vector<std::uint64_t>& hashes) {
  const WorldSize world(static_cast<int>(parts.size()));
  PlannedBatch batch;
  std::vector<int> differ;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const Shard shard = {.rank = Rank(static_cast<int>(parts[r])), .size = world};
    AIT_RETURN_IF_ERROR(plan.NextBatch(from, shard, batch));
    if (HashOf(batch) != hashes[r]) differ.push_back(static_cast<int>(r));
  }
  if (!differ.empty()) {
    return InvalidArgumentError(
        "of the batch at ", ToJson(from), ", ", RankList(differ),
        differ.size() == 1 ? " has" : " have",
        " other samples than by the plan here; the plan must not depend on the rank");
  }
  return VerifyPlan(plan, world, from, 1);
}

}  // namespace

Status AgreeOnPlan(Communicator& communicator, const BatchPlan& plan, const Shard& shard,
                   const DatasetState& from, OperationOptions options) {
  const auto ranks = static_cast<std::size_t>(communicator.size().value());
  PlannedBatch batch;
  Status local = plan.NextBatch(from, shard, batch);
  if (local.ok() && !shard.is_valid()) {
    local = InvalidArgumentError("rank ", shard.rank, " is not one of a world of ", shard.size);
  }
  AIT_RETURN_IF_ERROR(Share(communicator, local, options));

  Lines facts = plan.Facts();
  facts.push_back(StrCat("plan digest: ", plan.digest()));
  facts.push_back(StrCat("state: ", ToJson(from)));
  facts.push_back(StrCat("samples of the next batch: ", batch.global_samples));
  facts.push_back(StrCat("parts: ", shard.size));
  for (std::string& fact : facts) std::replace(fact.begin(), fact.end(), '\0', ' ');
  const std::vector<std::int64_t> mine = {static_cast<std::int64_t>(HashOf(facts)),
                                          static_cast<std::int64_t>(shard.rank.value()),
                                          static_cast<std::int64_t>(HashOf(batch))};
  std::vector<std::int64_t> all(mine.size() * ranks);
  options.label = "check of the data plan";
  AIT_RETURN_IF_ERROR(communicator.AllGather(View(mine), View(all), options).Wait());
  std::vector<std::int64_t> parts;
  std::vector<std::uint64_t> hashes;
  bool equal = true;
  for (std::size_t r = 0; r < ranks; ++r) {
    equal = equal && all[3 * r] == all[0];
    parts.push_back(all[3 * r + 1]);
    hashes.push_back(static_cast<std::uint64_t>(all[3 * r + 2]));
  }
  if (!equal) {
    AIT_ASSIGN_OR_RETURN(const std::vector<Lines> of_rank,
                         GatherLines(communicator, facts, options));
    return InvalidArgumentError("the ranks do not have the same data plan: ", Differences(of_rank),
                                "; give all ranks the same sources, options and state");
  }
  if (static_cast<std::size_t>(shard.size.value()) != ranks) {
    return InvalidArgumentError("the data are cut into ", shard.size, " parts for ", ranks,
                                " ranks: each of them would read what is another's, or some would "
                                "be read by none; give rank r part r of ",
                                ranks);
  }
  AIT_RETURN_IF_ERROR(CheckParts(parts));
  return Share(communicator, CheckSlices(plan, from, parts, hashes), options);
}

Status AgreeOnPlan(Communicator& communicator, const BatchPlan& plan, const Shard& shard,
                   OperationOptions options) {
  return AgreeOnPlan(communicator, plan, shard, {.plan_digest = plan.digest()}, std::move(options));
}

}  // namespace ait::inline v0
