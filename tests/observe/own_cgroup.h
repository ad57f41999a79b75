// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_OBSERVE_OWN_CGROUP_H_
#define AIT_TESTS_OBSERVE_OWN_CGROUP_H_

// A memory cgroup below that of this process, with a limit, if one can be made; removed at the end,
// when its processes have ended.
//
//   const OwnCgroup group(MiB(64));
//   if (!group.why_not().empty()) GTEST_SKIP() << group.why_not();
//   Process::Spawn({…, .args = {group.path()}});      // which writes its pid to cgroup.procs

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "ait/base/status.h"
#include "ait/base/types.h"

namespace ait::testing {

class OwnCgroup {
 public:
  explicit OwnCgroup(Bytes limit) {
    const std::string v1 = PathAfter(":memory:");
    const std::string parent =
        v1.empty() ? "/sys/fs/cgroup" + PathAfter("0::") : "/sys/fs/cgroup/memory" + v1;
    path_ = StrCat(parent, "/ait-test-", ::getpid());
    std::error_code error;
    if (!std::filesystem::create_directory(path_, error)) {
      why_not_ = StrCat("no cgroup can be made in ", parent, ": ", error.message());
      return;
    }
    const std::string file = path_ + (v1.empty() ? "/memory.max" : "/memory.limit_in_bytes");
    std::ofstream out(file);
    out << limit.value() << std::flush;
    if (!out) why_not_ = StrCat(file, " cannot be written");
  }
  ~OwnCgroup() { ::rmdir(path_.c_str()); }
  OwnCgroup(const OwnCgroup&) = delete;
  OwnCgroup& operator=(const OwnCgroup&) = delete;

  const std::string& path() const { return path_; }
  const std::string& why_not() const { return why_not_; }

 private:
  /// The rest of the line of /proc/self/cgroup that has `prefix`.
  static std::string PathAfter(std::string_view prefix) {
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
      const std::size_t at = line.find(prefix);
      if (at != std::string::npos) return line.substr(at + prefix.size());
    }
    return "";
  }

  std::string path_;
  std::string why_not_;
};

}  // namespace ait::testing

#endif  // AIT_TESTS_OBSERVE_OWN_CGROUP_H_
