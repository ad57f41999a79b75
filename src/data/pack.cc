// SPDX-License-Identifier: Apache-2.0
#include "ait/data/pack.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "ait/base/durable_file.h"
#include "ait/data/crc32c.h"
#include "ait/data/token_file.h"
#include "data/corpus_directory_internal.h"
#include "data/formats_internal.h"
#include "data/mix_internal.h"
#include "data/text_reader_internal.h"

namespace ait::inline v0 {
namespace {

using internal::CorpusDirectory;
using internal::Manifest;

constexpr std::int64_t kByteVocabulary = 256;

// Writes a stream of tokens as shards and notes them in the manifest.
class ShardWriter {
 public:
  ShardWriter(const std::string& directory, std::uint64_t corpus_digest, Manifest& manifest)
      : directory_(directory), corpus_digest_(corpus_digest), manifest_(manifest) {}

  Status Append(std::span<const std::uint32_t> tokens) {
    while (!tokens.empty()) {
      if (!writer_) {
        file_ =
            internal::ShardName(corpus_digest_, static_cast<std::int64_t>(manifest_.shards.size()));
        AIT_ASSIGN_OR_RETURN(
            writer_, TokenFileWriter::Create(
                         StrCat(directory_, "/", file_),
                         {.dtype = manifest_.dtype, .vocabulary_size = manifest_.vocabulary_size}));
        room_ = manifest_.shard_tokens;
      }
      const auto part = tokens.first(std::min(tokens.size(), static_cast<std::size_t>(room_)));
      AIT_RETURN_IF_ERROR(writer_->Append(part));
      manifest_.tokens += static_cast<std::int64_t>(part.size());
      room_ -= static_cast<std::int64_t>(part.size());
      tokens = tokens.subspan(part.size());
      if (room_ == 0) AIT_RETURN_IF_ERROR(Finish());
    }
    return OkStatus();
  }

  Status Finish() {
    if (!writer_) return OkStatus();
    // Even a commit that fails may have given the file its name.
    std::error_code ignored;
    if (!std::filesystem::exists(StrCat(directory_, "/", file_), ignored)) added_.push_back(file_);
    AIT_ASSIGN_OR_RETURN(const TokenFileHeader header, writer_->Commit());
    manifest_.shards.push_back({file_, header.token_count, header.crc32c});
    writer_.reset();
    return OkStatus();
  }

  /// Names that were not in the directory before.
  const std::vector<std::string>& added() const { return added_; }

