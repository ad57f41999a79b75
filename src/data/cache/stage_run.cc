// SPDX-License-Identifier: Apache-2.0
// The work of `Stage`: copy all that is missing, bring it to the disk, read it back, name it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "ait/base/durable_file.h"
#include "ait/data/crc32c.h"
#include "base/file_descriptor.h"
#include "data/cache/file_io_internal.h"
#include "data/cache/stage_files_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

using State = StagedFile::State;

// Damage that comes back is the disk's, not an accident's.
constexpr int kMostRepairs = 3;

// An ETag without its quotes, which some services leave out of their lists.
std::string_view Bare(std::string_view version) {
  if (version.size() >= 2 && version.starts_with('"') && version.ends_with('"')) {
    version = version.substr(1, version.size() - 2);
  }
  return version;
}

// A file that is being worked on by one or more threads; open while one of them has a part of it.
struct OpenFile {
  std::shared_ptr<const StoredObject> object;
  FileDescriptor data;
  FileDescriptor map;
};

class Staging {
 public:
  Staging(const Storage& source, const StageOptions& options, StagePlan& plan)
      : source_(source),
        options_(options),
        plan_(plan),
        open_(std::make_unique<Slot[]>(plan.files.size())) {}

  Status Run() {
    const auto start = std::chrono::steady_clock::now();
    progress_ = {.phase = StageProgress::Phase::kCopy, .bytes = plan_.report.copied_bytes};
    AIT_RETURN_IF_ERROR(ForEachPart(
        [](const StagedFile& file) {
          return file.state == State::kNew || file.state == State::kPartial;
        },
        [](const StagedFile& file, int part) {
          return file.have[static_cast<std::size_t>(part)] == 0;
        },
        [this](std::size_t file, int part) { return CopyPart(file, part); }, {}));
    const auto middle = std::chrono::steady_clock::now();
    plan_.report.copy_time = middle - start;
    AIT_RETURN_IF_ERROR(SyncAll());

    const auto is_to_verify = [this](const StagedFile& file) {
      return file.state != State::kFinished || options_.verify == StageVerification::kAll;
    };
    progress_ = {.phase = StageProgress::Phase::kVerify};
    for (const StagedFile& file : plan_.files) {
      if (is_to_verify(file)) progress_.bytes += file.size_bytes;
    }
    AIT_RETURN_IF_ERROR(ForEachPart(
        is_to_verify, [](const StagedFile&, int) { return true; },
        [this](std::size_t file, int part) { return VerifyPart(file, part); },
        [this](std::size_t file) { return Finish(file); }));
    plan_.report.verify_time = std::chrono::steady_clock::now() - middle;
    return SyncAll();
  }

 private:
  using FilePredicate = std::function<bool(const StagedFile&)>;
  using PartPredicate = std::function<bool(const StagedFile&, int part)>;

  // Does `work` for the parts chosen, by all threads in the order of files; `finish` when the last
  // of a file is done, for empty files too.
  Status ForEachPart(const FilePredicate& wants_file, const PartPredicate& wants_part,
                     const std::function<StatusOr<std::int64_t>(std::size_t, int)>& work,
                     const std::function<Status(std::size_t)>& finish) {
    std::mutex mutex;
    Status result;
    std::size_t file = 0;
    int part = 0;
    std::vector<bool> wanted;  // asked now, since the work changes files
    for (const StagedFile& staged : plan_.files) wanted.push_back(wants_file(staged));
    std::vector<int> left(plan_.files.size(), 1);  // parts under way, and one for the file itself
    const auto worker = [&] {
      std::unique_lock lock(mutex);
      while (result.ok() && file < plan_.files.size()) {
        const std::size_t mine = file;
        const StagedFile& staged = plan_.files[mine];
        const bool is_wanted = wanted[mine];
        if (is_wanted && part < staged.parts()) {
          const int number = part++;
          if (!wants_part(staged, number)) continue;
          ++left[mine];
          lock.unlock();
          const StatusOr<std::int64_t> done = work(mine, number);
          lock.lock();
          if (done.ok() && result.ok()) {
            progress_.bytes_done += *done;
            if (options_.progress) result = options_.progress(progress_);
          } else if (result.ok()) {
            result = done.status();
          }
        } else {
          ++file;
          part = 0;
          if (!is_wanted) continue;
        }
        if (--left[mine] == 0) {
          lock.unlock();
          Status finished = finish ? finish(mine) : OkStatus();
          Close(mine);
          lock.lock();
          if (result.ok()) result = finished;
        }
      }
    };
    std::vector<std::jthread> threads;
    try {
      for (int i = 1; i < options_.threads; ++i) threads.emplace_back(worker);
    } catch (const std::system_error&) {
      // Fewer threads do it too.
    }
    worker();
    threads.clear();  // joins
    if (!result.ok()) {
      for (std::size_t i = 0; i < plan_.files.size(); ++i) Close(i);
    }
    return result;
  }

