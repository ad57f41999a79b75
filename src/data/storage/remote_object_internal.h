// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_REMOTE_OBJECT_INTERNAL_H_
#define AIT_DATA_STORAGE_REMOTE_OBJECT_INTERNAL_H_

// An object behind HTTP that is read by ranges: what web servers and S3 have in common.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/storage/storage.h"
#include "data/storage/http_client_internal.h"

namespace ait::inline v0 {
namespace internal {

/// Where one object is asked for, and how. **Thread-safety.** All calls may come from any thread.
class RemoteAddress {
 public:
  virtual ~RemoteAddress() = default;
  /// For messages: no credentials.
  virtual std::string_view what() const = 0;
  /// A request for the object with these headers; called anew for each try.
  virtual StatusOr<HttpRequest> Request(std::string_view method,
                                        std::vector<std::string> headers) const = 0;
  /// Whether objects have a Content-Encoding that belongs to their bytes as they are stored, sizes
  /// and ranges included. Else an encoded answer is another one than was asked for.
  virtual bool stores_encoding() const { return false; }
  /// What an answer means that is neither 200 nor 206.
  virtual HttpVerdict Judge(const HttpAnswer& answer) const {
    return JudgeRefusal(what(), answer, {});
  }
};

/// What tells one version of an object from another.
struct RemoteVersion {
  std::int64_t size_bytes = 0;
  std::string etag = {};                 // with its quotes; empty if the server gives none
  std::string last_modified = {};        // the same
  bool is_last_modified_strong = false;  // no two contents can have it

  /// For ObjectInfo::version.
  std::string text() const {
    if (!etag.empty()) return etag;
    return is_last_modified_strong ? last_modified : "";
  }
};

/// Asks for size and version: by HEAD, or for one byte where HEAD is refused.
StatusOr<RemoteVersion> StatRemote(HttpClient& client, const RemoteAddress& address);

/// `info` and `version` describe the object as it was just now.
std::shared_ptr<const StoredObject> MakeRemoteObject(std::shared_ptr<HttpClient> client,
                                                     std::shared_ptr<const RemoteAddress> address,
                                                     ObjectInfo info, RemoteVersion version);

/// "bytes 0-9/1234" or "bytes */1234"; −1 for what is not given ("*").
struct ContentRange {
  std::int64_t first = -1;
  std::int64_t last = -1;
  std::int64_t size = -1;
};
/// **Errors.** InvalidArgument: it is none.
StatusOr<ContentRange> ParseContentRange(std::string_view text);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_REMOTE_OBJECT_INTERNAL_H_
