// SPDX-License-Identifier: Apache-2.0
#include "ait/base/status.h"

ait::StatusOr<int> Open();

ait::StatusOr<int> Run() {
#ifdef AIT_MISUSE
  Open();
  return 0;
#else
  AIT_ASSIGN_OR_RETURN(const int file, Open());
  return file;
#endif
}
