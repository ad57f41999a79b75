// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_LAUNCH_ERROR_FILE_H_
#define AIT_LAUNCH_ERROR_FILE_H_

// Why a rank failed, in the file that torchrun reads.
//
// torchrun gives every rank a file (TORCHELASTIC_ERROR_FILE) and, when ranks fail, reports the text
// of the one that wrote first as the root cause; without it the report holds an exit code and
// nothing else. A program calls this at its end:
//
//   const ait::Status status = Train();
//   if (!status.ok()) ait::WriteErrorFile(status).IgnoreError();
//   return status.ok() ? 0 : 1;
//
// Nothing calls it by itself. Under other launchers there is no such file and it does nothing.

#include "ait/base/env.h"
#include "ait/base/status.h"

namespace ait::inline v0 {

/// Writes `failure` and the time of day. Does nothing if TORCHELASTIC_ERROR_FILE is not set or
/// `failure` is OK. **Errors.** Those of the file system; the file is whole or not there.
Status WriteErrorFile(const Status& failure, const Env& env = Env::FromProcess());

}  // namespace ait::inline v0

#endif  // AIT_LAUNCH_ERROR_FILE_H_
