// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_FUZZ_FUZZ_H_
#define AIT_TESTS_FUZZ_FUZZ_H_

// A fuzz target: a parser, and what it must hold for any bytes whatever.
//
//   std::vector<std::string> ait::testing::FuzzSeeds() { return {ValidFile(), AnotherOne()}; }
//   extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
//     const auto parsed = Parse(Input(data, size));
//     AIT_FUZZ_CHECK(!parsed.ok() || Serialize(*parsed) == Text(data, size));
//     return 0;
//   }
//
// Add it to CMakeLists.txt by one line, `ait_fuzz(name)`.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/data/byte_view.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace ait::testing {

/// Valid inputs to begin with; defined by the target. Small ones are found out about sooner.
std::vector<std::string> FuzzSeeds();

inline std::span<const std::byte> Input(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}
inline std::string_view Text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}
/// A copy in memory of exactly this size, so that a sanitizer sees a read past its end.
inline ByteView Copied(const std::uint8_t* data, std::size_t size) {
  return ByteView::Copy(Input(data, size));
}

}  // namespace ait::testing

/// Ends the program if the condition is false, in every build.
#define AIT_FUZZ_CHECK(condition)                                                   \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                 \
    }                                                                               \
  } while (false)

#endif  // AIT_TESTS_FUZZ_FUZZ_H_
