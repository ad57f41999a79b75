// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_SUPPORT_NETWORK_HOSTS_H_
#define AIT_TESTS_SUPPORT_NETWORK_HOSTS_H_

// Several hosts on one machine: network namespaces on a bridge, each link shaped by token buckets.
//
// Needs root and the programs `ip` and `tc` of iproute2. The bridge lies in a namespace of its own,
// so nothing of the machine's network changes; all is removed by the destructor, and what a killed
// process left behind by the next `Create`.
//
//   auto hosts = NetworkHosts::Create(2, "1gbit");
//   if (!hosts.ok()) GTEST_SKIP() << hosts.status();
//   Spawn(hosts->Command(1), program);         // runs in host 1, whose address is hosts->address(1)

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ait/base/status.h"

namespace ait::testing {

class NetworkHosts {
 public:
  /// `rate` as tc reads it ("1gbit"); empty: not shaped. **Errors.** FailedPrecondition says what
  /// this machine does not allow.
  static StatusOr<NetworkHosts> Create(int count, const std::string& rate) {
    if (geteuid() != 0) return FailedPreconditionError("network namespaces need root");
    NetworkHosts hosts;
    for (const char* path : {"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"}) {
      if (hosts.ip_.empty() && access(path, X_OK) == 0) hosts.ip_ = path;
    }
    if (hosts.ip_.empty()) return FailedPreconditionError("the program ip is not installed");
    hosts.RemoveLeftovers();
    const std::string hub = hosts.prefix_ + "switch";
    AIT_RETURN_IF_ERROR(hosts.Add(hub));
    AIT_RETURN_IF_ERROR(hosts.Ip("-n " + hub + " link add br0 type bridge"));
    AIT_RETURN_IF_ERROR(hosts.Ip("-n " + hub + " link set br0 up"));
    for (int host = 0; host < count; ++host) {
      const std::string name = StrCat(hosts.prefix_, host), port = StrCat("port", host);
      AIT_RETURN_IF_ERROR(hosts.Add(name));
      AIT_RETURN_IF_ERROR(hosts.Ip(
          StrCat("-n ", hub, " link add ", port, " type veth peer name net0 netns ", name)));
      AIT_RETURN_IF_ERROR(hosts.Ip(StrCat("-n ", hub, " link set ", port, " master br0 up")));
      AIT_RETURN_IF_ERROR(
          hosts.Ip(StrCat("-n ", name, " addr add ", hosts.address(host), "/24 dev net0")));
      AIT_RETURN_IF_ERROR(hosts.Ip("-n " + name + " link set net0 up"));
      AIT_RETURN_IF_ERROR(hosts.Ip("-n " + name + " link set lo up"));
      if (rate.empty()) continue;
      const std::string shape = " root tbf rate " + rate + " burst 256kb latency 50ms";
      AIT_RETURN_IF_ERROR(hosts.Ip(StrCat("netns exec ", hub, " tc qdisc add dev ", port, shape)));
      AIT_RETURN_IF_ERROR(hosts.Ip("netns exec " + name + " tc qdisc add dev net0" + shape));
    }
    return hosts;
  }

  NetworkHosts(NetworkHosts&& other) noexcept { *this = std::move(other); }
  NetworkHosts& operator=(NetworkHosts&& other) noexcept {
    std::swap(ip_, other.ip_);
    std::swap(prefix_, other.prefix_);
    std::swap(names_, other.names_);
    return *this;
  }
  ~NetworkHosts() {
    for (const std::string& name : names_) Ip("netns delete " + name).IgnoreError();
  }

  /// Program and first arguments of a command that runs in a host.
  std::vector<std::string> Command(int host) const {
    return {ip_, "netns", "exec", StrCat(prefix_, host)};
  }
  std::string address(int host) const { return StrCat("10.77.0.", host + 1); }

 private:
  NetworkHosts() = default;

  Status Add(const std::string& name) {
    AIT_RETURN_IF_ERROR(Ip("netns add " + name));
    names_.push_back(name);
    return OkStatus();
  }

  Status Ip(const std::string& arguments) const { return Run(arguments, nullptr); }

  Status Run(const std::string& arguments, std::string* output) const {
    std::FILE* pipe = popen((ip_ + " " + arguments + " 2>&1").c_str(), "r");
    if (pipe == nullptr) return FailedPreconditionError("no process for ip");
    std::string text;
    for (int c = 0; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
    if (output != nullptr) *output = text;
    if (pclose(pipe) == 0) return OkStatus();
    return FailedPreconditionError("ip ", arguments, ": ", text);
  }

  /// Namespaces of processes that are no more.
  void RemoveLeftovers() const {
    std::string list;
    Run("netns list", &list).IgnoreError();
    std::istringstream lines(list);
    for (std::string line; std::getline(lines, line);) {
      const std::string name = line.substr(0, line.find(' '));
      int pid = 0;
      if (std::sscanf(name.c_str(), "aithosts%d-", &pid) != 1 || pid <= 0) continue;
      if (kill(pid, 0) != 0 && errno == ESRCH) Ip("netns delete " + name).IgnoreError();
    }
  }

  std::string ip_;
  std::string prefix_ = StrCat("aithosts", getpid(), "-");
  std::vector<std::string> names_;
};

}  // namespace ait::testing

#endif  // AIT_TESTS_SUPPORT_NETWORK_HOSTS_H_