  StatusOr<std::shared_ptr<OpenFile>> Open(std::size_t number, bool with_source) {
    // Of this file alone: the source answers for many at once.
    const std::lock_guard lock(open_[number].mutex);
    std::shared_ptr<OpenFile>& open = open_[number].file;
    StagedFile& file = plan_.files[number];
    if (open == nullptr) {
      auto opened = std::make_shared<OpenFile>();
      AIT_RETURN_IF_ERROR(OpenData(file, *opened));
      open = std::move(opened);
    }
    if (with_source && open->object == nullptr) {
      AIT_ASSIGN_OR_RETURN(auto object, source_.Open(file.url));
      const ObjectInfo& found = object->info();
      if (found.size_bytes != file.size_bytes || Bare(found.version) != Bare(file.version)) {
        return AbortedError(file.url, " changed since it was listed; stage again");
      }
      open->object = std::move(object);
    }
    return open;
  }

  Status OpenData(StagedFile& file, OpenFile& open) const {
    if (file.state == State::kFinished || file.state == State::kUnlisted) {
      const std::string path = plan_.FinalPath(file);
      open.data = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
      return open.data.is_open() ? OkStatus() : ErrnoError(errno, "cannot open ", path);
    }
    const std::string path = plan_.DataPath(file), map = plan_.MapPath(file);
    const bool is_new = file.state == State::kNew;
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (is_new ? O_CREAT | O_TRUNC : 0);
    open.data = FileDescriptor(::open(path.c_str(), flags, 0666));
    if (!open.data.is_open()) return ErrnoError(errno, "cannot create ", path);
    open.map = FileDescriptor(::open(map.c_str(), flags, 0666));
    if (!open.map.is_open()) return ErrnoError(errno, "cannot create ", map);
    if (!is_new) return OkStatus();
    int error = 0;
    if (file.size_bytes > 0 && ::fallocate(open.data.get(), 0, 0, file.size_bytes) != 0) {
      error = errno;
      // Not every file system can; then the space is taken as it is written.
      if (error == EOPNOTSUPP || error == ENOSYS || error == EINVAL) {
        error = ::ftruncate(open.data.get(), file.size_bytes) == 0 ? 0 : errno;
      }
    }
    if (error != 0) {
      return ErrnoError(error, "no room for ", file.name, " of ", file.size_bytes, " bytes in ",
                        options_.directory);
    }
    AIT_RETURN_IF_ERROR(Annotate(WriteHeader(open.map.get(), file.header, false), map));
    file.state = State::kPartial;
    return OkStatus();
  }

  void Close(std::size_t number) {
    const std::lock_guard lock(open_[number].mutex);
    open_[number].file.reset();
  }

  // The bytes of a part, in memory of this thread.
  std::span<std::byte> Scratch(std::int64_t length) {
    thread_local std::vector<std::byte> memory;
    if (memory.size() < static_cast<std::size_t>(length)) {
      memory.resize(static_cast<std::size_t>(length));
    }
    return std::span(memory).first(static_cast<std::size_t>(length));
  }

  StatusOr<std::int64_t> CopyPart(std::size_t number, int part) {
    StagedFile& file = plan_.files[number];
    AIT_ASSIGN_OR_RETURN(const std::shared_ptr<OpenFile> open, Open(number, true));
    const std::int64_t length = file.PartLength(part);
    const std::span<std::byte> bytes = Scratch(length);
    AIT_RETURN_IF_ERROR(open->object->ReadAt(file.PartOffset(part), bytes));
    const std::uint32_t crc = Crc32c(bytes);
    Status written = WriteFully(open->data.get(), file.PartOffset(part), bytes);
    if (written.ok()) written = WriteSlot(open->map.get(), file.header, part, crc);
    AIT_RETURN_IF_ERROR(Annotate(written, StrCat(options_.directory, "/", file.name)));
    file.crcs[static_cast<std::size_t>(part)] = crc;
    file.have[static_cast<std::size_t>(part)] = 1;
    return length;
  }

