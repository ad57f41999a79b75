// SPDX-License-Identifier: Apache-2.0
#include "comm/operation_compare.h"

#include <algorithm>

namespace ait::inline v0::internal {

std::string RankList(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += StrCat(i > 0 ? ", " : "", ranks[i]);
  return text;
}

Status CompareSignatures(std::span<const std::uint64_t> signatures,
                         std::span<const std::string> descriptions) {
  if (std::all_of(signatures.begin(), signatures.end(),
                  [&](std::uint64_t signature) { return signature == signatures[0]; })) {
    return OkStatus();
  }
  std::string text = "the ranks ask for different operations";
  std::vector<bool> told(signatures.size());
  for (std::size_t first = 0; first < signatures.size(); ++first) {
    if (told[first]) continue;
    std::vector<int> ranks;
    for (std::size_t rank = first; rank < signatures.size(); ++rank) {
      if (signatures[rank] != signatures[first]) continue;
      told[rank] = true;
      ranks.push_back(static_cast<int>(rank));
    }
    text += StrCat(first == 0 ? ": " : "; ", RankList(ranks), ": ", descriptions[first]);
  }
  return InvalidArgumentError(text, "; issue the same collectives in the same order on every rank");
}

Status CompareAllToAllCounts(std::span<const std::vector<std::int64_t>> sent,
                             std::span<const std::vector<std::int64_t>> received) {
  for (std::size_t from = 0; from < sent.size(); ++from) {
    for (std::size_t to = 0; to < sent.size(); ++to) {
      if (sent[from][to] == received[to][from]) continue;
      return InvalidArgumentError("rank ", from, " sends ", sent[from][to], " elements to rank ",
                                  to, ", which expects ", received[to][from]);
    }
  }
  return OkStatus();
}

Status CompareOperations(std::span<const Operation* const> operations) {
  std::vector<std::uint64_t> signatures;
  for (const Operation* operation : operations) signatures.push_back(operation->Signature());
  if (std::any_of(signatures.begin(), signatures.end(),
                  [&](std::uint64_t signature) { return signature != signatures[0]; })) {
    std::vector<std::string> descriptions;
    for (const Operation* operation : operations) descriptions.push_back(operation->Describe());
    return CompareSignatures(signatures, descriptions);
  }
  if (operations[0]->kind != OperationKind::kAllToAll) return OkStatus();
  std::vector<std::vector<std::int64_t>> sent;
  std::vector<std::vector<std::int64_t>> received;
  for (const Operation* operation : operations) {
    sent.push_back(operation->counts);
    received.push_back(operation->receive_counts);
  }
  return CompareAllToAllCounts(sent, received);
}

}  // namespace ait::inline v0::internal
