// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without libFuzzer: its seeds, every truncation of them, and random changes.
//
//   fuzz_tar [--seconds S] [--seed N] [--crash FILE] [INPUT...]
//
// Input number i of a seed N is always the same. One that ends the program is left in FILE;
// `fuzz_tar FILE` runs it again.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"

namespace {

const std::string* current = nullptr;
const char* crash_path = nullptr;

void SaveInput(int signal) {
  if (crash_path != nullptr && current != nullptr) {
    const int fd = open(crash_path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (fd >= 0 && write(fd, current->data(), current->size()) >= 0) {
      const char text[] = "the input lies in the file of --crash\n";
      if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) _exit(1);
    }
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void RunOne(const std::string& input) {
  current = &input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  current = nullptr;
}

// What parsers stumble over: ends of ranges of numbers.
constexpr std::uint64_t kNumbers[] = {0,          1,          0x7f,        0x80,
                                      0xff,       0x7fff,     0xffff,      0x7fffffff,
                                      0x80000000, 0xffffffff, 0x100000000, 0x7fffffffffffffff,
                                      1ull << 63, ~0ull,      ~0ull - 15,  512};

std::string Change(const std::vector<std::string>& seeds, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) {
    return n == 0 ? 0 : static_cast<std::size_t>(random() % n);
  };
  std::string input = seeds[below(seeds.size())];
  const std::size_t changes = 1 + below(6);
  for (std::size_t i = 0; i < changes; ++i) {
    const std::size_t at = below(input.size());
    switch (below(8)) {
      case 0:
        if (!input.empty()) input[at] ^= static_cast<char>(1 << below(8));
        break;
      case 1:
        if (!input.empty()) input[at] = static_cast<char>(random());
        break;
      case 2:
        input.resize(below(input.size() + 1));
        break;
      case 3:
        input.insert(at, below(64), static_cast<char>(random()));
        break;
      case 4:
        input.erase(at, below(64));
        break;
      case 5: {  // a number, of 1, 2, 4 or 8 bytes
        const std::uint64_t number = kNumbers[below(std::size(kNumbers))];
        const std::size_t bytes = std::min(std::size_t{1} << below(4), input.size() - at);
        if (!input.empty()) std::memcpy(input.data() + at, &number, bytes);
        break;
      }
      case 6: {  // a piece of another one
        const std::string& other = seeds[below(seeds.size())];
        const std::size_t from = below(other.size());
        input.insert(at, other, from, below(other.size() - from + 1));
        break;
      }
      default:  // a piece of itself
        if (!input.empty()) {
          const std::string piece = input.substr(below(input.size()), below(600));
          input.replace(at, std::min(piece.size(), input.size() - at), piece);
        }
        break;
    }
    if (input.size() > (std::size_t{1} << 20)) input.resize(std::size_t{1} << 20);
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 1;
  std::uint64_t seed = 1;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool has_value = i + 1 < argc;
    if (argument == "--seconds" && has_value) {
      seconds = std::strtod(argv[++i], nullptr);
    } else if (argument == "--seed" && has_value) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--crash" && has_value) {
      crash_path = argv[++i];
    } else {
      files.push_back(argument);
    }
  }
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) {
    std::signal(signal, SaveInput);
  }
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    RunOne({std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()});
  }
  if (!files.empty()) return 0;

  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::vector<std::string> seeds = ait::testing::FuzzSeeds();
  if (seeds.empty()) seeds.emplace_back();
  for (const std::string& whole : seeds) {
    RunOne(whole);
    const std::size_t step = 1 + whole.size() / 2000;
    for (std::size_t length = 0; length < whole.size(); length += step) {
      RunOne(whole.substr(0, length));
    }
  }
  std::uint64_t inputs = 0;
  while (inputs < 200 || std::chrono::steady_clock::now() < end) {
    std::mt19937_64 random(seed * 1'000'003 + inputs++);
    RunOne(Change(seeds, random));
  }
  std::printf("%llu random inputs of seed %llu\n", static_cast<unsigned long long>(inputs),
              static_cast<unsigned long long>(seed));
  return 0;
}
