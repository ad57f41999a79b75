// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_THROW_ON_ERROR_H_
#define AIT_BASE_THROW_ON_ERROR_H_

// For programs that prefer exceptions: turns an error of ait into a `StatusException`.
//
// Opt-in; ait itself throws nothing but this, and only from what stands in the middle of model code:
// `DataParallel::Unit` (ait/parallel/unit.h), `Checkpoint`, `Keep` and `SavedTensorScope`
// (ait/activation).
//
//   auto data = ait::ThrowOnError(ait::TokenDataset::Open("corpus", options));  // StatusOr<T> to T
//   ait::ThrowOnError(trainer.Save("weights.safetensors"));                     // Status to void

#include <stdexcept>
#include <utility>

#include "ait/base/status.h"

namespace ait::inline v0 {

/// The exception that `ThrowOnError` throws; `what()` is the status with its code.
class StatusException : public std::runtime_error {
 public:
  explicit StatusException(Status status)
      : std::runtime_error(status.ToString()), status_(std::move(status)) {}
  const Status& status() const { return status_; }

 private:
  Status status_;
};

/// Throws StatusException unless `status` is ok.
inline void ThrowOnError(const Status& status) {
  if (!status.ok()) throw StatusException(status);
}

/// Returns the value of `result`, or throws StatusException.
template <typename T>
T ThrowOnError(StatusOr<T> result) {
  if (!result.ok()) throw StatusException(result.status());
  return *std::move(result);
}

}  // namespace ait::inline v0

#endif  // AIT_BASE_THROW_ON_ERROR_H_
