// SPDX-License-Identifier: Apache-2.0
#include "comm/find_hosts.h"

#include <map>
#include <sstream>
#include <utility>

namespace ait::inline v0::internal {

StatusOr<std::vector<int>> FindHosts(Store& store, const std::string& key, Rank rank,
                                     WorldSize size, const std::string& identity,
                                     Deadline deadline) {
  const std::string list_key = key + "/hosts";
  AIT_RETURN_IF_ERROR(store.Set(StrCat(key, "/host/", rank), identity));
  if (rank == Rank(0)) {  // one rank asks for all, the others for the result
    std::string list;
    std::map<std::string, int> numbers;
    for (int peer = 0; peer < size.value(); ++peer) {
      StatusOr<std::string> theirs = store.Get(StrCat(key, "/host/", peer), deadline);
      if (!theirs.ok()) {
        return Annotate(theirs.status(), StrCat("rank ", peer, " did not tell its host"));
      }
      const int next = static_cast<int>(numbers.size());
      list += StrCat(numbers.try_emplace(*std::move(theirs), next).first->second, " ");
    }
    AIT_RETURN_IF_ERROR(store.Set(list_key, list));
  }
  StatusOr<std::string> list = store.Get(list_key, deadline);
  if (!list.ok()) return Annotate(list.status(), "rank 0 did not tell the hosts of all ranks");
  std::vector<int> hosts;
  std::istringstream numbers(*list);
  for (int host = 0; numbers >> host;) hosts.push_back(host);
  if (static_cast<int>(hosts.size()) != size.value()) {
    return InternalError("the list of hosts has ", hosts.size(), " ranks, not ", size);
  }
  return hosts;
}

std::string DescribeHosts(const HostLayout& layout) {
  const auto count = [](int n, std::string_view what) {
    return StrCat(n, " ", what, n == 1 ? "" : "s");
  };
  std::string text =
      StrCat(count(layout.size(), "rank"), " on ", count(layout.host_count(), "host"), ": ");
  constexpr std::size_t kShown = 16;
  for (std::size_t host = 0; host < layout.hosts.size(); ++host) {
    if (host > 0) text += "; ";
    if (host == kShown) return text + "...";
    const std::vector<int>& ranks = layout.hosts[host];
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      std::size_t last = i;
      while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
      text += StrCat(i == 0 ? "" : ", ", ranks[i]);
      if (last > i) text += StrCat(last > i + 1 ? " to " : ", ", ranks[last]);
      i = last;
    }
  }
  return text;
}

}  // namespace ait::inline v0::internal
