// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/offload.h"

namespace ait::inline v0 {

Status StateOffload::Validate() const {
  if (chunk < KiB(64) || chunk > MiB(256)) {
    return InvalidArgumentError("StateOffload::chunk is ", chunk, " bytes; it must be from ",
                                KiB(64), " to ", MiB(256));
  }
  if (chunks < 3 || chunks > 64) {
    return InvalidArgumentError("StateOffload::chunks is ", chunks, "; it must be from 3 to 64");
  }
  return OkStatus();
}

}  // namespace ait::inline v0
