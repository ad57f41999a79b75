// SPDX-License-Identifier: Apache-2.0
#include "ait/base/types.h"

void Join(ait::Rank rank, ait::WorldSize size);

void Run() {
#ifdef AIT_MISUSE
  Join(ait::WorldSize(2), ait::Rank(0));
#else
  Join(ait::Rank(0), ait::WorldSize(2));
#endif
}
