// SPDX-License-Identifier: Apache-2.0
#include "ait/data/crc32c.h"

#include <array>
#include <cstring>

#include "data/crc32c_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::uint32_t kReflectedPolynomial = 0x82f63b78u;

// kTable[k][b]: what byte b followed by k zero bytes adds. Eight bytes are then eight look-ups that
// do not wait for each other ("slicing by 8", Kounavis and Berry, 2005).
constexpr auto kTable = [] {
  std::array<std::array<std::uint32_t, 256>, 8> table{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kReflectedPolynomial : 0u);
    }
    table[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint32_t previous = table[k - 1][b];
      table[k][b] = (previous >> 8) ^ table[0][previous & 0xffu];
    }
  }
  return table;
}();

}  // namespace

std::uint32_t Crc32cByTable(std::span<const std::byte> data, std::uint32_t crc) {
  crc = ~crc;
  while (data.size() >= 8) {
    std::uint64_t word;
    std::memcpy(&word, data.data(), 8);
    word ^= crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTable[7 - k][(word >> (8 * k)) & 0xffu];
    data = data.subspan(8);
  }
  for (std::byte byte : data) {
    crc = (crc >> 8) ^ kTable[0][(crc ^ static_cast<std::uint32_t>(byte)) & 0xffu];
  }
  return ~crc;
}

#if defined(__x86_64__)
bool HasCrc32cInstruction() { return __builtin_cpu_supports("sse4.2") != 0; }

namespace {

// The instruction takes three cycles and one may start in each, so three checksums are computed at
// a time, of pieces that follow each other (Gopal et al., "Fast CRC Computation for iSCSI Polynomial
// Using CRC32 Instruction", Intel, 2011).
constexpr std::size_t kLongPiece = 4096;
constexpr std::size_t kShortPiece = 256;

// What `kZeros` bytes of zero make of a checksum, by each of its four bytes.
template <std::size_t kZeros>
const std::array<std::array<std::uint32_t, 256>, 4>& ZerosTable() {
  static const auto kZerosTable = [] {
    std::array<std::uint32_t, 32> bits{};
    for (std::size_t bit = 0; bit < 32; ++bit) {
      std::uint32_t crc = 1u << bit;
      for (std::size_t i = 0; i < kZeros; ++i) crc = (crc >> 8) ^ kTable[0][crc & 0xffu];
      bits[bit] = crc;
    }
    std::array<std::array<std::uint32_t, 256>, 4> table{};
    for (std::size_t k = 0; k < 4; ++k) {
      for (std::size_t b = 0; b < 256; ++b) {
        for (std::size_t bit = 0; bit < 8; ++bit) {
          if ((b >> bit & 1u) != 0) table[k][b] ^= bits[8 * k + bit];
        }
      }
    }
    return table;
  }();
  return kZerosTable;
}

// Takes pieces of `data`, three at a time, for as long as there are.
template <std::size_t kPiece>
__attribute__((target("sse4.2"))) std::uint64_t TakeThree(std::span<const std::byte>& data,
                                                          std::uint64_t crc) {
  if (data.size() < 3 * kPiece) return crc;
  const auto& zeros = ZerosTable<kPiece>();
  const auto after_piece = [&](std::uint64_t first) {
    return zeros[0][first & 0xffu] ^ zeros[1][first >> 8 & 0xffu] ^ zeros[2][first >> 16 & 0xffu] ^
           zeros[3][first >> 24 & 0xffu];
  };
  while (data.size() >= 3 * kPiece) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (const std::byte* at = data.data(); at != data.data() + kPiece; at += 8) {
      std::uint64_t words[3];
      std::memcpy(&words[0], at, 8);
      std::memcpy(&words[1], at + kPiece, 8);
      std::memcpy(&words[2], at + 2 * kPiece, 8);
      crc = __builtin_ia32_crc32di(crc, words[0]);
      second = __builtin_ia32_crc32di(second, words[1]);
      third = __builtin_ia32_crc32di(third, words[2]);
    }
    crc = after_piece(after_piece(crc) ^ second) ^ third;
    data = data.subspan(3 * kPiece);
  }
  return crc;
}

}  // namespace

__attribute__((target("sse4.2"))) std::uint32_t Crc32cByInstruction(std::span<const std::byte> data,
                                                                    std::uint32_t crc) {
  std::uint64_t wide = ~crc;
  wide = TakeThree<kLongPiece>(data, wide);
  wide = TakeThree<kShortPiece>(data, wide);
  while (data.size() >= 8) {
    std::uint64_t word;
    std::memcpy(&word, data.data(), 8);
    wide = __builtin_ia32_crc32di(wide, word);
    data = data.subspan(8);
  }
  auto narrow = static_cast<std::uint32_t>(wide);
  for (std::byte byte : data) {
    narrow = __builtin_ia32_crc32qi(narrow, static_cast<unsigned char>(byte));
  }
  return ~narrow;
}
#else
bool HasCrc32cInstruction() { return false; }

std::uint32_t Crc32cByInstruction(std::span<const std::byte> data, std::uint32_t crc) {
  return Crc32cByTable(data, crc);
}
#endif

}  // namespace internal

std::uint32_t Crc32c(std::span<const std::byte> data, std::uint32_t crc) {
  static const bool kHasInstruction = internal::HasCrc32cInstruction();
  return kHasInstruction ? internal::Crc32cByInstruction(data, crc)
                         : internal::Crc32cByTable(data, crc);
}

}  // namespace ait::inline v0
