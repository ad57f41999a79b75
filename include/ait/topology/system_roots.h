// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_SYSTEM_ROOTS_H_
#define AIT_TOPOLOGY_SYSTEM_ROOTS_H_

// Where the kernel's files are: /proc and /sys, unless a test or a container says otherwise.
//
//   ReadMachine();                                                    // this machine
//   ReadMachine({.proc = "/host/proc", .sys = "/host/sys"});          // the host of a container
//   ReadMachine({.proc = fixture + "/proc", .sys = fixture + "/sys"}) // a machine made of files

#include <string>

namespace ait::inline v0 {

struct SystemRoots {
  std::string proc = "/proc";
  std::string sys = "/sys";
};

/// A value that was read, and where: a path, or words such as "assumed".
template <typename T>
struct Sourced {
  T value{};
  std::string source;
};

}  // namespace ait::inline v0

#endif  // AIT_TOPOLOGY_SYSTEM_ROOTS_H_
