// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/local_storage.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "data/storage/local_choice_internal.h"
#include "data/storage/local_engines_internal.h"
#include "data/storage/local_list_internal.h"

namespace ait::inline v0 {
namespace {

constexpr int kMaxThreads = 256;
constexpr std::int64_t kNetworkBlock = 1 << 20;  // at least, for streams of a network's files
constexpr int kNetworkDepth = 4;                 // the same
constexpr std::size_t kManyReads = 8;            // from so many on a mapping can win
constexpr std::int64_t kSmallRead = 32 << 10;    // up to here

// Looks at the file before it gives the last block, when all have been read.
class LocalStream final : public ObjectStream {
 public:
  LocalStream(std::shared_ptr<const internal::LocalFile> file, std::unique_ptr<ObjectStream> blocks,
              std::int64_t length_bytes)
      : file_(std::move(file)), blocks_(std::move(blocks)), left_(length_bytes) {}

  StatusOr<ByteView> Next() override {
    AIT_RETURN_IF_ERROR(status_);
    AIT_ASSIGN_OR_RETURN(ByteView block, blocks_->Next());
    left_ -= static_cast<std::int64_t>(block.size_bytes());
    if (left_ == 0 && !block.is_empty()) status_ = file_->Check();
    AIT_RETURN_IF_ERROR(status_);
    return block;
  }

 private:
  const std::shared_ptr<const internal::LocalFile> file_;
  const std::unique_ptr<ObjectStream> blocks_;
  std::int64_t left_;
  Status status_;
};

class LocalObject final : public StoredObject {
 public:
  LocalObject(std::shared_ptr<const internal::LocalFile> file,
              std::shared_ptr<internal::LocalChooser> chooser)
      : file_(std::move(file)), chooser_(std::move(chooser)) {}

  const ObjectInfo& info() const override { return file_->info(); }

  Status ReadAt(std::int64_t offset_bytes, std::span<std::byte> out) const override {
    AIT_RETURN_IF_ERROR(CheckRange(info(), offset_bytes, static_cast<std::int64_t>(out.size())));
    return out.empty() ? OkStatus() : file_->Read(offset_bytes, out);
  }

  void ReadMany(std::span<ObjectRead> reads) const override {
    std::int64_t bytes = 0, end = 0;
    bool all_fit = true;
    for (ObjectRead& read : reads) {
      const auto length = static_cast<std::int64_t>(read.out.size());
      read.status = CheckRange(info(), read.offset_bytes, length);
      all_fit = all_fit && read.status.ok();
      bytes += length;
      end = std::max(end, read.offset_bytes + length);
    }
    if (bytes == 0) return;
    if (!all_fit) {  // a mistake of the caller, who is not to wait for the fast way
      for (ObjectRead& read : reads) {
        if (read.status.ok()) read.status = ReadAt(read.offset_bytes, read.out);
      }
      return;
    }
    const bool are_small =
        reads.size() >= kManyReads && bytes <= static_cast<std::int64_t>(reads.size()) * kSmallRead;
    if (const internal::MappedFile* const mapped = are_small ? Mapped() : nullptr) {
      mapped->Read(*file_, reads);
    } else {
      internal::ReadTogether(*file_, chooser_->pool().get(), reads);
    }
    const Status unchanged = file_->CheckAfter(end, bytes);
    if (unchanged.ok()) return;
    for (ObjectRead& read : reads) {
      if (read.status.ok()) read.status = unchanged;
    }
  }

  StatusOr<std::unique_ptr<ObjectStream>> Stream(const StreamOptions& options) const override {
    AIT_ASSIGN_OR_RETURN(const internal::StreamRange range,
                         internal::CheckedRange(info(), options));
    const EngineChoice choice = chooser_->ForStream(*file_, range, options.depth);
    StreamOptions fitted = options;
    if (choice.streams == LocalEngine::kUring) {
      auto stream = internal::StreamByRing(file_, choice.direct_alignment, range, options);
      if (stream.ok()) return Checked(*std::move(stream), range);
      if (stream.status().code() == StatusCode::kAborted) return stream;
      chooser_->Warn(*file_, LocalEngine::kUring, stream.status());
    } else if (choice.streams == LocalEngine::kNetwork) {
      fitted.block_bytes = std::max(fitted.block_bytes, kNetworkBlock);
      if (fitted.depth > 0) fitted.depth = std::max(fitted.depth, kNetworkDepth);
    }
    std::shared_ptr<internal::ReadPool> pool = chooser_->pool();
    if (fitted.depth == 0 || pool == nullptr) {
      // In a forked child nothing is read ahead. The stream holds the file.
      fitted.depth = 0;
      auto holder = std::make_shared<LocalObject>(file_, chooser_);
      AIT_ASSIGN_OR_RETURN(auto stream, internal::StreamByReads(*holder, fitted, holder));
      return Checked(std::move(stream), range);
    }
    AIT_ASSIGN_OR_RETURN(auto stream,
                         internal::StreamByPool(file_, std::move(pool), range, fitted));
    return Checked(std::move(stream), range);
  }

