// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_ZIP_INTERNAL_H_
#define AIT_DATA_FORMAT_ZIP_INTERNAL_H_

// Zip archives as numpy makes them (npz): stored and deflated members, zip64, CRC-32 verified.
// Source: PKWARE, APPNOTE.TXT 6.3.10.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {
namespace internal {

struct ZipMember {
  std::string name;
  std::int64_t offset_bytes = 0;  // of its packed bytes in the archive
  std::int64_t packed_bytes = 0;
  std::int64_t size_bytes = 0;
  std::uint32_t crc32 = 0;
  bool is_deflated = false;
};

/// The members in the order of the central directory, each compared with its local header.
/// **Errors.** DataLoss: damaged or truncated; Unimplemented: encrypted, of several volumes, or
/// compressed by something else than deflate.
StatusOr<std::vector<ZipMember>> ReadZip(const StoredObject& archive);

/// The contents of a member: a view of the archive if it is stored, else unpacked in memory. Reads
/// all of it to compare its CRC-32. **Errors.** DataLoss: damaged; ResourceExhausted: it unpacks to
/// more than `limit_bytes`; those of the archive.
StatusOr<std::shared_ptr<const StoredObject>> OpenZipMember(
    std::shared_ptr<const StoredObject> archive, const ZipMember& member, std::int64_t limit_bytes);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_ZIP_INTERNAL_H_
