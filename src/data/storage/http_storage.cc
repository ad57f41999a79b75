// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/http_storage.h"

#include <utility>

#include "data/storage/http_client_internal.h"
#include "data/storage/remote_object_internal.h"
#include "data/storage/uri_internal.h"

namespace ait::inline v0 {
namespace {

constexpr int kMaxRedirects = 5;

class WebAddress final : public internal::RemoteAddress {
 public:
  WebAddress(std::string url, const std::vector<std::string>& headers)
      : url_(std::move(url)), shown_(internal::WithoutSecrets(url_)), headers_(headers) {}

  std::string_view what() const override { return shown_; }
  StatusOr<internal::HttpRequest> Request(std::string_view method,
                                          std::vector<std::string> headers) const override {
    return internal::HttpRequest{.method = std::string(method),
                                 .url = url_,
                                 .headers = std::move(headers),
                                 .private_headers = headers_,
                                 .max_redirects = kMaxRedirects};
  }

 private:
  const std::string url_;
  const std::string shown_;
  const std::vector<std::string> headers_;
};

}  // namespace

struct HttpStorage::Impl {
  std::shared_ptr<internal::HttpClient> client;
  std::vector<std::string> headers;
};

HttpStorage::HttpStorage(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpStorage::~HttpStorage() = default;

StatusOr<std::shared_ptr<HttpStorage>> HttpStorage::Create(const HttpStorageOptions& options) {
  for (std::size_t i = 0; i < options.headers.size(); ++i) {
    const std::string& header = options.headers[i];
    if (header.find(':') == std::string::npos ||
        header.find_first_of("\r\n") != std::string::npos) {
      return InvalidArgumentError("header ", i, " is not of the form 'name: value' on one line");
    }
  }
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<internal::HttpClient> client,
                       internal::HttpClient::Create(options.http));
  return std::shared_ptr<HttpStorage>(
      new HttpStorage(std::make_unique<Impl>(Impl{std::move(client), options.headers})));
}

StatusOr<std::shared_ptr<const StoredObject>> HttpStorage::Open(const std::string& url) const {
  AIT_ASSIGN_OR_RETURN(std::string checked, internal::CheckedHttpUrl(url));
  auto address = std::make_shared<WebAddress>(std::move(checked), impl_->headers);
  AIT_ASSIGN_OR_RETURN(internal::RemoteVersion version,
                       internal::StatRemote(*impl_->client, *address));
  ObjectInfo info = {url, version.size_bytes, version.text()};
  return internal::MakeRemoteObject(impl_->client, std::move(address), std::move(info),
                                    std::move(version));
}

StatusOr<ObjectInfo> HttpStorage::Stat(const std::string& url) const {
  AIT_ASSIGN_OR_RETURN(std::string checked, internal::CheckedHttpUrl(url));
  const WebAddress address(std::move(checked), impl_->headers);
  AIT_ASSIGN_OR_RETURN(const internal::RemoteVersion version,
                       internal::StatRemote(*impl_->client, address));
  return ObjectInfo{url, version.size_bytes, version.text()};
}

Status HttpStorage::List(const std::string& prefix,
                         const std::function<Status(const ObjectInfo&)>&) const {
  return UnimplementedError(internal::WithoutSecrets(prefix),
                            ": web servers have no common way to list; name the objects one by "
                            "one, as in shard-{000..099}.tar");
}

}  // namespace ait::inline v0
