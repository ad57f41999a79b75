// SPDX-License-Identifier: Apache-2.0
#include "comm/world_hosts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <utility>

#include "ait/comm/shared_memory.h"
#include "ait/topology/budget.h"
#include "ait/topology/id_set.h"
#include "topology/kernel_file_internal.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::milliseconds;
using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

Interfaces ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) list = nullptr;
  return {list, &freeifaddrs};
}

/// Waits for a key as long as all ranks live.
StatusOr<std::string> Await(TcpStore& store, const std::string& key, Deadline deadline) {
  while (true) {
    const Deadline slice = Deadline::After(milliseconds(100));
    StatusOr<std::string> value = store.Get(key, slice.time() < deadline.time() ? slice : deadline);
    if (value.status().code() != StatusCode::kDeadlineExceeded || deadline.expired()) return value;
    if (const std::vector<Rank> dead = store.departed(); !dead.empty()) {
      return UnavailableError("rank ", dead.front(), " died while the ranks told each other where ",
                              "they run");
    }
  }
}

// One field a line; none of them holds a newline.
std::string Encode(const RankPlace& place) {
  return StrCat(place.host, "\n", place.name, "\n", place.address, "\n", place.cpus, "\n",
                place.quota, "\n");
}

StatusOr<RankPlace> Decode(std::string_view& text) {
  RankPlace place;
  for (std::string* field : {&place.host, &place.name, &place.address, &place.cpus, &place.quota}) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return DataLossError("a rank's place is cut off");
    *field = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  return place;
}

// All places, a part of the ranks per key: a value of the store has at most 1 MiB.
constexpr int kRanksPerKey = 512;
std::string KeyOfRank(int rank) { return StrCat("world/place/", rank); }
std::string KeyOfPart(int part) { return StrCat("world/places/", part); }

std::string WithoutNewlines(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.substr(0, 500);
}

}  // namespace

RankPlace OwnPlace(const std::string& address) {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  RankPlace place{.name = WithoutNewlines(name), .address = address};
  const auto host = HostIdentity();
  place.host = host.ok() ? WithoutNewlines(*host) : StrCat("named ", place.name);
  if (const auto budget = ReadBudget(); budget.ok()) {
    place.cpus = WithoutNewlines(budget->usable_cpus().ToString());
    if (budget->cpu_quota) place.quota = StrCat(budget->cpu_count());
  }
  return place;
}

StatusOr<std::vector<RankPlace>> ExchangePlaces(TcpStore& store, const LaunchInfo& launch,
                                                const RankPlace& own, Deadline deadline) {
  const int size = launch.size.value();
  if (launch.rank != Rank(0)) {
    AIT_RETURN_IF_ERROR(store.Set(KeyOfRank(launch.rank.value()), Encode(own)));
  }
  std::vector<RankPlace> places;
  for (int first = 0; first < size; first += kRanksPerKey) {
    const int last = std::min(size, first + kRanksPerKey);
    const std::string key = KeyOfPart(first / kRanksPerKey);
    std::string part;
    if (launch.rank == Rank(0)) {
      for (int rank = first; rank < last; ++rank) {
        std::string text = Encode(own);
        if (rank > 0) {
          AIT_ASSIGN_OR_RETURN(text, Await(store, KeyOfRank(rank), deadline));
        }
        part += text;
      }
      AIT_RETURN_IF_ERROR(store.Set(key, part));
    } else {
      AIT_ASSIGN_OR_RETURN(part, Await(store, key, deadline));
    }
    std::string_view rest = part;
    for (int rank = first; rank < last; ++rank) {
      AIT_ASSIGN_OR_RETURN(RankPlace place, Decode(rest));
      places.push_back(std::move(place));
    }
  }
  return places;
}

std::vector<WorldHost> HostsOf(const std::vector<RankPlace>& places) {
  std::vector<WorldHost> hosts;
  std::vector<std::string> keys;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const RankPlace& place = places[rank];
    const auto known = std::find(keys.begin(), keys.end(), place.host);
    const auto index = static_cast<std::size_t>(known - keys.begin());
    if (known == keys.end()) {
      keys.push_back(place.host);
      hosts.push_back({.name = place.name, .address = place.address, .ranks = {}});
    }
    hosts[index].ranks.push_back(Rank(static_cast<int>(rank)));
  }
  return hosts;
}

int ThreadsOf(const std::vector<RankPlace>& places, Rank rank) {
  const RankPlace& own = places[static_cast<std::size_t>(rank.value())];
  const auto cpus = CpuSet::Parse(own.cpus);
  if (!cpus.ok() || cpus->empty()) return 1;
  int sharing = 0, on_host = 0;
  for (const RankPlace& place : places) {
    if (place.host != own.host) continue;
    ++on_host;
    const auto theirs = CpuSet::Parse(place.cpus);
    if (theirs.ok() && !(*theirs & *cpus).empty()) ++sharing;
  }
  int threads = cpus->size() / std::max(1, sharing);
  if (!own.quota.empty())
    threads = std::min(threads, ParseNumber<int>(own.quota).value_or(1) / on_host);
  return std::max(1, threads);
}

std::string InterfaceOf(const std::string& address) {
  const Interfaces interfaces = ListInterfaces();
  for (const ifaddrs* entry = interfaces.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, text,
                sizeof(text));
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr, text,
                sizeof(text));
    }
    if (address.substr(0, address.find('%')) == text) return entry->ifa_name;
  }
  return IsLoopbackAddress(address) ? "lo" : "";
}

Status CheckInterface(const std::string& name) {
  const Interfaces interfaces = ListInterfaces();
  std::set<std::string> names;
  for (const ifaddrs* entry = interfaces.get(); entry != nullptr; entry = entry->ifa_next) {
    names.insert(entry->ifa_name);
  }
  if (names.empty() || names.contains(name)) return OkStatus();
  std::string list;
  for (const std::string& known : names) list += StrCat(list.empty() ? "" : ", ", known);
  return InvalidArgumentError("GLOO_SOCKET_IFNAME is ", name,
                              ", but this host has no such network ", "interface; it has ", list);
}

bool IsLoopbackAddress(std::string_view address) {
  return address == "::1" || address.substr(0, 4) == "127.";
}

}  // namespace ait::inline v0::internal
