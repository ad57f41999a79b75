// SPDX-License-Identifier: Apache-2.0
#include "ait/data/format/folder.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "ait/data/crc32c.h"
#include "data/format/format_entry_internal.h"
#include "data/format/format_util_internal.h"
#include "data/mix_internal.h"

namespace ait::inline v0 {
namespace {

using internal::BaseName;

struct File {
  std::string path;  // below the root
  std::string url;
  std::int64_t size_bytes = 0;
  std::string version;
  std::size_t key_bytes = 0;  // the key is so much of `path`
  std::string field = {};     // what follows its dot, in lower case as in tars

  std::string_view key() const { return std::string_view(path).substr(0, key_bytes); }
  std::string_view extension() const { return field; }
};

class Folder final : public SampleSource {
 public:
  Folder(std::shared_ptr<const Storage> storage, std::string name, std::vector<File> files,
         std::vector<std::size_t> begins, std::vector<std::string> classes, FolderOptions options)
      : storage_(std::move(storage)),
        name_(std::move(name)),
        files_(std::move(files)),
        begins_(std::move(begins)),
        classes_(std::move(classes)),
        options_(options) {
    for (const File& file : files_) {
      digest_ = internal::Fold(digest_, Crc32c(std::as_bytes(std::span(file.path))));
      digest_ = internal::Fold(digest_, static_cast<std::uint64_t>(file.size_bytes));
    }
    version_ = digest_;
    for (const File& file : files_) {
      version_ = internal::Fold(version_, Crc32c(std::as_bytes(std::span(file.version))));
    }
  }

  const std::string& name() const override { return name_; }
  std::int64_t sample_count() const override {
    return static_cast<std::int64_t>(begins_.size()) - 1;
  }
  std::uint64_t digest() const override { return digest_; }
  std::uint64_t version() const override { return version_; }

  void Read(std::span<SampleRead> reads) const override {
    for (SampleRead& read : reads) {
      read.status = ReadOne(read.id, read.sample);
      read.sample.id = read.id;
    }
  }
  SamplePlace place(std::int64_t id) const override {
    return {.url = FilesOf(id).front().url, .size_bytes = size_bytes(id)};
  }
  std::int64_t size_bytes(std::int64_t id) const override {
    std::int64_t sum = 0;
    for (const File& file : FilesOf(id)) sum += file.size_bytes;
    return sum;
  }
  StatusOr<SampleSize> FindSize(std::int64_t id) const override {
    const std::span<const File> files = FilesOf(id);
    return SampleSize{
        .bytes = size_bytes(id),
        .fields = std::ssize(files) + (options_.labels == FolderLabels::kTop ? 2 : 0)};
  }

 private:
  std::span<const File> FilesOf(std::int64_t id) const {
    const auto at = static_cast<std::size_t>(id);
    return std::span(files_).subspan(begins_[at], begins_[at + 1] - begins_[at]);
  }

  Status ReadOne(std::int64_t id, Sample& sample) const {
    if (id < 0 || id >= sample_count()) {
      return OutOfRangeError(name_, " has no sample ", id, " but ", sample_count());
    }
    const std::span<const File> files = FilesOf(id);
    internal::SampleBuilder builder(sample);
    builder.SetKey(options_.grouping == FolderGrouping::kSingle ? std::string_view(files[0].path)
                                                                : files[0].key());
    for (const File& file : files) {
      if (file.size_bytes > options_.max_record_bytes) {
        return InvalidArgumentError(file.url, " has ", file.size_bytes, " bytes, allowed are ",
                                    options_.max_record_bytes, " (max_record_bytes)");
      }
      AIT_ASSIGN_OR_RETURN(const auto object, storage_->Open(file.url));
      if (object->info().size_bytes != file.size_bytes) {
        return AbortedError(file.url, " has changed: it had ", file.size_bytes,
                            " bytes when the folder was listed, now ", object->info().size_bytes);
      }
      AIT_ASSIGN_OR_RETURN(ByteView bytes, ReadWhole(*object, options_.max_record_bytes));
      builder.AddBytes(file.extension().empty() ? std::string_view("data") : file.extension(),
                       std::move(bytes));
    }
    if (options_.labels == FolderLabels::kTop) {
      const std::string top = files[0].path.substr(0, files[0].path.find('/'));
      const auto place = std::lower_bound(classes_.begin(), classes_.end(), top);
      builder.AddBytes("class", ByteView::Copy(top), FieldKind::kText);
      builder.AddInteger("label", place - classes_.begin());
    }
    builder.Finish();
    return OkStatus();
  }

