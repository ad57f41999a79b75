// SPDX-License-Identifier: Apache-2.0
#include "topology/cgroup_internal.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "topology/kernel_file_internal.h"

namespace ait::inline v0::internal {
namespace {

bool Contains(std::string_view comma_list, std::string_view word) {
  const auto words = Split(comma_list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Path of this process in the hierarchy of version 1 with `controller`, or of version 2 if
/// `controller` is empty. Lines are "5:cpu,cpuacct:/path" and "0::/path" (cgroups(7)).
std::optional<std::string> PathInHierarchy(std::string_view cgroup_file,
                                           std::string_view controller) {
  for (std::string_view line : Split(cgroup_file, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : Contains(controllers, controller)) {
      std::string path(line.substr(second + 1));
      if (path.starts_with('/')) return path;  // the kernel writes no other
    }
  }
  return std::nullopt;
}

struct Mount {
  std::string root;   // the cgroup that the mount shows at its top
  std::string point;  // where in the file system
};

/// mountinfo writes a space as "\040".
std::string Unescape(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      result +=
          static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + text[i + 3] - '0');
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

/// The mount of that hierarchy. Lines are "31 23 0:28 ROOT POINT options... - TYPE source super"
/// (proc_pid_mountinfo(5)).
std::optional<Mount> FindMount(std::string_view mountinfo, std::string_view controller) {
  for (std::string_view line : Split(mountinfo, '\n')) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto left = Words(line.substr(0, dash));
    const auto right = Words(line.substr(dash + 3));
    if (left.size() < 5 || right.size() < 3) continue;
    const bool fits = controller.empty() ? right[0] == "cgroup2"
                                         : right[0] == "cgroup" && Contains(right[2], controller);
    if (fits) return Mount{.root = Unescape(left[3]), .point = Unescape(left[4])};
  }
  return std::nullopt;
}

/// `path` as seen below a mount that shows `root` at its top. A cgroup outside of what the mount
/// shows (another namespace's) is taken as the top.
std::string BelowMount(std::string path, const std::string& root) {
  if (path.find("/..") != std::string::npos) return "";
  if (root != "/") {
    if (!path.starts_with(root)) return "";
    path.erase(0, root.size());
    if (!path.empty() && path.front() != '/') return "";
  }
  return path == "/" ? "" : path;
}

/// Where the mount point is for one who reads below `roots`. Outside of /sys that is known only of
/// the file system of this process.
std::optional<std::string> BelowRoots(const std::string& point, const SystemRoots& roots) {
  if (point.starts_with("/sys/")) return roots.sys + point.substr(4);
  const SystemRoots own;
  if (roots.proc == own.proc && roots.sys == own.sys) return point;
  return std::nullopt;
}

void AppendDirectories(const SystemRoots& roots, std::string_view cgroup_file,
                       std::string_view mountinfo, std::string_view controller,
                       std::vector<std::string>& directories) {
  const auto path = PathInHierarchy(cgroup_file, controller);
  const auto mount = FindMount(mountinfo, controller);
  if (!path || !mount) return;
  const auto top = BelowRoots(mount->point, roots);
  if (!top) return;
  std::string below = BelowMount(*path, mount->root);
  while (true) {
    std::error_code error;
    if (std::filesystem::is_directory(*top + below, error)) directories.push_back(*top + below);
    if (below.empty()) return;
    below.erase(below.rfind('/'));
  }
}

}  // namespace

std::vector<std::string> CgroupDirectories(const SystemRoots& roots, std::string_view controller) {
  const std::string cgroup_file = ReadKernelFile(roots.proc + "/self/cgroup").value_or("");
  const std::string mountinfo = ReadKernelFile(roots.proc + "/self/mountinfo").value_or("");
  std::vector<std::string> directories;
  AppendDirectories(roots, cgroup_file, mountinfo, controller, directories);
  AppendDirectories(roots, cgroup_file, mountinfo, "", directories);
  return directories;
}

}  // namespace ait::inline v0::internal
