// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_TAR_WRITE_INTERNAL_H_
#define AIT_DATA_FORMAT_TAR_WRITE_INTERNAL_H_

// Headers of tar archives, as GNU tar writes them for owner and group 0 and mode 644.

#include <cstdint>
#include <string>
#include <string_view>

namespace ait::inline v0 {
namespace internal {

/// Appends the headers of a regular file: one ustar block if name, size and time fit; else the
/// records of a pax header, byte for byte those of `tar --format=posix` without times, before it.
void AppendTarHeaders(std::string& out, std::string_view name, std::int64_t size_bytes,
                      std::int64_t modification_time);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_TAR_WRITE_INTERNAL_H_
