// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_CRC32C_INTERNAL_H_
#define AIT_DATA_CRC32C_INTERNAL_H_

// The two ways to compute a CRC-32C, apart, so that a test can compare them.

#include <cstddef>
#include <cstdint>
#include <span>

namespace ait::inline v0 {
namespace internal {

std::uint32_t Crc32cByTable(std::span<const std::byte> data, std::uint32_t crc);

/// True if the CPU has the instruction that `Crc32cByInstruction` needs.
bool HasCrc32cInstruction();
std::uint32_t Crc32cByInstruction(std::span<const std::byte> data, std::uint32_t crc);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_CRC32C_INTERNAL_H_
