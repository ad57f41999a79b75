// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_BAD_SAMPLE_INTERNAL_H_
#define AIT_DATA_BAD_SAMPLE_INTERNAL_H_

// Which errors say that a sample is bad, and not the storage: see SampleRead::status.

#include "ait/base/status.h"

namespace ait::inline v0::internal {

inline bool IsBadSample(const Status& status) {
  return status.code() == StatusCode::kDataLoss || status.code() == StatusCode::kInvalidArgument;
}

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_BAD_SAMPLE_INTERNAL_H_
