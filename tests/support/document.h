// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_SUPPORT_DOCUMENT_H_
#define AIT_TESTS_SUPPORT_DOCUMENT_H_

// Holds the C++ of a page to a source that is compiled and run.

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace ait::testing {

/// Expects each line of the page's C++ blocks in `source`, in this order, whatever the indentation.
inline void ExpectCodeIsCompiled(const std::string& page, const std::string& source) {
  const auto trim = [](std::string line) {
    line.erase(0, line.find_first_not_of(' '));
    return line;
  };
  std::ifstream page_file(page);
  std::ifstream source_file(source);
  ASSERT_TRUE(page_file) << page;
  ASSERT_TRUE(source_file) << source;
  bool inside = false;
  int lines = 0;
  for (std::string line; std::getline(page_file, line);) {
    if (line.starts_with("```")) {
      inside = line == "```cpp";
    } else if (inside) {
      ++lines;
      bool found = false;
      for (std::string code; !found && std::getline(source_file, code);) {
        found = trim(code) == trim(line);
      }
      ASSERT_TRUE(found) << page << " shows a line that " << source << " lacks: " << line;
    }
  }
  EXPECT_GT(lines, 0) << page << " shows no code";
}

}  // namespace ait::testing

#endif  // AIT_TESTS_SUPPORT_DOCUMENT_H_
