// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_RANGE_CALL_INTERNAL_H_
#define AIT_DATA_STORAGE_RANGE_CALL_INTERNAL_H_

// One range of an object: asked for, checked, and written where it belongs.

#include <cstdint>
#include <span>
#include <string_view>

#include "ait/base/status.h"
#include "data/storage/remote_object_internal.h"

namespace ait::inline v0 {
namespace internal {

class RangeCall final : public HttpCall {
 public:
  /// All that is referred to outlives the call. `out` is not empty and lies within the object.
  RangeCall(const HttpOptions& options, const RemoteAddress& address, const RemoteVersion& version,
            std::int64_t offset_bytes, std::span<std::byte> out)
      : options_(options), address_(address), version_(version), offset_(offset_bytes), out_(out) {}

  std::string_view what() const override { return address_.what(); }
  StatusOr<HttpRequest> Prepare() override;
  BodyUse Begin(const HttpAnswer& answer) override;
  Taken Take(std::span<const std::byte> bytes) override;
  HttpVerdict End(const HttpAnswer& answer) override;

 private:
  HttpVerdict Check(const HttpAnswer& answer);
  Status CheckVersion(const HttpAnswer& answer) const;

  const HttpOptions& options_;
  const RemoteAddress& address_;
  const RemoteVersion& version_;
  const std::int64_t offset_;
  const std::span<std::byte> out_;
  // Of the try that is under way.
  HttpVerdict verdict_;
  std::int64_t skip_ = 0;
  std::int64_t taken_ = 0;
  bool is_whole_ = false;     // the server ignored the range
  bool is_too_long_ = false;  // more came than its range says
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_RANGE_CALL_INTERNAL_H_
