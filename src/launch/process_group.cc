// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "launch/process_group_internal.h"

namespace ait::inline v0::internal {
namespace {

// Reads state and process group from /proc/PID/stat, whose second field may hold any character.
bool IsLiveMember(const char* pid, pid_t group) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[512];
  const ssize_t n = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (n <= 0) return false;
  text[n] = '\0';
  const char* after_name = std::strrchr(text, ')');
  char state = 0;
  int parent = 0, its_group = 0;
  if (after_name == nullptr ||
      std::sscanf(after_name + 1, " %c %d %d", &state, &parent, &its_group) != 3) {
    return false;
  }
  return its_group == group && state != 'Z' && state != 'X';
}

}  // namespace

bool GroupIsAlive(pid_t group) {
  while (waitpid(-group, nullptr, WNOHANG) > 0) {
  }
  if (kill(-group, 0) != 0 && errno == ESRCH) return false;
  // Somebody is in it: perhaps only a zombie whose parent, the init process of a container, does
  // not wait for it.
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return true;
  bool alive = false;
  while (const dirent* entry = readdir(folder)) {
    const bool is_process = entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
    if (is_process && IsLiveMember(entry->d_name, group)) {
      alive = true;
      break;
    }
  }
  closedir(folder);
  return alive;
}

}  // namespace ait::inline v0::internal
