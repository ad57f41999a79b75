// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_REMOTE_STREAM_INTERNAL_H_
#define AIT_DATA_STORAGE_REMOTE_STREAM_INTERNAL_H_

// The blocks of a remote object, several asked for at once.

#include <memory>
#include <utility>

#include "ait/base/status.h"
#include "ait/data/storage/storage.h"
#include "data/storage/http_client_internal.h"
#include "data/storage/remote_object_internal.h"

namespace ait::inline v0 {
namespace internal {

/// What an object and its streams share.
struct RemoteSource {
  RemoteSource(std::shared_ptr<HttpClient> by, std::shared_ptr<const RemoteAddress> at,
               RemoteVersion of)
      : client(std::move(by)), address(std::move(at)), version(std::move(of)) {}
  const std::shared_ptr<HttpClient> client;
  const std::shared_ptr<const RemoteAddress> address;
  const RemoteVersion version;
};

/// Up to `options.depth` ≥ 1 blocks are under way or wait for the caller.
StatusOr<std::unique_ptr<ObjectStream>> StreamRemote(std::shared_ptr<const RemoteSource> source,
                                                     const ObjectInfo& info,
                                                     const StreamOptions& options);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_REMOTE_STREAM_INTERNAL_H_
