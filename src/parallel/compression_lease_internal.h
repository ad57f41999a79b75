// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_COMPRESSION_LEASE_INTERNAL_H_
#define AIT_PARALLEL_COMPRESSION_LEASE_INTERNAL_H_

// The right of one engine to a `GradientCompression`, from Create to its end.

#include <memory>
#include <utility>

#include "ait/parallel/compression.h"

namespace ait::inline v0::internal {

class CompressionLease {
 public:
  CompressionLease() = default;
  CompressionLease(CompressionLease&&) noexcept = default;
  CompressionLease& operator=(CompressionLease&&) = delete;
  ~CompressionLease() {
    if (compression_ != nullptr) compression_->Return();
  }

  /// **Errors.** FailedPrecondition: another engine has it.
  Status Take(std::shared_ptr<GradientCompression> compression) {
    if (!compression->Take()) {
      return FailedPreconditionError(
          "this gradient compression serves another engine; make one object for each engine, also "
          "for each rank that is a thread");
    }
    compression_ = std::move(compression);
    return OkStatus();
  }

 private:
  std::shared_ptr<GradientCompression> compression_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_COMPRESSION_LEASE_INTERNAL_H_