 private:
  const std::string& directory_;
  const std::uint64_t corpus_digest_;
  Manifest& manifest_;
  std::optional<TokenFileWriter> writer_;
  std::string file_;
  std::vector<std::string> added_;
  std::int64_t room_ = 0;
};

StatusOr<std::vector<Manifest::Source>> Fingerprint(const std::vector<std::string>& files) {
  std::vector<Manifest::Source> sources;
  for (const std::string& path : files) {
    AIT_ASSIGN_OR_RETURN(const internal::InputFile file, internal::InputFile::Open(path));
    if (file.size_bytes() == 0) {
      return InvalidArgumentError("text file ", path, " is empty; leave it out");
    }
    AIT_ASSIGN_OR_RETURN(const std::uint32_t crc,
                         internal::Crc32cOfFile(file, 0, file.size_bytes()));
    sources.push_back({path, file.size_bytes(), crc});
  }
  return sources;
}

// The corpus that would come of these sources; names do not matter.
std::uint64_t DigestOfInputs(const Manifest& manifest) {
  std::uint64_t digest = internal::Fold(0, static_cast<std::uint64_t>(manifest.shard_tokens));
  for (const Manifest::Source& source : manifest.sources) {
    digest = internal::Fold(digest, static_cast<std::uint64_t>(source.bytes));
    digest = internal::Fold(digest, source.crc32c);
  }
  return digest;
}

Status PackDocument(const Manifest::Source& source, ShardWriter& shards, Manifest& manifest) {
  AIT_ASSIGN_OR_RETURN(const auto reader, internal::TextReader::Open(source.name));
  std::vector<std::byte> bytes(1 << 16);
  std::vector<std::uint32_t> tokens;
  std::int64_t length = 0;
  for (;;) {
    AIT_ASSIGN_OR_RETURN(const std::size_t count, reader->Read(bytes));
    if (count == 0) break;
    tokens.resize(count);
    std::ranges::transform(std::span(bytes).first(count), tokens.begin(),
                           [](std::byte byte) { return static_cast<std::uint32_t>(byte); });
    const auto zero = std::ranges::find(tokens, kTextSeparator);
    if (zero != tokens.end()) {
      return InvalidArgumentError("text file ", source.name, " has a byte 0 at offset ",
                                  length + (zero - tokens.begin()),
                                  " of its text: it is not text, or packed by something else than "
                                  "gzip");
    }
    AIT_RETURN_IF_ERROR(shards.Append(tokens));
    manifest.crc32c = Crc32c(std::span(bytes).first(count), manifest.crc32c);
    length += static_cast<std::int64_t>(count);
  }
  if (length == 0) {
    return InvalidArgumentError("text file ", source.name, " is empty; leave it out");
  }
  if (reader->file_crc32c() != source.crc32c) {
    return AbortedError("text file ", source.name, " changed while it was packed; pack again");
  }
  const std::byte separator{kTextSeparator};
  manifest.crc32c = Crc32c(std::span(&separator, 1), manifest.crc32c);
  ++manifest.documents;
  return shards.Append(std::span(&kTextSeparator, 1));
}

Status PackShards(const CorpusDirectory& directory, ShardWriter& shards, Manifest& manifest) {
  for (const Manifest::Source& source : manifest.sources) {
    AIT_RETURN_IF_ERROR(PackDocument(source, shards, manifest));
  }
  AIT_RETURN_IF_ERROR(shards.Finish());
  return WriteFileDurably(StrCat(directory.path(), "/", internal::kManifestName), ToJson(manifest));
}

PackReport Report(const Manifest& manifest, bool was_up_to_date) {
  return {.documents = manifest.documents,
          .tokens = manifest.tokens,
          .shards = static_cast<std::int64_t>(manifest.shards.size()),
          .vocabulary_size = manifest.vocabulary_size,
          .was_up_to_date = was_up_to_date};
}

}  // namespace

StatusOr<PackReport> PackText(const std::vector<std::string>& files, const PackOptions& options) {
  if (files.empty()) return InvalidArgumentError("no text files to pack");
  if (options.directory.empty()) return InvalidArgumentError("no directory to pack into");
  if (options.shard_tokens < 1) {
    return InvalidArgumentError("shards of ", options.shard_tokens,
                                " tokens: at least 1 token is needed");
  }
  Manifest manifest = {.tokenizer = "bytes",
                       .dtype = DType::kUInt8,
                       .vocabulary_size = kByteVocabulary,
                       .separator = kTextSeparator,
                       .shard_tokens = options.shard_tokens};
  AIT_ASSIGN_OR_RETURN(manifest.sources, Fingerprint(files));
  AIT_ASSIGN_OR_RETURN(const CorpusDirectory directory, CorpusDirectory::Lock(options.directory));

  const StatusOr<Manifest> old = internal::ReadManifest(directory.path());
  const bool is_new = old.status().code() == StatusCode::kNotFound;
  const bool is_same = old.ok() && DigestOfInputs(*old) == DigestOfInputs(manifest);
  if (is_same &&
      internal::OpenShards(directory.path(), *old, Verification::kContents).status().ok()) {
    directory.RemoveStale(*old);
    return Report(*old, /*was_up_to_date=*/true);
  }
  if (!is_new && !is_same && options.existing == ExistingCorpus::kRefuse) {
    return FailedPreconditionError(
        "directory ", directory.path(), " holds ",
        old.ok() ? "another corpus already"
                 : StrCat("an unreadable corpus (", Message(old.status()), ")"),
        "; choose another directory, or replace it (ExistingCorpus::kReplace, --force)");
  }
  ShardWriter shards(directory.path(), DigestOfInputs(manifest), manifest);
  if (Status packed = PackShards(directory, shards, manifest); !packed.ok()) {
    directory.RemoveAdded(shards.added());
    return packed;
  }
  directory.RemoveStale(manifest);
  return Report(manifest, /*was_up_to_date=*/false);
}

}  // namespace ait::inline v0
