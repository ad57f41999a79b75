// SPDX-License-Identifier: Apache-2.0
// A process that packs, for tests that kill it or take its disk away.
//   pack_peer loop DIR A B       packs A and B by turns, for ever; says "packed" after each
//   pack_peer limit DIR FILE…    packs on a disk that takes files of at most 20,000 bytes
//   pack_peer full DIR FILE…     mounts a file system of 64 KiB on DIR, for this process alone;
//   where
//                                that is forbidden, as `limit`
// The last two pack the files one after the other, each replacing the one before, and print for
// each: the status, what is in DIR, and the tokens of the corpus there.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "ait/data/pack.h"
#include "ait/data/token_source.h"
#include "data/data_test_support.h"

namespace ait {
namespace {

constexpr rlim_t kLimitBytes = 20'000;

PackOptions Options(const std::string& directory, std::int64_t shard_tokens) {
  return {
      .directory = directory, .shard_tokens = shard_tokens, .existing = ExistingCorpus::kReplace};
}

int PackForEver(const std::string& directory, const std::string& a, const std::string& b) {
  for (;;) {
    for (const std::string& file : {a, b}) {
      const auto report = PackText({file}, Options(directory, 2'000));
      if (!report.ok()) {
        std::printf("%s\n", report.status().ToString().c_str());
        return 1;
      }
      std::printf("packed\n");
      std::fflush(stdout);
    }
  }
}

bool MountSmallDisk(const std::string& directory) {
  const uid_t user = ::getuid();
  if (::unshare(CLONE_NEWNS | (user == 0 ? 0 : CLONE_NEWUSER)) != 0) return false;
  if (user != 0) std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", directory.c_str(), "tmpfs", 0, "size=64k") == 0;
}

void LimitFileSize() {
  ::signal(SIGXFSZ, SIG_IGN);  // then the write fails instead
  const rlimit limit = {kLimitBytes, kLimitBytes};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

int PackAndReport(const std::string& directory, std::int64_t shard_tokens, char** files) {
  for (; *files != nullptr; ++files) {
    const auto report = PackText({*files}, Options(directory, shard_tokens));
    const auto source = OpenTokenSource(directory);
    std::printf("%s | %zu files | %lld tokens\n", report.status().ToString().c_str(),
                testing::NamesIn(directory).size(),
                source.ok() ? static_cast<long long>((*source)->token_count()) : -1LL);
  }
  return 0;
}

int Main(int argc, char** argv) {
  const std::string_view mode = argc > 3 ? argv[1] : "";
  if (mode == "loop" && argc == 5) return PackForEver(argv[2], argv[3], argv[4]);
  if (mode == "full" && MountSmallDisk(argv[2])) return PackAndReport(argv[2], 10'000, argv + 3);
  if (mode == "full" || mode == "limit") {
    LimitFileSize();
    return PackAndReport(argv[2], 50'000, argv + 3);
  }
  return 2;
}

}  // namespace
}  // namespace ait

int main(int argc, char** argv) { return ait::Main(argc, argv); }
