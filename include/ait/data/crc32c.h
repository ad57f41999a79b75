// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_CRC32C_H_
#define AIT_DATA_CRC32C_H_

// CRC-32C, the checksum of every file that ait writes for itself.
//
// It finds damage (a flipped bit, a lost block), not malice. The polynomial is Castagnoli's,
// 0x1EDC6F41, reflected, with initial and final inversion, as in iSCSI (RFC 3720, appendix B.4).
//
//   std::uint32_t crc = Crc32c(first);
//   crc = Crc32c(second, crc);            // the checksum of both, one after the other

#include <cstddef>
#include <cstdint>
#include <span>

namespace ait::inline v0 {

/// The checksum of what `crc` covers followed by `data`. Uses the instruction of the CPU where
/// there is one (10 to 20 GB/s from a kilobyte on), else a table (about 1.5 GB/s). **Thread-safety.** Pure function.
std::uint32_t Crc32c(std::span<const std::byte> data, std::uint32_t crc = 0);

}  // namespace ait::inline v0

#endif  // AIT_DATA_CRC32C_H_
