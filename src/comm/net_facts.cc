// SPDX-License-Identifier: Apache-2.0
// What net_lint.h reads: interfaces, adapters, names, variables and NCCL's files.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "ait/comm/net_lint.h"
#include "comm/net_variables.h"

namespace ait::inline v0 {
namespace {

/// The address as text; empty for what is no address of IP.
std::string AddressText(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
              sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) return "";
    inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof(text));
  }
  return text;
}

StatusOr<std::vector<NetInterface>> ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return UnavailableError("cannot list the network interfaces: ", std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<NetInterface> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    auto found = std::find_if(interfaces.begin(), interfaces.end(),
                              [&](const NetInterface& i) { return i.name == entry->ifa_name; });
    if (found == interfaces.end()) {
      interfaces.push_back({.name = entry->ifa_name,
                            .up = (entry->ifa_flags & IFF_UP) != 0,
                            .running = (entry->ifa_flags & IFF_RUNNING) != 0,
                            .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0,
                            .addresses = {}});
      found = interfaces.end() - 1;
    }
    if (std::string text = AddressText(entry->ifa_addr); !text.empty()) {
      found->addresses.push_back(std::move(text));
    }
  }
  return interfaces;
}

std::vector<std::string> ListFolder(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;  // a host without adapters has no such folder
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> Resolve(const std::string& name) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  std::vector<std::string> addresses;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return addresses;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    std::string text = AddressText(entry->ai_addr);
    if (!text.empty() && std::find(addresses.begin(), addresses.end(), text) == addresses.end()) {
      addresses.push_back(std::move(text));
    }
  }
  return addresses;
}

/// As NCCL reads it: "#" at the start of a line, all before the first "=" is the name, all behind it the
/// value, nothing is trimmed.
NetEnvironment ReadFile(const std::string& path, bool& exists) {
  NetEnvironment settings;
  std::ifstream file(path);
  exists = file.is_open();
  for (std::string line; std::getline(file, line);) {
    const std::size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string::npos) continue;
    settings.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  return settings;
}

}  // namespace

StatusOr<NetFacts> ReadNetFacts(const std::string& sys) {
  NetFacts facts;
  AIT_ASSIGN_OR_RETURN(facts.interfaces, ListInterfaces());
  facts.adapters = ListFolder(sys + "/class/infiniband");
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) == 0) facts.hostname = name;
  facts.hostname_addresses = Resolve(facts.hostname);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) facts.cpus = CPU_COUNT(&cpus);
  facts.host_cpus = static_cast<int>(std::max(0L, sysconf(_SC_NPROCESSORS_ONLN)));
  return facts;
}

NetSettings ReadNetSettings(const NetEnvironment& environment, const std::string& system_file) {
  NetSettings result;
  std::string home, named;
  for (const auto& [name, value] : environment) {
    if (name == "HOME") home = value;
    if (name == "NCCL_CONF_FILE") named = value;
    if (internal::IsNetVariable(name)) {
      result.settings.push_back({.name = name, .value = value, .source = "environment"});
    }
  }
  std::vector<std::string> files;
  if (!named.empty()) {
    files.push_back(named);
  } else if (!home.empty()) {
    files.push_back(home + "/.nccl.conf");
  }
  files.push_back(system_file);
  for (const std::string& path : files) {
    bool exists = false;
    for (auto& [name, value] : ReadFile(path, exists)) {
      result.settings.push_back({.name = name, .value = value, .source = path});
    }
    if (exists) result.files.push_back(path);
  }
  std::stable_sort(result.settings.begin(), result.settings.end(),
                   [](const NetSetting& a, const NetSetting& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < result.settings.size(); ++i) {
    result.settings[i].in_force = result.settings[i].name != result.settings[i - 1].name;
  }
  return result;
}

}  // namespace ait::inline v0
