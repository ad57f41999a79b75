// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_LAUNCHERS_LAUNCHED_GPT_H_
#define AIT_TESTS_LAUNCHERS_LAUNCHED_GPT_H_

// The fixture of tests that start examples/03-gpt by a real launcher: whoever starts the ranks, the
// losses and the weights have the same bits as under `ait run` on one host.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "support/process.h"

namespace ait::testing {

/// Path of a program in PATH or the usual folders, "" if it is not installed.
std::string FindTool(const std::string& name);

class LaunchedGpt : public ::testing::Test {
 protected:
  LaunchedGpt();

  /// The command of a rank, which writes to the folder `out`; a few steps of the smallest size.
  std::vector<std::string> Command(const std::string& out) const;

  /// `launcher` and then Command(out). Variables for a launch under which all ranks compute with
  /// one thread, and rank 0 tells how it was launched.
  Process Launch(const std::string& tool, std::vector<std::string> launcher, const std::string& out,
                 std::map<std::string, std::string> environment = {});

  /// Fails the test unless the run in `out` gave what `ait run -n RANKS` gives.
  void ExpectSameAsOnOneHost(const std::string& out, int ranks);

  TempDir folder_;
};

}  // namespace ait::testing

#endif  // AIT_TESTS_LAUNCHERS_LAUNCHED_GPT_H_
