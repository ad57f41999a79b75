// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_TAR_HEADER_INTERNAL_H_
#define AIT_DATA_FORMAT_TAR_HEADER_INTERNAL_H_

// Members of tar archives: ustar, GNU and pax (POSIX.1-2017, "pax - Interchange Format"; GNU tar
// manual, "Basic Tar Format").
//
// A member is one header block of 512 bytes, before it any number of headers that carry what does
// not fit (pax 'x' records, GNU 'L' and 'K' names), and after it the data, padded to whole blocks.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ait/base/status.h"

namespace ait::inline v0 {
namespace internal {

inline constexpr std::int64_t kTarBlock = 512;

/// `size` rounded up to whole blocks. 0 <= size <= kMaxTarSize.
inline constexpr std::int64_t kMaxTarSize = std::int64_t{1} << 56;
constexpr std::int64_t TarPadded(std::int64_t size) { return (size + kTarBlock - 1) & -kTarBlock; }

/// What a member is, as far as samples are concerned.
enum class TarKind : std::uint8_t {
  kFile,       // has data
  kHardLink,   // has the data of the member that `link` names
  kDirectory,  // and other entries that never hold data: labels, global pax headers
  kRefused,    // has data that is not what lies in the archive, or elsewhere: `refusal` says why
};

struct TarMember {
  TarKind kind = TarKind::kFile;
  std::string_view name;  // bytes; a view of the header, or of the scratch of the parser
  std::string_view link;
  std::string_view refusal;
  std::int64_t header_bytes = 0;  // of all its headers together
  std::int64_t size_bytes = 0;    // of its data, which follows the headers

  std::int64_t total_bytes() const { return header_bytes + TarPadded(size_bytes); }
};

enum class TarStep : std::uint8_t {
  kMember,
  kZeroBlock,  // the mark of the end, or a half of it
  kNeedBytes,  // `need_bytes` from where the member begins are necessary to go on
};

class TarParser {
 public:
  /// Parses the headers at the start of `bytes`. **Errors.** DataLoss: no header, or damaged;
  /// InvalidArgument: a header that is not read. The text says neither file nor offset.
  StatusOr<TarStep> Parse(std::span<const std::byte> bytes, TarMember& member);
  std::int64_t need_bytes() const { return need_bytes_; }

 private:
  struct Extras;
  Status TakePaxRecords(std::string_view records, bool is_global, Extras& extras) const;

  std::int64_t need_bytes_ = 0;
  std::string scratch_;  // prefix and name of a ustar header together
};

/// A number of a header: octal digits, or base-256 in the manner of GNU.
StatusOr<std::int64_t> ParseTarNumber(std::string_view field, std::string_view what);

/// Sum of the bytes of a header, those of the sum itself counted as blanks.
std::uint32_t TarChecksum(std::span<const std::byte> block);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_TAR_HEADER_INTERNAL_H_
