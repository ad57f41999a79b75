// SPDX-License-Identifier: Apache-2.0
#include "ait/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <unordered_map>
#include <utility>

#include "ait/base/durable_file.h"
#include "data/format/safetensors_header_internal.h"

namespace ait::inline v0 {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

Status WriteSafetensors(const std::string& path, std::span<const TensorBytes> tensors,
                        const SafetensorsMetadata& metadata) {
  internal::SafetensorsHeader header{.tensors = {}, .metadata = metadata};
  std::unordered_map<std::string_view, std::span<const std::byte>> bytes_of;
  for (const TensorBytes& tensor : tensors) {
    header.tensors.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
    bytes_of[tensor.name] = tensor.bytes;
  }
  StatusOr<std::string> json = internal::FormatSafetensorsHeader(header);
  if (!json.ok()) return Annotate(json.status(), StrCat("cannot write ", path));
  std::int64_t size = static_cast<std::int64_t>(sizeof(std::uint64_t) + json->size());
  for (const TensorInfo& tensor : header.tensors) {
    const auto given = static_cast<std::int64_t>(bytes_of[tensor.name].size());
    if (given != tensor.bytes().value()) {
      return InvalidArgumentError("cannot write ", path, ": tensor \"", tensor.name, "\" (",
                                  internal::DescribeTensor(tensor.dtype, tensor.shape), ") has ",
                                  tensor.bytes(), " bytes, given are ", given);
    }
    size += given;
  }

  AIT_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path));
  AIT_RETURN_IF_ERROR(file.Reserve(Bytes(size)));
  const std::uint64_t length = json->size();
  AIT_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(&length, 1))));
  AIT_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(*json))));
  for (const TensorInfo& tensor : header.tensors)
    AIT_RETURN_IF_ERROR(file.Append(bytes_of[tensor.name]));
  return file.Commit();
}

StatusOr<SafetensorsFile> SafetensorsFile::Open(std::string path) {
  SafetensorsFile file(std::move(path));
  file.file_ = ::open(file.path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.file_ < 0) return ErrnoError(errno, "cannot open ", file.path_);
  struct stat info{};
  if (::fstat(file.file_, &info) != 0) return ErrnoError(errno, "cannot look at ", file.path_);
  if (!S_ISREG(info.st_mode)) return InvalidArgumentError(file.path_, " is not a regular file");

  std::uint64_t length = 0;
  constexpr std::int64_t kPrefix = sizeof(length);
  if (info.st_size < kPrefix) {
    return DataLossError(file.path_, " is no safetensors file: it has ", std::int64_t{info.st_size},
                         " bytes, at least 8 are needed");
  }
  AIT_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(&length, 1))));
  if (length > static_cast<std::uint64_t>(kMaxSafetensorsHeaderBytes)) {
    return DataLossError(file.path_, " is damaged or no safetensors file: its header would have ",
                         length, " bytes, allowed are ", kMaxSafetensorsHeaderBytes);
  }
  file.data_begin_bytes_ = kPrefix + static_cast<std::int64_t>(length);
  if (file.data_begin_bytes_ > info.st_size) {
    return DataLossError(file.path_, " is truncated: its header ends at byte ",
                         file.data_begin_bytes_, ", the file at ", std::int64_t{info.st_size});
  }
  std::string json(length, '\0');
  AIT_RETURN_IF_ERROR(file.ReadAt(kPrefix, std::as_writable_bytes(std::span(json))));
  auto header = internal::ParseSafetensorsHeader(json, info.st_size - file.data_begin_bytes_);
  if (!header.ok()) return Annotate(header.status(), file.path_);
  file.tensors_ = std::move(header->tensors);
  file.metadata_ = std::move(header->metadata);
  std::sort(file.tensors_.begin(), file.tensors_.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  return file;
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      data_begin_bytes_(other.data_begin_bytes_),
      tensors_(std::move(other.tensors_)),
      metadata_(std::move(other.metadata_)) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(data_begin_bytes_, other.data_begin_bytes_);
  std::swap(tensors_, other.tensors_);
  std::swap(metadata_, other.metadata_);
  return *this;
}

SafetensorsFile::~SafetensorsFile() {
  if (file_ >= 0) ::close(file_);
}

const TensorInfo* SafetensorsFile::Find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const TensorInfo& a, std::string_view b) { return a.name < b; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

Status SafetensorsFile::Read(const TensorInfo& tensor, std::span<std::byte> output) const {
  if (static_cast<std::int64_t>(output.size()) != tensor.bytes().value()) {
    return InvalidArgumentError("tensor \"", tensor.name, "\" of ", path_, " has ", tensor.bytes(),
                                " bytes, the output ", output.size());
  }
  return ReadAt(data_begin_bytes_ + tensor.begin_bytes, output);
}

Status SafetensorsFile::ReadAt(std::int64_t offset, std::span<std::byte> output) const {
  while (!output.empty()) {
    const ssize_t got = ::pread(file_, output.data(), output.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, "cannot read ", path_, " at byte ", offset);
    if (got == 0)
      return DataLossError(path_, " ends at byte ", offset, ": it was changed meanwhile");
    output = output.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
  return OkStatus();
}

}  // namespace ait::inline v0
