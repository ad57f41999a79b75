// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/communicator.h"

ait::Rank Run(const ait::Communicator& communicator) {
#ifdef AIT_MISUSE
  ait::Communicator copy = communicator;
#else
  const ait::Communicator& copy = communicator;
#endif
  return copy.rank();
}
