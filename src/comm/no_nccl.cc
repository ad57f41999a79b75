// SPDX-License-Identifier: Apache-2.0
// The null twin of nccl.cc, for builds without the headers of CUDA and NCCL.
#include "ait/comm/nccl.h"
#include "ait/comm/store.h"

namespace ait::inline v0 {
namespace {

Status NoNccl() {
  return FailedPreconditionError(
      "no NCCL: ait was built without it; install the CUDA toolkit and nccl.h, and build with "
      "-DAIT_WITH_CUDA=ON");
}

class NoNcclProvider final : public TransportProvider {
 public:
  std::string_view name() const override { return "nccl"; }
  StatusOr<std::unique_ptr<Store>> JoinAgentStore(const LaunchInfo&, Deadline) override {
    return NoNccl();
  }
  StatusOr<std::unique_ptr<Transport>> Connect(const LaunchInfo&, std::shared_ptr<TcpStore>,
                                               Deadline) override {
    return NoNccl();
  }
};

}  // namespace

std::shared_ptr<TransportProvider> Nccl(NcclOptions) { return std::make_shared<NoNcclProvider>(); }

StatusOr<std::unique_ptr<Transport>> JoinNccl(Store&, std::string, Rank, WorldSize, Deadline,
                                              const NcclOptions&) {
  return NoNccl();
}

StatusOr<std::string> DescribeNccl(const NcclOptions&) { return NoNccl(); }

}  // namespace ait::inline v0
