// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_OPTIM_REFERENCE_DATA_H_
#define AIT_TESTS_OPTIM_REFERENCE_DATA_H_

// Numbers that a script under tests/optim/reference/ has written: a name and its values on each
// line.

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace ait::testing {

using ReferenceLines = std::map<std::string, std::vector<double>>;

/// Empty if the file cannot be read.
inline ReferenceLines ReadReferenceLines(const std::string& path) {
  ReferenceLines lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, word;
    words >> name;
    while (words >> word) lines[name].push_back(std::stod(word));  // "nan" too
  }
  return lines;
}

}  // namespace ait::testing

#endif  // AIT_TESTS_OPTIM_REFERENCE_DATA_H_
