// SPDX-License-Identifier: Apache-2.0
// An npz file is a zip archive of npy files; arrays of equal first dimension are the fields.
#include <utility>

#include "data/format/format_entry_internal.h"
#include "data/format/npy_header_internal.h"
#include "data/format/zip_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

int Match(std::string_view url, std::span<const std::byte> head) {
  if (!BeginsWith(head, "PK\x03\x04") && !BeginsWith(head, "PK\x05\x06")) return 0;
  return HasExtension(url, ".npz") ? 2 : 0;
}

StatusOr<std::unique_ptr<ShardReader>> Open(std::shared_ptr<const StoredObject> object,
                                            const ShardOptions& options,
                                            std::shared_ptr<const StoredObject>) {
  constexpr std::string_view kSuffix = ".npy";
  const std::string& url = object->info().url;
  AIT_ASSIGN_OR_RETURN(const std::vector<ZipMember> members, ReadZip(*object));
  if (members.empty()) return InvalidArgumentError(url, " holds no arrays");
  std::vector<StoredArray> arrays;
  std::int64_t room = options.max_unpacked_bytes;  // of all members together
  for (const ZipMember& member : members) {
    if (!member.name.ends_with(kSuffix)) {
      return InvalidArgumentError(url, ": \"", member.name, "\" is no array");
    }
    AIT_ASSIGN_OR_RETURN(auto contents, OpenZipMember(object, member, room));
    if (member.is_deflated) room -= member.size_bytes;
    AIT_ASSIGN_OR_RETURN(StoredArray array,
                         OpenNpyArray(std::move(contents),
                                      member.name.substr(0, member.name.size() - kSuffix.size())));
    arrays.push_back(std::move(array));
  }
  return ShardOfRows("npz", std::move(object), std::move(arrays), options);
}

}  // namespace

extern const ShardFormat kNpzFormat;
const ShardFormat kNpzFormat = {.name = "npz",
                                .summary = "numpy arrays, row i of each is sample i",
                                .match = Match,
                                .open = Open,
                                .create = nullptr};

}  // namespace internal
}  // namespace ait::inline v0
