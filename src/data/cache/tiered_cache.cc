// SPDX-License-Identifier: Apache-2.0
#include "ait/data/cache/tiered_cache.h"

#include <utility>

#include "data/cache/cache_core_internal.h"

namespace ait::inline v0 {
namespace {

using internal::CacheCore;
using internal::CachedParts;

class CachedObject final : public StoredObject {
 public:
  CachedObject(std::shared_ptr<const CacheCore> core, std::shared_ptr<const CachedParts> parts)
      : core_(std::move(core)), parts_(std::move(parts)) {}

  const ObjectInfo& info() const override { return parts_->remote->info(); }
  Status ReadAt(std::int64_t offset_bytes, std::span<std::byte> out) const override {
    return core_->Read(*parts_, offset_bytes, out);
  }
  void ReadMany(std::span<ObjectRead> reads) const override { core_->ReadMany(parts_, reads); }
  StatusOr<std::unique_ptr<ObjectStream>> Stream(const StreamOptions& options) const override {
    return CacheCore::Stream(core_, parts_, options);
  }

 private:
  const std::shared_ptr<const CacheCore> core_;
  const std::shared_ptr<const CachedParts> parts_;  // tasks of the cache hold it too
};

}  // namespace

TieredCache::TieredCache(std::shared_ptr<CacheCore> core) : core_(std::move(core)) {}
TieredCache::~TieredCache() = default;

StatusOr<std::shared_ptr<TieredCache>> TieredCache::Create(std::shared_ptr<const Storage> storage,
                                                           TieredCacheOptions options) {
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<CacheCore> core,
                       CacheCore::Create(std::move(storage), std::move(options)));
  return std::shared_ptr<TieredCache>(new TieredCache(std::move(core)));
}

std::string TieredCache::name() const {
  std::string text;
  for (const auto& tier : core_->tiers()) text += StrCat(tier->shelf().name(), ", ");
  return StrCat(core_->storage().name(), " through a cache (",
                text.empty() ? "no tier" : text.substr(0, text.size() - 2), ")");
}

StatusOr<std::shared_ptr<const StoredObject>> TieredCache::Open(const std::string& url) const {
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<CachedParts> parts, core_->OpenParts(url));
  return std::make_shared<const CachedObject>(core_, std::move(parts));
}

StatusOr<ObjectInfo> TieredCache::Stat(const std::string& url) const {
  return core_->storage().Stat(url);
}

Status TieredCache::List(const std::string& prefix,
                         const std::function<Status(const ObjectInfo&)>& visit) const {
  return core_->storage().List(prefix, visit);
}

CacheStatistics TieredCache::statistics() const { return core_->statistics(); }

}  // namespace ait::inline v0
