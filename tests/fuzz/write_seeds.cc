// SPDX-License-Identifier: Apache-2.0
// For libFuzzer: with AIT_FUZZ_SEEDS=DIRECTORY set, the program writes its seeds there and ends.
#include <cstdlib>
#include <fstream>
#include <string>

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* directory = std::getenv("AIT_FUZZ_SEEDS");
  if (directory == nullptr) return 0;
  int number = 0;
  for (const std::string& seed : ait::testing::FuzzSeeds()) {
    std::ofstream out(std::string(directory) + "/seed" + std::to_string(number++),
                      std::ios::binary);
    out.write(seed.data(), static_cast<std::streamsize>(seed.size()));
  }
  std::exit(0);
}
