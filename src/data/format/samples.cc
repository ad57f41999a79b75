// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <utility>

#include "ait/data/format/formats.h"
#include "ait/data/format/index.h"
#include "data/format/format_entry_internal.h"
#include "data/format/sharded_samples_internal.h"

namespace ait::inline v0 {
namespace {

using internal::ShardFile;

constexpr std::string_view kIndexSuffixes[] = {".aitidx", ".idx", ".index"};

std::string_view BaseName(std::string_view url) {
  return url.substr(url.rfind('/') + 1);  // npos + 1 is 0
}

// Whether an object of a directory is no shard: hidden, not finished, or the index of another one.
bool IsBeside(std::string_view url, const std::set<std::string_view>& names) {
  const std::string_view base = BaseName(url);
  if (base.empty() || base.front() == '.' || base.ends_with(".partial")) return true;
  for (const std::string_view suffix : kIndexSuffixes) {
    if (!url.ends_with(suffix)) continue;
    const std::string_view stem = url.substr(0, url.size() - suffix.size());
    if (names.contains(stem) || names.contains(StrCat(stem, ".tar"))) return true;
  }
  return false;
}

std::vector<ShardFile> ShardsOf(std::span<const ObjectInfo> objects) {
  std::set<std::string_view> names;
  for (const ObjectInfo& object : objects) names.insert(object.url);
  std::vector<ShardFile> files;
  for (const ObjectInfo& object : objects) {
    if (IsBeside(object.url, names)) continue;
    ShardFile file = {.shard = object};
    const std::string index = IndexPath(object.url);
    const auto found = std::lower_bound(
        objects.begin(), objects.end(), index,
        [](const ObjectInfo& info, const std::string& url) { return info.url < url; });
    if (found != objects.end() && found->url == index) file.index = *found;
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

StatusOr<std::shared_ptr<const SampleSource>> OpenSamples(std::shared_ptr<const Storage> storage,
                                                          const std::string& url,
                                                          const SamplesOptions& options) {
  if (const StatusOr<ObjectInfo> file = storage->Stat(url); file.ok()) {
    return OpenSamples(std::move(storage), std::vector<std::string>{url}, options);
  }
  std::vector<ObjectInfo> objects;
  AIT_RETURN_IF_ERROR(storage->List(url, [&](const ObjectInfo& info) {
    objects.push_back(info);
    return OkStatus();
  }));
  for (const internal::CollectionFormat* format : internal::CollectionFormats()) {
    const bool is_asked = options.shard.format == format->name;
    if (is_asked || (options.shard.format.empty() && format->match(objects))) {
      return format->open(std::move(storage), url, objects, options);
    }
  }
  std::sort(objects.begin(), objects.end(),
            [](const ObjectInfo& a, const ObjectInfo& b) { return a.url < b.url; });
  return internal::ShardedSamples::Create(std::move(storage), url, ShardsOf(objects), options);
}

StatusOr<std::shared_ptr<const SampleSource>> OpenSamples(std::shared_ptr<const Storage> storage,
                                                          const std::vector<std::string>& urls,
                                                          const SamplesOptions& options) {
  std::vector<ShardFile> files;
  for (const std::string& url : urls) {
    ShardFile& file = files.emplace_back();
    AIT_ASSIGN_OR_RETURN(file.shard, storage->Stat(url));
    StatusOr<ObjectInfo> index = storage->Stat(IndexPath(url));
    if (index.ok()) {
      file.index = *std::move(index);
    } else if (index.status().code() != StatusCode::kNotFound) {
      return index.status();
    }
  }
  std::string name = urls.empty() ? "an empty list of shards" : urls.front();
  if (urls.size() > 1) name += StrCat(" and ", urls.size() - 1, " more");
  return internal::ShardedSamples::Create(std::move(storage), std::move(name), std::move(files),
                                          options);
}

}  // namespace ait::inline v0
