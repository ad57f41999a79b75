// SPDX-License-Identifier: Apache-2.0
// hosts_rank auto|pretend once|loop [TIMEOUT_MS]: one rank of the tests with several hosts.
//
// Prints the transport and "ready" when all ranks are connected, then makes one all-reduce of 4 MiB,
// or all-reduces for ever. An error is printed and gives exit code 3.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ait/base/log.h"
#include "ait/comm/automatic.h"
#include "multiprocess/pretended_hosts.h"

namespace ait {
namespace {

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

class Talk final : public LogSink {
 public:
  void Write(Severity, std::string_view component, std::string_view message) override {
    if (component == "comm") Say(std::string(message));
  }
};

Status Run(const std::string& where, const std::string& mode, std::chrono::milliseconds timeout) {
  static Talk talk;
  std::shared_ptr<TransportProvider> provider;
  if (where == "auto") {
    provider = Automatic({.between = Gloo(), .log = &talk});
  } else {
    provider = std::make_shared<testing::PretendedHosts>(HierarchicalTuning{.chunk = MiB(1)});
  }
  AIT_ASSIGN_OR_RETURN(
      const std::unique_ptr<World> world,
      World::FromEnvironment({.transport = provider, .communicator = {.timeout = timeout}}));
  Communicator& all = *world->communicator();
  Say("transport " + std::string(all.transport_name()));
  const int size = all.size().value();
  for (bool first = true; first || mode == "loop"; first = false) {
    std::vector<float> x(std::size_t{1} << 20, static_cast<float>(all.rank().value()));
    AIT_RETURN_IF_ERROR(all.AllReduce(View(x), ReduceOp::kSum, {.label = "sums"}).Wait());
    for (const float value : x) {
      if (value != static_cast<float>(size * (size - 1) / 2)) return InternalError("a wrong sum");
    }
    if (first) Say("ready");
  }
  return OkStatus();
}

}  // namespace
}  // namespace ait

int main(int argc, char** argv) {
  const std::string where = argc > 1 ? argv[1] : "auto", mode = argc > 2 ? argv[2] : "once";
  const std::chrono::milliseconds timeout(argc > 3 ? std::atoi(argv[3]) : 30000);
  const ait::Status status = ait::Run(where, mode, timeout);
  if (status.ok()) return 0;
  ait::Say(status.ToString());
  return 3;
}
