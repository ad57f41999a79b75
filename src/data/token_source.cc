// SPDX-License-Identifier: Apache-2.0
#include "ait/data/token_source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "ait/data/storage/local_storage.h"
#include "data/formats_internal.h"
#include "data/little_endian_internal.h"

namespace ait::inline v0 {
namespace {

constexpr std::size_t kScratchBytes = std::size_t{1} << 16;

class FileTokenSource final : public TokenSource {
 public:
  FileTokenSource(std::string name, internal::TokenStream stream)
      : name_(std::move(name)), stream_(std::move(stream)) {
    for (const internal::TokenArray& array : stream_.arrays) {
      ends_.push_back(token_count() + array.count());
    }
  }

  const std::string& name() const override { return name_; }
  std::int64_t token_count() const override { return ends_.empty() ? 0 : ends_.back(); }
  std::int64_t vocabulary_size() const override { return stream_.vocabulary_size; }
  std::uint64_t digest() const override { return stream_.digest; }

  Status Read(std::int64_t first, std::span<std::int64_t> out) const override {
    TokenRead read = {first, out, {}};
    ReadMany(std::span(&read, 1));
    return read.status;
  }

  void ReadMany(std::span<TokenRead> reads) const override {
    std::size_t bytes = 0;
    for (TokenRead& read : reads) {
      read.status = CheckPositions(read);
      if (read.status.ok()) bytes += read.out.size() * sizeof(std::int64_t);
    }
    if (bytes == 0) return;
    // Not cleared, and of a size that stays in the cache.
    bytes = std::min(bytes, kScratchBytes);
    const auto memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
    const std::span<std::byte> scratch(memory.get(), bytes);
    // Those of one array go together, whatever the order they come in.
    std::vector<Placed> placed;
    placed.reserve(reads.size());
    for (TokenRead& read : reads) {
      if (!read.status.ok() || read.out.empty()) continue;
      const auto array =
          static_cast<std::size_t>(std::ranges::upper_bound(ends_, read.first) - ends_.begin());
      if (ends_[array] - read.first < static_cast<std::int64_t>(read.out.size())) {
        ReadAcross(array, read, scratch);
      } else {
        placed.push_back({array, &read});
      }
    }
    if (stream_.arrays.size() > 1) std::ranges::stable_sort(placed, {}, &Placed::array);
    std::vector<TokenRead*> together;
    for (auto begin = placed.begin(); begin != placed.end();) {
      const std::size_t array = begin->array;
      const auto end =
          std::find_if(begin, placed.end(), [&](const Placed& p) { return p.array != array; });
      ReadIn(array, std::span(begin, end), together, scratch);
      begin = end;
    }
  }

 private:
  struct Placed {
    std::size_t array;
    TokenRead* read;
  };

  Status CheckPositions(const TokenRead& read) const {
    const auto count = static_cast<std::int64_t>(read.out.size());
    if (read.first >= 0 && count <= token_count() && read.first <= token_count() - count) {
      return OkStatus();
    }
    return OutOfRangeError("cannot read ", count, " tokens from position ", read.first, " of ",
                           name_, ": it has ", token_count());
  }

  std::int64_t BeginOf(std::size_t array) const { return array == 0 ? 0 : ends_[array - 1]; }

  // Reads that lie within one array. Their positions are those in the array meanwhile.
  void ReadIn(std::size_t array, std::span<const Placed> placed, std::vector<TokenRead*>& together,
              std::span<std::byte> scratch) const {
    together.clear();
    for (const Placed& one : placed) {
      one.read->first -= BeginOf(array);
      together.push_back(one.read);
    }
    stream_.arrays[array].ReadMany(together, stream_.vocabulary_size, scratch);
    for (const Placed& one : placed) one.read->first += BeginOf(array);
  }

  // A read that goes on in the next array, or in several.
  void ReadAcross(std::size_t array, TokenRead& read, std::span<std::byte> scratch) const {
    std::int64_t first = read.first;
    std::span<std::int64_t> out = read.out;
    while (!out.empty() && read.status.ok()) {
      const std::int64_t left = ends_[array] - first;
      TokenRead part = {first - BeginOf(array),
                        out.first(std::min(out.size(), static_cast<std::size_t>(left))),
                        {}};
      TokenRead* const parts[] = {&part};
      stream_.arrays[array].ReadMany(parts, stream_.vocabulary_size, scratch);
      read.status = part.status;
      first += static_cast<std::int64_t>(part.out.size());
      out = out.subspan(part.out.size());
      ++array;
    }
  }

