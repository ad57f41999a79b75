// SPDX-License-Identifier: Apache-2.0
// Remote storages where libcurl was not found.
#include "ait/data/storage/http_storage.h"
#include "ait/data/storage/s3_storage.h"
#include "data/storage/instance_credentials_internal.h"

namespace ait::inline v0 {
namespace {

Status Missing() {
  return UnimplementedError(
      "this build of ait has no HTTP: install libcurl (Debian: libcurl4-openssl-dev) and configure "
      "it again with -DAIT_WITH_CURL=ON");
}

}  // namespace

struct HttpStorage::Impl {};
HttpStorage::HttpStorage(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpStorage::~HttpStorage() = default;
StatusOr<std::shared_ptr<HttpStorage>> HttpStorage::Create(const HttpStorageOptions&) {
  return Missing();
}
StatusOr<std::shared_ptr<const StoredObject>> HttpStorage::Open(const std::string&) const {
  return Missing();
}
StatusOr<ObjectInfo> HttpStorage::Stat(const std::string&) const { return Missing(); }
Status HttpStorage::List(const std::string&,
                         const std::function<Status(const ObjectInfo&)>&) const {
  return Missing();
}

struct S3Storage::Impl {};
S3Storage::S3Storage(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
S3Storage::~S3Storage() = default;
StatusOr<std::shared_ptr<S3Storage>> S3Storage::Create(const S3StorageOptions&) {
  return Missing();
}
std::string S3Storage::name() const { return "S3"; }
StatusOr<std::shared_ptr<const StoredObject>> S3Storage::Open(const std::string&) const {
  return Missing();
}
StatusOr<ObjectInfo> S3Storage::Stat(const std::string&) const { return Missing(); }
Status S3Storage::List(const std::string&, const std::function<Status(const ObjectInfo&)>&) const {
  return Missing();
}
Status S3Storage::Put(const std::string&, std::span<const std::byte>) const { return Missing(); }
Status S3Storage::Remove(const std::string&) const { return Missing(); }

namespace internal {

StatusOr<std::shared_ptr<AwsCredentialSource>> InstanceCredentials(const std::string&,
                                                                   std::chrono::milliseconds) {
  return Missing();
}

}  // namespace internal
}  // namespace ait::inline v0
