// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "ait/data/decode/compress.h"
#include "ait/data/format/formats.h"
#include "ait/data/format/index.h"
#include "data/format/format_entry_internal.h"
#include "data/format/sharded_samples_internal.h"
#include "data/format/unpacked_internal.h"

namespace ait::inline v0 {
namespace {

using internal::ShardFile;

constexpr std::string_view kIndexSuffixes[] = {".aitidx", ".idx", ".index"};
constexpr std::string_view kAboutSuffixes[] = {".json", ".md", ".yaml", ".yml", ".sqlite"};

std::string_view BaseName(std::string_view url) {
  return url.substr(url.rfind('/') + 1);  // npos + 1 is 0
}

// Whether an object of a directory is no shard: hidden, not finished, or the index of another one.
// `path` is its name below the directory.
bool IsBeside(std::string_view path, std::string_view url,
              const std::set<std::string_view>& names) {
  const std::string_view base = BaseName(path);
  if (base.empty() || base.ends_with(".partial")) return true;
  if (path.starts_with('.') || path.find("/.") != std::string_view::npos) return true;
  for (const std::string_view suffix : kIndexSuffixes) {
    if (!url.ends_with(suffix)) continue;
    const std::string_view stem = url.substr(0, url.size() - suffix.size());
    if (names.contains(stem) || names.contains(StrCat(stem, ".tar"))) return true;
  }
  return false;
}

// What lies beside shards to describe them: a README, an index of another program, _SUCCESS.
bool IsAbout(std::string_view url) {
  const std::string_view base = BaseName(url);
  const bool has_dot = base.find('.') != std::string_view::npos;
  if (!has_dot && (base.starts_with('_') || base == "README" || base == "LICENSE")) return true;
  return std::any_of(std::begin(kAboutSuffixes), std::end(kAboutSuffixes),
                     [&](std::string_view suffix) { return base.ends_with(suffix); });
}

std::vector<ShardFile> ShardsOf(std::string_view root, std::span<const ObjectInfo> objects) {
  std::set<std::string_view> names;
  for (const ObjectInfo& object : objects) names.insert(object.url);
  std::vector<ShardFile> files;
  for (const ObjectInfo& object : objects) {
    std::string_view path = object.url;
    if (path.starts_with(root)) path.remove_prefix(root.size());
    if (path.starts_with('/')) path.remove_prefix(1);
    if (IsBeside(path, object.url, names)) continue;
    ShardFile file = {.shard = object};
    const std::string index = IndexPath(object.url);
    const auto found = std::lower_bound(
        objects.begin(), objects.end(), index,
        [](const ObjectInfo& info, const std::string& url) { return info.url < url; });
    if (found != objects.end() && found->url == index) file.index = *found;
    files.push_back(std::move(file));
  }
  // They are shards if there is nothing else.
  const auto is_about = [](const ShardFile& file) { return IsAbout(file.shard.url); };
  if (!std::all_of(files.begin(), files.end(), is_about)) std::erase_if(files, is_about);
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
  return internal::ShardedSamples::Create(std::move(storage), url, ShardsOf(url, objects), options);
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

namespace {

// The streams of shards one after the other.
class ShardStreams final : public SampleStream {
 public:
  ShardStreams(std::shared_ptr<const Storage> storage, std::vector<std::string> urls,
               const ShardOptions& options, const StreamOptions& stream)
      : storage_(std::move(storage)),
        urls_(std::move(urls)),
        options_(options),
        stream_options_(stream) {}

  StatusOr<bool> Next(Sample& sample) override {
    while (true) {
      if (stream_ == nullptr) {
        if (next_url_ == urls_.size()) return false;
        // Views of the last shard would keep its blocks.
        for (SampleField& field : sample.fields) field.value = ByteView();
        AIT_RETURN_IF_ERROR(OpenNext());
      }
      StatusOr<bool> is_there = stream_->Next(sample);
      if (is_there.ok() && *is_there) {
        sample.id = next_id_++;
        return true;
      }
      if (!is_there.ok()) {
        // An error that stays is given once, then the next shard is begun.
        if (is_there.status() == last_error_) {
          Close();
          continue;
        }
        last_error_ = is_there.status();
        return last_error_;
      }
      Close();
    }
  }

 private:
  void Close() {
    stream_ = nullptr;
    shard_ = nullptr;
    last_error_ = OkStatus();
  }

  Status OpenNext() {
    const std::string& url = urls_[next_url_++];
    AIT_ASSIGN_OR_RETURN(auto object, storage_->Open(url));
    std::shared_ptr<const StoredObject> index;
    if (options_.check == ShardCheck::kContents) {
      auto opened = storage_->Open(IndexPath(url));
      if (opened.ok()) index = *std::move(opened);
    }
    std::string_view name = options_.format;
    if (name.empty()) {
      AIT_ASSIGN_OR_RETURN(name, FormatOf(*object));
    }
    const internal::ShardFormat* format = internal::ShardFormatNamed(name);
    // By what is in it, for a name need not say that it is compressed.
    AIT_ASSIGN_OR_RETURN(const std::vector<std::byte> head, internal::FileHead(*object, 4));
    const bool is_compressed = CompressionOf(head) != Compression::kNone;
    if (format != nullptr && format->stream != nullptr && index == nullptr && !is_compressed) {
      AIT_ASSIGN_OR_RETURN(stream_,
                           format->stream(std::move(object), options_, stream_options_, nullptr));
      return OkStatus();
    }
    ShardOptions options = options_;
    options.format = name;
    AIT_ASSIGN_OR_RETURN(shard_, OpenShard(std::move(object), options, std::move(index)));
    AIT_ASSIGN_OR_RETURN(stream_, shard_->Stream(stream_options_));
    return OkStatus();
  }

  const std::shared_ptr<const Storage> storage_;
  const std::vector<std::string> urls_;
  const ShardOptions options_;
  const StreamOptions stream_options_;
  std::size_t next_url_ = 0;
  std::int64_t next_id_ = 0;
  std::unique_ptr<ShardReader> shard_;  // outlives its stream
  std::unique_ptr<SampleStream> stream_;
  Status last_error_;
};

}  // namespace

StatusOr<std::unique_ptr<SampleStream>> StreamSamples(std::shared_ptr<const Storage> storage,
                                                      std::vector<std::string> urls,
                                                      const SamplesOptions& options,
                                                      const StreamOptions& stream) {
  if (urls.empty()) return NotFoundError("no shards to stream");
  return std::make_unique<ShardStreams>(std::move(storage), std::move(urls), options.shard, stream);
}

}  // namespace ait::inline v0