  std::string name_;
  internal::TokenStream stream_;
  std::vector<std::int64_t> ends_;  // position after the last token of each array
};

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

StatusOr<internal::TokenStream> OpenDirectory(const std::string& path, Verification verification) {
  if (!Exists(StrCat(path, "/", internal::kManifestName))) {
    return NotFoundError(
        "directory ", path, " has no ", internal::kManifestName,
        ": it is not a packed corpus, or packing was interrupted; run `ait pack text "
        "FILES --out ",
        path, "`");
  }
  AIT_ASSIGN_OR_RETURN(const internal::Manifest manifest, internal::ReadManifest(path));
  return internal::OpenShards(path, manifest, verification);
}

StatusOr<internal::TokenStream> OpenFile(const std::string& path, Verification verification) {
  std::array<std::byte, 8> start{};
  {
    AIT_ASSIGN_OR_RETURN(const internal::InputFile file, internal::InputFile::Open(path));
    if (file.size_bytes() == 0) return InvalidArgumentError("corpus ", path, " is empty");
    const auto length = std::min<std::int64_t>(file.size_bytes(), start.size());
    AIT_RETURN_IF_ERROR(file.ReadAt(0, std::span(start).first(static_cast<std::size_t>(length))));
  }
  const std::string_view magic(reinterpret_cast<const char*>(start.data()), start.size());
  if (magic == "AITTOKEN") return internal::OpenTokenFileStream(path, verification);
  if (internal::IsLlmcMagic(internal::LoadLittleEndian<std::int32_t>(start, 0))) {
    return internal::OpenLlmc(path);
  }
  if (path.ends_with(".idx") ||
      (path.ends_with(".bin") && Exists(path.substr(0, path.size() - 4) + ".idx"))) {
    return internal::OpenMegatron(path.substr(0, path.size() - 4));
  }
  return InvalidArgumentError("corpus ", path,
                              " has no known format: neither a token file of ait, nor a .bin of "
                              "llm.c, nor a .bin of Megatron "
                              "with its .idx; pack text by `ait pack text ",
                              path, " --out DIR`");
}

StatusOr<internal::TokenStream> OpenStream(const std::string& path, Verification verification) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return OpenDirectory(path, verification);
  if (Exists(path)) return OpenFile(path, verification);
  if (Exists(path + ".idx")) return internal::OpenMegatron(path);
  if (path.find("://") != std::string::npos) {
    return UnimplementedError("a corpus of tokens is read from files of this host, not from ", path,
                              "; copy it first: ait stage ", path, " DIRECTORY");
  }
  return NotFoundError("no corpus at ", path,
                       ": there is no such directory or file, and no Megatron index ", path,
                       ".idx");
}

}  // namespace

void TokenSource::ReadMany(std::span<TokenRead> reads) const {
  for (TokenRead& read : reads) read.status = Read(read.first, read.out);
}

StatusOr<std::unique_ptr<TokenSource>> OpenTokenSource(const std::string& path,
                                                       TokenSourceOptions options) {
  if (options.vocabulary_size < 0) {
    return InvalidArgumentError("vocabulary size ", options.vocabulary_size, " is negative");
  }
  AIT_ASSIGN_OR_RETURN(internal::TokenStream stream, OpenStream(path, options.verification));
  if (stream.vocabulary_size == 0) {
    stream.vocabulary_size = options.vocabulary_size > 0
                                 ? options.vocabulary_size
                                 : internal::TokenLimit(stream.arrays.front().dtype());
  } else if (options.vocabulary_size > 0 && options.vocabulary_size != stream.vocabulary_size) {
    return InvalidArgumentError("corpus ", path, " states a vocabulary of ", stream.vocabulary_size,
                                ", asked for is ", options.vocabulary_size);
  }
  AIT_ASSIGN_OR_RETURN(const auto files, LocalStorage::Create());
  for (internal::TokenArray& array : stream.arrays) AIT_RETURN_IF_ERROR(array.Attach(*files));
  return std::make_unique<FileTokenSource>(path, std::move(stream));
}

}  // namespace ait::inline v0