  StatusOr<std::int64_t> VerifyPart(std::size_t number, int part) {
    StagedFile& file = plan_.files[number];
    const std::int64_t length = file.PartLength(part);
    for (int attempt = 0;; ++attempt) {
      AIT_ASSIGN_OR_RETURN(std::shared_ptr<OpenFile> open, Open(number, false));
      const std::span<std::byte> bytes = Scratch(length);
      // What is clean leaves the page cache, so that the disk answers.
      ::posix_fadvise(open->data.get(), file.PartOffset(part), length, POSIX_FADV_DONTNEED);
      const Status read = ReadFully(open->data.get(), file.PartOffset(part), bytes);
      if (read.ok() && Crc32c(bytes) == file.crcs[static_cast<std::size_t>(part)]) {
        verified_ += length;
        return length;
      }
      if (!read.ok() && read.code() != StatusCode::kDataLoss) {
        return Annotate(read, StrCat(options_.directory, "/", file.name));
      }
      ++damaged_;
      if (attempt == kMostRepairs) {
        return DataLossError(options_.directory, "/", file.name, ": the ", length,
                             " bytes from offset ", file.PartOffset(part),
                             " are not what was written, ", kMostRepairs,
                             " times; the disk or its file system is broken");
      }
      open.reset();
      AIT_RETURN_IF_ERROR(Unname(number));
      AIT_RETURN_IF_ERROR(CopyPart(number, part).status());
      AIT_ASSIGN_OR_RETURN(open, Open(number, false));
      if (::fdatasync(open->data.get()) != 0) return ErrnoError(errno, "cannot sync ", file.name);
    }
  }

  // A finished file that turned out to be damaged becomes an unfinished one.
  Status Unname(std::size_t number) {
    const std::lock_guard lock(open_[number].mutex);
    StagedFile& file = plan_.files[number];
    if (file.state == State::kPartial) return OkStatus();
    const std::string data = plan_.DataPath(file), map = plan_.MapPath(file);
    const FileDescriptor fd(::open(map.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!fd.is_open()) return ErrnoError(errno, "cannot create ", map);
    AIT_RETURN_IF_ERROR(WriteHeader(fd.get(), file.header, false));
    if (::rename(plan_.FinalPath(file).c_str(), data.c_str()) != 0) {
      return ErrnoError(errno, "cannot rename ", plan_.FinalPath(file), " to ", data);
    }
    file.state = State::kPartial;
    open_[number].file.reset();  // others that read it go on with their own
    // Parts that were good stay good: they are compared under their new name too.
    for (int part = 0; part < file.parts(); ++part) {
      AIT_RETURN_IF_ERROR(
          WriteSlot(fd.get(), file.header, part, file.crcs[static_cast<std::size_t>(part)]));
    }
    return OkStatus();
  }

  // What is overwritten in place while it is copied need not show in the reads themselves.
  Status CheckUnchanged(const StagedFile& file) const {
    AIT_ASSIGN_OR_RETURN(const ObjectInfo now, source_.Stat(file.url));
    if (now.size_bytes == file.size_bytes && Bare(now.version) == Bare(file.version)) {
      return OkStatus();
    }
    return AbortedError(file.url, " changed while it was copied; stage again");
  }

  // All parts of a file are good: it gets its name.
  Status Finish(std::size_t number) {
    StagedFile& file = plan_.files[number];
    if (file.state == State::kFinished || file.state == State::kUnlisted) return OkStatus();
    if (file.state == State::kNew) AIT_RETURN_IF_ERROR(Open(number, false).status());  // empty
    AIT_RETURN_IF_ERROR(CheckUnchanged(file));
    const std::string path = plan_.FinalPath(file), data = plan_.DataPath(file);
    if (file.name.find('/') != std::string::npos) {
      AIT_RETURN_IF_ERROR(MakeFolder(path.substr(0, path.rfind('/'))));
    }
    if (::rename(data.c_str(), path.c_str()) != 0) {
      return ErrnoError(errno, "cannot rename ", data, " to ", path);
    }
    file.state = State::kUnlisted;
    return OkStatus();
  }

  Status MakeFolder(const std::string& path) const {
    if (::mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return OkStatus();
    if (errno != ENOENT) return ErrnoError(errno, "cannot make directory ", path);
    AIT_RETURN_IF_ERROR(MakeFolder(path.substr(0, path.rfind('/'))));
    if (::mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return OkStatus();
    return ErrnoError(errno, "cannot make directory ", path);
  }

  // One sync for all files, however small and many they are.
  Status SyncAll() {
    plan_.report.verified_bytes = verified_;
    plan_.report.damaged_parts = damaged_;
    const FileDescriptor fd(::open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.is_open()) return ErrnoError(errno, "cannot open ", options_.directory);
    if (::syncfs(fd.get()) != 0) return ErrnoError(errno, "cannot sync ", options_.directory);
    return OkStatus();
  }

  const Storage& source_;
  const StageOptions& options_;
  StagePlan& plan_;
  struct Slot {
    std::mutex mutex;
    std::shared_ptr<OpenFile> file;
  };
  const std::unique_ptr<Slot[]> open_;  // one for each file
  StageProgress progress_;
  std::atomic<std::int64_t> verified_{0}, damaged_{0};
};

}  // namespace

Status RunStage(const Storage& source, const StageOptions& options, StagePlan& plan) {
  return Staging(source, options, plan).Run();
}

}  // namespace internal
}  // namespace ait::inline v0
