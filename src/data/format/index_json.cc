// SPDX-License-Identifier: Apache-2.0
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "ait/data/crc32c.h"
#include "data/format/format_util_internal.h"
#include "data/format/index_json_internal.h"
#include "data/json_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::int64_t kMaxIndexBytes = std::int64_t{1} << 30;

std::ptrdiff_t DepthOf(std::string_view url) { return std::count(url.begin(), url.end(), '/'); }

// Python's name of a hash to OpenSSL's.
std::string OpensslName(std::string name) {
  if (name == "blake2b") return "blake2b512";
  if (name == "blake2s") return "blake2s256";
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

struct ContextDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

}  // namespace

const ObjectInfo* FindIndexJson(std::span<const ObjectInfo> objects) {
  const ObjectInfo* highest = nullptr;
  for (const ObjectInfo& object : objects) {
    if (BaseName(object.url) != "index.json") continue;
    if (highest == nullptr || DepthOf(object.url) < DepthOf(highest->url)) highest = &object;
  }
  return highest;
}

StatusOr<IndexJson> ReadIndexJson(const Storage& storage, const std::string& url,
                                  std::span<const ObjectInfo> objects) {
  const ObjectInfo* index = FindIndexJson(objects);
  if (index == nullptr) return NotFoundError(url, " has no index.json");
  for (const ObjectInfo& object : objects) {
    if (&object != index && BaseName(object.url) == "index.json" &&
        DepthOf(object.url) == DepthOf(index->url)) {
      return InvalidArgumentError(url, " holds several data sets (", index->url, " and ",
                                  object.url, "): open one of them");
    }
  }
  AIT_ASSIGN_OR_RETURN(const auto object, storage.Open(index->url));
  AIT_ASSIGN_OR_RETURN(const ByteView text, ReadWhole(*object, kMaxIndexBytes));
  AIT_RETURN_IF_ERROR(Annotate(CheckJsonDepth(text.text()), index->url));
  IndexJson read = {.directory = std::string(DirectoryOf(index->url)),
                    .json = nlohmann::json::parse(text.text(), nullptr, false),
                    .crc32c = Crc32c(text.bytes())};
  if (!read.json.is_object()) {
    return DataLossError(index->url, " is truncated or damaged: it is no JSON object");
  }
  return read;
}

bool IsNameBelow(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != std::string_view::npos) {
    return false;
  }
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t slash = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, slash - at);
    if (part.empty() || part == "." || part == "..") return false;
    at = slash + 1;
  }
  return true;
}

Status CheckHashes(const StoredObject& object, const nlohmann::json& hashes) {
  struct Running {
    std::string name;
    std::string stated;
    std::unique_ptr<EVP_MD_CTX, ContextDeleter> context;
  };
  std::vector<Running> running;
  for (const auto& [name, stated] : hashes.items()) {
    const EVP_MD* kind = EVP_get_digestbyname(OpensslName(name).c_str());
    if (kind == nullptr || !stated.is_string()) continue;
    Running hash = {.name = name, .stated = stated.get<std::string>()};
    hash.context.reset(EVP_MD_CTX_new());
    if (hash.context == nullptr || EVP_DigestInit_ex(hash.context.get(), kind, nullptr) != 1) {
      return ResourceExhaustedError("no memory for the hash ", name);
    }
    running.push_back(std::move(hash));
  }
  if (running.empty()) return OkStatus();
  AIT_ASSIGN_OR_RETURN(const auto blocks, object.Stream({}));
  while (true) {
    AIT_ASSIGN_OR_RETURN(const ByteView block, blocks->Next());
    if (block.is_empty()) break;
    for (const Running& hash : running) {
      EVP_DigestUpdate(hash.context.get(), block.data(), block.size_bytes());
    }
  }
  for (const Running& hash : running) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
    unsigned size = 0;
    EVP_DigestFinal_ex(hash.context.get(), digest.data(), &size);
    std::string seen;
    for (unsigned i = 0; i < size; ++i) seen += HexDigits(digest[i], 2);
    if (seen != hash.stated) {
      return DataLossError(object.info().url, " is damaged: its ", hash.name, " is ", seen,
                           ", the index says ", hash.stated);
    }
  }
  return OkStatus();
}

}  // namespace internal
}  // namespace ait::inline v0
