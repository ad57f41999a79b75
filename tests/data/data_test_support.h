// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_DATA_DATA_TEST_SUPPORT_H_
#define AIT_TESTS_DATA_DATA_TEST_SUPPORT_H_

// Files for tests of the data component. The bytes of foreign formats are put together here one
// field at a time, from the description of the format, so that a test does not read what our own
// code wrote.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "ait/data/token_file.h"
#include "support/process.h"

namespace ait::testing {

inline std::string ReadBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void WriteBytes(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// Appends a number as little-endian bytes.
template <typename T>
void Put(std::string& bytes, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bytes += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}

/// The names in a directory, sorted.
inline std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Writes tokens 0, 1, 2, … count-1 (modulo the vocabulary) as a token file of ait.
inline void WriteCountingFile(const std::string& path, std::int64_t count,
                              TokenFileWriterOptions options) {
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint32_t>(i % static_cast<std::size_t>(options.vocabulary_size));
  }
  auto writer = TokenFileWriter::Create(path, options);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  ASSERT_TRUE(writer->Append(tokens).ok());
  const auto header = writer->Commit();
  ASSERT_TRUE(header.ok()) << header.status().ToString();
}

/// The bytes of an llm.c file.
template <typename T>
std::string LlmcBytes(std::int32_t magic, std::int32_t version, const std::vector<T>& tokens) {
  std::string bytes;
  Put(bytes, magic);
  Put(bytes, version);
  Put(bytes, static_cast<std::int32_t>(tokens.size()));
  bytes.resize(1024, '\0');
  for (T token : tokens) Put(bytes, token);
  return bytes;
}

/// The bytes of prefix.idx of Megatron, one document for each sequence.
inline std::string MegatronIndexBytes(std::uint8_t dtype_code, int token_bytes,
                                      const std::vector<std::int32_t>& lengths) {
  std::string bytes("MMIDIDX\0\0", 9);
  Put(bytes, std::uint64_t{1});
  Put(bytes, dtype_code);
  Put(bytes, static_cast<std::uint64_t>(lengths.size()));
  Put(bytes, static_cast<std::uint64_t>(lengths.size() + 1));
  for (std::int32_t length : lengths) Put(bytes, length);
  std::int64_t pointer = 0;
  for (std::int32_t length : lengths) {
    Put(bytes, pointer);
    pointer += std::int64_t{length} * token_bytes;
  }
  for (std::size_t border = 0; border <= lengths.size(); ++border) {
    Put(bytes, static_cast<std::int64_t>(border));
  }
  return bytes;
}

}  // namespace ait::testing

#endif  // AIT_TESTS_DATA_DATA_TEST_SUPPORT_H_
