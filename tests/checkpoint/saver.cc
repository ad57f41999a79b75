// SPDX-License-Identifier: Apache-2.0
// A program that saves and is killed, or finds the disk full:
//   saver loop PATH BYTES     saves tensor "x" of BYTES equal bytes again and again: 1, 2, 3 …
//   saver once PATH BYTES     saves it once, in a process whose files may not pass 100000 bytes
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ait/checkpoint/safetensors.h"

namespace {

int Fail(const ait::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

void Say(const char* word) {
  std::puts(word);
  std::fflush(stdout);
}

ait::Status Save(const std::string& path, std::size_t size, unsigned char value) {
  const std::vector<std::byte> bytes(size, std::byte{value});
  const ait::TensorBytes tensor{.name = "x",
                                .dtype = ait::DType::kUInt8,
                                .shape = {static_cast<std::int64_t>(size)},
                                .bytes = bytes};
  return ait::WriteSafetensors(path, std::span(&tensor, 1));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string what = argv[1], path = argv[2];
  const std::size_t size = std::strtoul(argv[3], nullptr, 10);
  if (what == "loop") {
    for (unsigned char value = 1;; ++value) {
      if (ait::Status status = Save(path, size, value); !status.ok()) return Fail(status);
      if (value == 3) Say("three");
    }
  }
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = 100000, .rlim_max = 100000};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
  if (ait::Status status = Save(path, size, 9); !status.ok()) return Fail(status);
  return 0;
}
