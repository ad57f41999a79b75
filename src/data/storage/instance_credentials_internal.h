// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_INSTANCE_CREDENTIALS_INTERNAL_H_
#define AIT_DATA_STORAGE_INSTANCE_CREDENTIALS_INTERNAL_H_

// Keys of the role of a cloud instance, from its metadata service (IMDSv2).

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ait/base/status.h"
#include "ait/data/storage/aws_credentials.h"

namespace ait::inline v0 {
namespace internal {

/// Asks `endpoint` at the first `Get`. Unimplemented without libcurl.
StatusOr<std::shared_ptr<AwsCredentialSource>> InstanceCredentials(
    const std::string& endpoint, std::chrono::milliseconds timeout);

/// The JSON that the service answers with. **Errors.** InvalidArgument.
StatusOr<AwsCredentials> ParseInstanceCredentials(std::string_view json);

/// "2026-01-31T12:34:56Z". Nullopt if it is none.
std::optional<std::chrono::system_clock::time_point> ParseUtcTime(std::string_view text);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_INSTANCE_CREDENTIALS_INTERNAL_H_
