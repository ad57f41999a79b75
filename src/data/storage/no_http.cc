// SPDX-License-Identifier: Apache-2.0
// Remote storages where libcurl was not found.
#include "ait/data/storage/http_storage.h"

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

}  // namespace ait::inline v0
