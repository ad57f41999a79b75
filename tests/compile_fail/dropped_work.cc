// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "ait/comm/communicator.h"

ait::Status Run(ait::Communicator& communicator, std::vector<float>& gradient) {
#ifdef AIT_MISUSE
  communicator.AllReduce(ait::View(gradient), ait::ReduceOp::kSum);
  return ait::OkStatus();
#else
  return communicator.AllReduce(ait::View(gradient), ait::ReduceOp::kSum).Wait();
#endif
}
