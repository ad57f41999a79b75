// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/s3_storage.h"

#include <utility>

#include "data/storage/s3_service_internal.h"
#include "data/storage/s3_xml_internal.h"
#include "data/storage/uri_internal.h"

namespace ait::inline v0 {
namespace {

using internal::S3Location;
using internal::S3Request;

constexpr int kMaxEmptyPages = 1'000;  // one after the other

class S3Address final : public internal::RemoteAddress {
 public:
  S3Address(std::shared_ptr<const internal::S3Service> service, S3Location location)
      : service_(std::move(service)), location_(std::move(location)), what_(location_.url()) {}

  std::string_view what() const override { return what_; }
  StatusOr<internal::HttpRequest> Request(std::string_view method,
                                          std::vector<std::string> headers) const override {
    S3Request request = {.method = std::string(method), .location = location_};
    for (const std::string& header : headers) {
      const std::size_t colon = header.find(": ");
      request.headers.emplace_back(header.substr(0, colon), header.substr(colon + 2));
    }
    return service_->Sign(request);
  }
  // It is metadata that whoever wrote the object gave it.
  bool stores_encoding() const override { return true; }
  internal::HttpVerdict Judge(const internal::HttpAnswer& answer) const override {
    return service_->Judge(what_, location_.bucket, answer);
  }

