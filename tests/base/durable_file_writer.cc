// SPDX-License-Identifier: Apache-2.0
// Writes half of a file, says "half" and waits to be killed; durable_file_test does it.
#include <unistd.h>

#include <cstdio>

#include "ait/base/durable_file.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto file = ait::DurableFile::Create(argv[1]);
  const std::byte half[500] = {};
  if (!file.ok() || !file->Reserve(ait::Bytes(1000)).ok() || !file->Append(half).ok()) return 1;
  std::puts("half");
  std::fflush(stdout);
  for (;;) pause();
}