 private:
  std::unique_ptr<ObjectStream> Checked(std::unique_ptr<ObjectStream> stream,
                                        internal::StreamRange range) const {
    return std::make_unique<LocalStream>(file_, std::move(stream), range.end - range.begin);
  }

  // The mapping, if that is how small reads of this file are done.
  const internal::MappedFile* Mapped() const {
    std::call_once(mapping_, [this] {
      if (chooser_->Maps(*file_)) mapped_ = chooser_->Map(*file_);
    });
    return mapped_.get();
  }

  const std::shared_ptr<const internal::LocalFile> file_;
  const std::shared_ptr<internal::LocalChooser> chooser_;
  mutable std::once_flag mapping_;
  mutable std::unique_ptr<internal::MappedFile> mapped_;
};

}  // namespace

class LocalStorage::Impl {
 public:
  explicit Impl(const LocalStorageOptions& options)
      : chooser_(std::make_shared<internal::LocalChooser>(options)) {}

  StatusOr<std::shared_ptr<internal::LocalFile>> Open(const std::string& url) const {
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<internal::LocalFile> file, internal::LocalFile::Open(url));
    file->SetPolicy(chooser_->PolicyFor(*file));
    return file;
  }

  const std::shared_ptr<internal::LocalChooser>& chooser() const { return chooser_; }

 private:
  const std::shared_ptr<internal::LocalChooser> chooser_;
};

StatusOr<std::unique_ptr<LocalStorage>> LocalStorage::Create(const LocalStorageOptions& options) {
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return InvalidArgumentError(options.threads, " threads; 1 to ", kMaxThreads, " are possible");
  }
  if (options.data_bytes < 0) {
    return InvalidArgumentError("data_bytes is ", options.data_bytes, ", at least 0 is needed");
  }
  if (options.check_interval.count() < 0 || options.check_interval > std::chrono::hours(1)) {
    return InvalidArgumentError("check_interval is ", options.check_interval.count(),
                                " ms; 0 to one hour are possible");
  }
  return std::unique_ptr<LocalStorage>(new LocalStorage(std::make_shared<Impl>(options)));
}

LocalStorage::LocalStorage(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalStorage::~LocalStorage() = default;

std::string LocalStorage::name() const {
  const LocalEngine engine = impl_->chooser()->options().engine;
  return engine == LocalEngine::kAutomatic ? "files" : StrCat("files by ", Name(engine));
}

StatusOr<std::shared_ptr<const StoredObject>> LocalStorage::Open(const std::string& url) const {
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<internal::LocalFile> file, impl_->Open(url));
  return std::make_shared<LocalObject>(std::move(file), impl_->chooser());
}

StatusOr<ObjectInfo> LocalStorage::Stat(const std::string& url) const {
  AIT_ASSIGN_OR_RETURN(const std::string path, internal::PathOf(url));
  struct stat stat{};
  if (::stat(path.c_str(), &stat) != 0) return ErrnoError(errno, "cannot stat ", path);
  return internal::InfoOf(url, path, stat);
}

Status LocalStorage::List(const std::string& prefix,
                          const std::function<Status(const ObjectInfo&)>& visit) const {
  return internal::ListFiles(prefix, visit);
}

StatusOr<EngineChoice> LocalStorage::Explain(const std::string& url) const {
  AIT_ASSIGN_OR_RETURN(const std::shared_ptr<internal::LocalFile> file, impl_->Open(url));
  return impl_->chooser()->Explain(*file);
}

}  // namespace ait::inline v0
