// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_S3_SERVICE_INTERNAL_H_
#define AIT_DATA_STORAGE_S3_SERVICE_INTERNAL_H_

// Requests to S3, signed, and what its refusals mean.

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/storage/s3_storage.h"
#include "ait/data/storage/sigv4.h"
#include "ait/memory/fork_safe_mutex.h"
#include "data/storage/http_client_internal.h"
#include "data/storage/remote_object_internal.h"

namespace ait::inline v0 {
namespace internal {

/// "s3://bucket/key"; the key may be empty.
struct S3Location {
  std::string bucket;
  std::string key;
  std::string url() const { return "s3://" + bucket + "/" + key; }
};
StatusOr<S3Location> ParseS3Url(std::string_view url);

/// A request without what signing adds.
struct S3Request {
  std::string method = "GET";
  S3Location location = {};
  SigV4Request::Pairs query = {};
  SigV4Request::Pairs headers = {};
  std::span<const std::byte> body = {};
  std::string body_sha256 = {};  // of `body`; empty: of nothing
  int patience = 1;              // as HttpRequest's
};

/// **Thread-safety.** All calls may come from any thread.
class S3Service {
 public:
  /// `options` with all defaults filled in.
  S3Service(S3StorageOptions options, std::shared_ptr<HttpClient> client)
      : options_(std::move(options)), client_(std::move(client)) {}

  const S3StorageOptions& options() const { return options_; }
  const std::shared_ptr<HttpClient>& client() const { return client_; }
  /// **Blocks.** Where keys must be asked for.
  StatusOr<HttpRequest> Sign(const S3Request& request) const;
  HttpVerdict Judge(std::string_view what, const std::string& bucket,
                    const HttpAnswer& answer) const;

 private:
  std::string RegionOf(const std::string& bucket) const;
  /// Scheme and host, and what precedes the key in the path.
  std::pair<std::string, std::string> EndpointOf(const std::string& bucket,
                                                 const std::string& region) const;

  const S3StorageOptions options_;
  const std::shared_ptr<HttpClient> client_;
  mutable ForkSafeMutex mutex_;
  mutable std::map<std::string, std::string> regions_;  // of buckets that said theirs is another
};

/// A request whose answer is taken whole.
class S3Call final : public HttpCall {
 public:
  /// `check` may refuse an answer that is no good; it is then asked for again.
  using Check = std::function<Status(const HttpAnswer&)>;
  S3Call(const S3Service& service, S3Request request, Check check = {})
      : service_(service),
        request_(std::move(request)),
        check_(std::move(check)),
        what_(request_.location.url()) {}

  std::string_view what() const override { return what_; }
  StatusOr<HttpRequest> Prepare() override { return service_.Sign(request_); }
  HttpVerdict End(const HttpAnswer& answer) override;
  std::size_t body_limit() const override { return std::size_t{32} << 20; }

  /// Runs it alone.
  Status Run();
  const HttpAnswer& answer() const { return answer_; }

 private:
  const S3Service& service_;
  const S3Request request_;
  const Check check_;
  const std::string what_;
  HttpAnswer answer_;
};

/// Writes an object, in parts if it is large.
Status PutObject(const S3Service& service, const S3Location& location,
                 std::span<const std::byte> bytes);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_S3_SERVICE_INTERNAL_H_