 private:
  const std::shared_ptr<const internal::S3Service> service_;
  const S3Location location_;
  const std::string what_;
};

StatusOr<S3Location> ObjectLocation(const std::string& url) {
  AIT_ASSIGN_OR_RETURN(S3Location location, internal::ParseS3Url(url));
  if (location.key.empty()) return InvalidArgumentError("'", url, "' names a bucket, no object");
  return location;
}

// An endpoint of a custom service as it is used: no '/' at its end, no port that is the default.
StatusOr<std::string> CheckedEndpoint(const std::string& endpoint) {
  AIT_ASSIGN_OR_RETURN(std::string url, internal::CheckedHttpUrl(endpoint));
  if (url.find('?') != std::string::npos) {
    return InvalidArgumentError("the endpoint ", internal::WithoutSecrets(url), " has a query");
  }
  while (url.ends_with("/")) url.pop_back();
  const std::string scheme = internal::SchemeOf(url);
  const std::size_t host = scheme.size() + 3;
  url.replace(0, host, scheme + "://");
  const std::string_view port = scheme == "https" ? ":443" : ":80";
  const std::size_t path = std::min(url.find('/', host), url.size());
  if (std::string_view(url).substr(0, path).ends_with(port)) {
    url.erase(path - port.size(), port.size());
  }
  return url;
}

// Fills in what the options leave to the environment and the profile.
StatusOr<S3StorageOptions> WithDefaults(S3StorageOptions options) {
  const AwsCredentialOptions find = {.profile = options.profile,
                                     .environment = options.environment};
  AwsProfile profile;
  const bool needs_profile = options.region.empty() || options.endpoint.empty();
  if (needs_profile) {
    StatusOr<AwsProfile> read = ReadAwsProfile(find);
    // How it gets its keys matters only if they are wanted.
    if (read.ok()) {
      profile = *std::move(read);
    } else if (!options.credentials) {
      const bool keys_elsewhere = options.profile.empty() && options.environment.access_key_id;
      if (!keys_elsewhere) return read.status();
    }
  }
  if (!options.credentials) {
    AIT_ASSIGN_OR_RETURN(options.credentials, FindAwsCredentials(find));
  }
  if (options.region.empty()) options.region = options.environment.region.value_or(profile.region);
  if (options.region.empty()) options.region = "us-east-1";
  if (options.region.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") !=
      std::string::npos) {
    return InvalidArgumentError("region '", options.region.substr(0, 60), "' is no name of one");
  }
  if (options.endpoint.empty()) {
    options.endpoint = options.environment.endpoint.value_or(profile.endpoint);
  }
  if (!options.endpoint.empty()) {
    AIT_ASSIGN_OR_RETURN(options.endpoint, CheckedEndpoint(options.endpoint));
  }
  if (options.http.ca_file.empty()) {
    options.http.ca_file = options.environment.ca_file.value_or("");
  }
  return options;
}

}  // namespace

struct S3Storage::Impl {
  std::shared_ptr<const internal::S3Service> service;
};

S3Storage::S3Storage(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
S3Storage::~S3Storage() = default;

StatusOr<std::shared_ptr<S3Storage>> S3Storage::Create(const S3StorageOptions& options) {
  AIT_ASSIGN_OR_RETURN(S3StorageOptions complete, WithDefaults(options));
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<internal::HttpClient> client,
                       internal::HttpClient::Create(complete.http));
  auto service =
      std::make_shared<const internal::S3Service>(std::move(complete), std::move(client));
  return std::shared_ptr<S3Storage>(
      new S3Storage(std::make_unique<Impl>(Impl{std::move(service)})));
}

std::string S3Storage::name() const {
  const S3StorageOptions& options = impl_->service->options();
  return options.endpoint.empty() ? StrCat("S3 of AWS, ", options.region)
                                  : StrCat("S3 at ", options.endpoint);
}

StatusOr<std::shared_ptr<const StoredObject>> S3Storage::Open(const std::string& url) const {
  AIT_ASSIGN_OR_RETURN(S3Location location, ObjectLocation(url));
  auto address = std::make_shared<S3Address>(impl_->service, std::move(location));
  AIT_ASSIGN_OR_RETURN(internal::RemoteVersion version,
                       internal::StatRemote(*impl_->service->client(), *address));
  ObjectInfo info = {std::string(address->what()), version.size_bytes, version.text()};
  return internal::MakeRemoteObject(impl_->service->client(), std::move(address), std::move(info),
                                    std::move(version));
}

StatusOr<ObjectInfo> S3Storage::Stat(const std::string& url) const {
  AIT_ASSIGN_OR_RETURN(S3Location location, ObjectLocation(url));
  const S3Address address(impl_->service, std::move(location));
  AIT_ASSIGN_OR_RETURN(const internal::RemoteVersion version,
                       internal::StatRemote(*impl_->service->client(), address));
  return ObjectInfo{std::string(address.what()), version.size_bytes, version.text()};
}

Status S3Storage::List(const std::string& prefix,
                       const std::function<Status(const ObjectInfo&)>& visit) const {
  AIT_ASSIGN_OR_RETURN(S3Location location, internal::ParseS3Url(prefix));
  if (!location.key.empty() && !location.key.ends_with("/")) location.key += '/';
  const std::string shown = location.url();
  std::string token, last;
  bool is_found = false;
  int empty_pages = 0;
  do {
    S3Request request = {
        .location = {location.bucket, ""},
        .query = {{"list-type", "2"}, {"encoding-type", "url"}, {"prefix", location.key}}};
    if (!token.empty()) request.query.emplace_back("continuation-token", token);
    internal::S3ListPage page;
    internal::S3Call call(
        *impl_->service, std::move(request), [&](const internal::HttpAnswer& answer) -> Status {
          StatusOr<internal::S3ListPage> parsed = internal::ParseS3ListPage(answer.body);
          if (!parsed.ok()) return DataLossError(Message(parsed.status()));
          page = *std::move(parsed);
          return OkStatus();
        });
    AIT_RETURN_IF_ERROR(call.Run());
    for (const internal::S3ListedObject& object : page.objects) {
      if (!object.key.starts_with(location.key)) {
        return FailedPreconditionError(shown, ": the service lists '", object.key.substr(0, 100),
                                       "', which does not lie there");
      }
      if (is_found && object.key <= last) {
        return FailedPreconditionError(shown, ": the service lists '", object.key.substr(0, 100),
                                       "' after '", last.substr(0, 100),
                                       "', so not in the order of their bytes");
      }
      last = object.key;
      is_found = true;
      if (object.key.ends_with("/") && object.size_bytes == 0) continue;
      AIT_RETURN_IF_ERROR(
          visit({S3Location{location.bucket, object.key}.url(), object.size_bytes, object.etag}));
    }
    empty_pages = page.objects.empty() ? empty_pages + 1 : 0;
    if (page.is_truncated && empty_pages > kMaxEmptyPages) {
      return DataLossError(shown, ": the service lists ", empty_pages,
                           " pages without an object, and says that there is more");
    }
    if (page.is_truncated && page.next_token == token) {
      return DataLossError(shown, ": the service lists the same page again and again");
    }
    token = page.is_truncated ? page.next_token : "";
  } while (!token.empty());
  if (!is_found) return NotFoundError(shown, ": no object lies there");
  return OkStatus();
}

Status S3Storage::Put(const std::string& url, std::span<const std::byte> bytes) const {
  AIT_ASSIGN_OR_RETURN(const S3Location location, ObjectLocation(url));
  return internal::PutObject(*impl_->service, location, bytes);
}

Status S3Storage::Remove(const std::string& url) const {
  AIT_ASSIGN_OR_RETURN(S3Location location, ObjectLocation(url));
  return internal::S3Call(*impl_->service, {.method = "DELETE", .location = std::move(location)})
      .Run();
}

}  // namespace ait::inline v0