  const std::shared_ptr<const Storage> storage_;
  const std::string name_;
  const std::vector<File> files_;          // by key, then extension
  const std::vector<std::size_t> begins_;  // of samples in files_, and the end
  const std::vector<std::string> classes_;
  const FolderOptions options_;
  std::uint64_t digest_ = 0;
  std::uint64_t version_ = 0;
};

bool IsHidden(std::string_view path) {
  return path.starts_with('.') || path.find("/.") != std::string_view::npos;
}

// WebDataset's rule: the key ends before the first dot of the last component; without a dot, or
// with nothing before it, the file is of no sample.
bool SplitByKey(File& file) {
  const std::size_t name = file.path.size() - BaseName(file.path).size();
  const std::size_t dot = file.path.find('.', name);
  if (dot == std::string::npos || dot == name) return false;
  file.key_bytes = dot;
  return true;
}

void SplitSingle(File& file) {
  const std::size_t name = file.path.size() - BaseName(file.path).size();
  const std::size_t dot = file.path.rfind('.');
  file.key_bytes = dot == std::string::npos || dot <= name ? file.path.size() : dot;
}

}  // namespace

StatusOr<std::shared_ptr<const SampleSource>> OpenFolder(std::shared_ptr<const Storage> storage,
                                                         const std::string& url,
                                                         const FolderOptions& options) {
  std::vector<ObjectInfo> objects;
  AIT_RETURN_IF_ERROR(storage->List(url, [&](const ObjectInfo& object) {
    objects.push_back(object);
    return OkStatus();
  }));
  return OpenFolder(std::move(storage), url, objects, options);
}

StatusOr<std::shared_ptr<const SampleSource>> OpenFolder(std::shared_ptr<const Storage> storage,
                                                         const std::string& url,
                                                         std::span<const ObjectInfo> objects,
                                                         const FolderOptions& options) {
  const std::string root = url.empty() || url.ends_with('/') ? url : url + "/";
  std::vector<File> files;
  std::set<std::string> classes;
  for (const ObjectInfo& object : objects) {
    File file = {.path = object.url.starts_with(root) ? object.url.substr(root.size()) : object.url,
                 .url = object.url,
                 .size_bytes = object.size_bytes,
                 .version = object.version};
    if (IsHidden(file.path)) continue;
    if (options.grouping == FolderGrouping::kSingle) {
      SplitSingle(file);
    } else if (!SplitByKey(file)) {
      continue;
    }
    file.field = internal::LowerCase(
        std::string_view(file.path).substr(std::min(file.path.size(), file.key_bytes + 1)));
    const std::size_t slash = file.path.find('/');
    if (options.labels == FolderLabels::kTop) {
      if (slash == std::string::npos) {
        return InvalidArgumentError(file.url, " lies in no directory that could be its class");
      }
      classes.insert(file.path.substr(0, slash));
    }
    files.push_back(std::move(file));
  }
  if (files.empty()) return NotFoundError(url, " holds no files that are samples");
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::pair(a.key(), a.extension()) < std::pair(b.key(), b.extension());
  });
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const bool is_first = i == 0 || options.grouping == FolderGrouping::kSingle ||
                          files[i - 1].key() != files[i].key();
    if (is_first) begins.push_back(i);
    if (!is_first && files[i - 1].extension() == files[i].extension()) {
      return InvalidArgumentError(files[i].url, " and ", files[i - 1].url,
                                  " have the same key and extension");
    }
  }
  begins.push_back(files.size());
  return std::make_shared<Folder>(std::move(storage), url, std::move(files), std::move(begins),
                                  std::vector<std::string>(classes.begin(), classes.end()),
                                  options);
}

namespace internal {
namespace {

// Only media files are sure not to be shards; any other directory is opened by the name "folder".
bool Match(std::span<const ObjectInfo> objects) {
  constexpr std::array<std::string_view, 15> kMedia = {".jpg", ".jpeg", ".png", ".webp", ".bmp",
                                                       ".gif", ".ppm",  ".pgm", ".tif",  ".tiff",
                                                       ".wav", ".flac", ".mp3", ".opus", ".mp4"};
  constexpr std::array<std::string_view, 9> kShards = {
      ".tar", ".tfrecord", ".mds", ".npy", ".npz", ".jsonl", ".csv", ".bin", ".safetensors"};
  bool has_media = false;
  for (const ObjectInfo& object : objects) {
    const auto ends = [&](std::string_view extension) {
      return HasExtension(object.url, extension);
    };
    if (std::any_of(kShards.begin(), kShards.end(), ends)) return false;
    has_media = has_media || std::any_of(kMedia.begin(), kMedia.end(), ends);
  }
  return has_media;
}

StatusOr<std::shared_ptr<const SampleSource>> Open(std::shared_ptr<const Storage> storage,
                                                   const std::string& url,
                                                   std::span<const ObjectInfo> objects,
                                                   const SamplesOptions& options) {
  return OpenFolder(std::move(storage), url, objects,
                    {.max_record_bytes = options.shard.max_record_bytes});
}

}  // namespace

extern const CollectionFormat kFolderCollection;
const CollectionFormat kFolderCollection = {
    .name = "folder", .summary = "single files, grouped by key", .match = Match, .open = Open};

}  // namespace internal
}  // namespace ait::inline v0
