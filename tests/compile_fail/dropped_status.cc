// SPDX-License-Identifier: Apache-2.0
#include "ait/base/status.h"

ait::Status Save();

ait::Status Run() {
#ifdef AIT_MISUSE
  Save();
#else
  AIT_RETURN_IF_ERROR(Save());
#endif
  return ait::OkStatus();
}
