// SPDX-License-Identifier: Apache-2.0
#include "data/storage/local_list_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "data/storage/local_file_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kMaxDepth = 256;

struct Entry {
  std::string name;  // of a directory with a '/' behind it: then names sort as whole URLs do
  struct stat stat;
};

struct DirectoryId {
  dev_t device;
  ino_t inode;
  bool operator==(const DirectoryId&) const = default;
};

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

class Lister {
 public:
  explicit Lister(const std::function<Status(const ObjectInfo&)>& visit) : visit_(visit) {}

  // `url` and `path` name the same directory and end in '/'.
  Status List(const std::string& url, const std::string& path) {
    if (above_.size() == kMaxDepth) {
      return InvalidArgumentError(path, " lies more than ", kMaxDepth, " directories deep");
    }
    AIT_ASSIGN_OR_RETURN(const std::vector<Entry> entries, Read(path));
    for (const Entry& entry : entries) {
      const std::string entry_url = url + entry.name;
      if (S_ISREG(entry.stat.st_mode)) {
        AIT_ASSIGN_OR_RETURN(const ObjectInfo info,
                             InfoOf(entry_url, path + entry.name, entry.stat));
        Status visited = visit_(info);
        is_visit_error_ = !visited.ok();
        AIT_RETURN_IF_ERROR(visited);
        continue;
      }
      const DirectoryId id = {entry.stat.st_dev, entry.stat.st_ino};
      if (std::find(above_.begin(), above_.end(), id) != above_.end()) continue;  // a loop
      above_.push_back(id);
      const Status status = List(entry_url, path + entry.name);
      above_.pop_back();
      // A directory that was deleted meanwhile holds nothing any more.
      if (status.code() == StatusCode::kNotFound && !is_visit_error_) continue;
      AIT_RETURN_IF_ERROR(status);
    }
    return OkStatus();
  }

  Status Start(const std::string& url, const std::string& path) {
    struct stat stat{};
    if (::stat(path.c_str(), &stat) != 0 && errno != ENOTDIR) {
      return ErrnoError(errno, "cannot list ", path);
    }
    if (!S_ISDIR(stat.st_mode)) return NotFoundError(path, " is not a directory");
    above_.push_back({stat.st_dev, stat.st_ino});
    return List(url, path);
  }

 private:
  StatusOr<std::vector<Entry>> Read(const std::string& path) {
    FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.is_open()) return ErrnoError(errno, "cannot list ", path);
    const std::unique_ptr<DIR, CloseDirectory> directory(::fdopendir(fd.get()));
    if (directory == nullptr) return ErrnoError(errno, "cannot list ", path);
    const int number = fd.Release();  // it is the DIR's now
    std::vector<Entry> entries;
    while (true) {
      errno = 0;
      const dirent* const found = ::readdir(directory.get());
      if (found == nullptr) {
        if (errno != 0) return ErrnoError(errno, "cannot list ", path);
        break;
      }
      const std::string_view name = found->d_name;
      if (name == "." || name == "..") continue;
      const bool may_be = found->d_type == DT_REG || found->d_type == DT_DIR ||
                          found->d_type == DT_LNK || found->d_type == DT_UNKNOWN;
      if (!may_be) continue;
      Entry entry = {std::string(name), {}};
      if (::fstatat(number, found->d_name, &entry.stat, 0) != 0) {
        if (errno == ENOENT || errno == ELOOP) continue;  // deleted, or a link to nowhere
        return ErrnoError(errno, "cannot stat ", path, name);
      }
      if (S_ISDIR(entry.stat.st_mode)) {
        entry.name += '/';
      } else if (!S_ISREG(entry.stat.st_mode)) {
        continue;
      }
      entries.push_back(std::move(entry));
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
    return entries;
  }

  const std::function<Status(const ObjectInfo&)>& visit_;
  bool is_visit_error_ = false;
  std::vector<DirectoryId> above_;
};

}  // namespace

Status ListFiles(const std::string& prefix, const std::function<Status(const ObjectInfo&)>& visit) {
  AIT_ASSIGN_OR_RETURN(std::string path, PathOf(prefix));
  std::string url = prefix;
  if (!path.ends_with('/')) {
    path += '/';
    url += '/';
  }
  return Lister(visit).Start(url, path);
}

}  // namespace ait::inline v0::internal
