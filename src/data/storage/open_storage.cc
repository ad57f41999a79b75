// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/open_storage.h"

#include <map>
#include <mutex>
#include <utility>

#include "data/storage/uri_internal.h"

namespace ait::inline v0 {
namespace {

// "" for paths and file://, "http" for both kinds of it, "s3". **Errors.** InvalidArgument.
StatusOr<std::string> KindOf(std::string_view url) {
  const std::string scheme = internal::SchemeOf(url);
  if (scheme.empty() || scheme == "file") return std::string();
  if (scheme == "http" || scheme == "https") return std::string("http");
  if (scheme == "s3") return scheme;
  return InvalidArgumentError("'", internal::WithoutSecrets(url), "' is of scheme '", scheme,
                              "'; possible are paths, file, http, https and s3");
}

class RoutingStorage final : public Storage {
 public:
  explicit RoutingStorage(StorageOptions options) : options_(std::move(options)) {}

  std::string name() const override { return "files, web servers and S3, by URL"; }
  StatusOr<std::shared_ptr<const StoredObject>> Open(const std::string& url) const override {
    AIT_ASSIGN_OR_RETURN(const std::shared_ptr<Storage> storage, StorageOf(url));
    return storage->Open(url);
  }
  StatusOr<ObjectInfo> Stat(const std::string& url) const override {
    AIT_ASSIGN_OR_RETURN(const std::shared_ptr<Storage> storage, StorageOf(url));
    return storage->Stat(url);
  }
  Status List(const std::string& prefix,
              const std::function<Status(const ObjectInfo&)>& visit) const override {
    AIT_ASSIGN_OR_RETURN(const std::shared_ptr<Storage> storage, StorageOf(prefix));
    return storage->List(prefix, visit);
  }

 private:
  // One that could not be made is tried again: keys may have come since.
  StatusOr<std::shared_ptr<Storage>> StorageOf(const std::string& url) const {
    AIT_ASSIGN_OR_RETURN(const std::string kind, KindOf(url));
    const std::scoped_lock lock(mutex_);
    std::shared_ptr<Storage>& storage = storages_[kind];
    if (!storage) {
      AIT_ASSIGN_OR_RETURN(storage, OpenStorage(url, options_));
    }
    return storage;
  }

  const StorageOptions options_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<Storage>> storages_;
};

}  // namespace

StatusOr<std::shared_ptr<Storage>> OpenStorage(std::string_view url,
                                               const StorageOptions& options) {
  AIT_ASSIGN_OR_RETURN(const std::string kind, KindOf(url));
  if (kind == "s3") {
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<Storage> storage, S3Storage::Create(options.s3));
    return storage;
  }
  if (kind == "http") {
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<Storage> storage, HttpStorage::Create(options.http));
    return storage;
  }
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<Storage> storage, LocalStorage::Create(options.local));
  return storage;
}

std::shared_ptr<Storage> AnyStorage(const StorageOptions& options) {
  return std::make_shared<RoutingStorage>(options);
}

StatusOr<std::shared_ptr<Storage>> OpenStorage(std::string_view url) {
  const StorageOptions options;
  return OpenStorage(url, options);
}

std::shared_ptr<Storage> AnyStorage() {
  const StorageOptions options;
  return AnyStorage(options);
}

}  // namespace ait::inline v0
