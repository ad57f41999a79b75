// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_MEMORY_REFUSAL_H_
#define AIT_BASE_MEMORY_REFUSAL_H_

// ResourceExhausted is also a full disk. Errors that are about memory carry a payload that says so,
// and how many bytes were asked for, through all layers up to the one that explains them. Not a
// public header.

#include <optional>

#include "ait/base/status.h"
#include "ait/base/types.h"

namespace ait::inline v0::internal {

struct MemoryRefusal {
  bool on_device = false;
  std::optional<Bytes> asked;  // nullopt: unknown
};

/// `status` with the payload; ok stays ok, and a payload that is there already stays.
Status WithRefusal(Status status, const MemoryRefusal& refusal);

/// What the payload says; nullopt without one, as of an error that a peer has told.
std::optional<MemoryRefusal> RefusalOf(const Status& status);

}  // namespace ait::inline v0::internal

#endif  // AIT_BASE_MEMORY_REFUSAL_H_
