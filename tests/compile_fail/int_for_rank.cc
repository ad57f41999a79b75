// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/communicator.h"

ait::Status Run(ait::Communicator& communicator, ait::Buffer buffer) {
#ifdef AIT_MISUSE
  return communicator.Broadcast(buffer, 0).Wait();
#else
  return communicator.Broadcast(buffer, ait::Rank(0)).Wait();
#endif
}
