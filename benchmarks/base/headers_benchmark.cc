// SPDX-License-Identifier: Apache-2.0
// What including a public header costs: CPU seconds to compile a file that includes it and nothing
// else, the best of three, against the budget: 1.5 s on the lower floor, 3 s on the upper. The two
// headers that include libtorch state their own price and are listed against libtorch's Tensor.h.

#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "support/report.h"

extern char** environ;

namespace {

namespace fs = std::filesystem;

double ChildSeconds() {
  rusage usage;
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double CompileOnce(const std::string& source) {
  std::vector<std::string> words = {AIT_COMPILER, "-std=c++20",        "-O2", "-c", "-o",
                                    "/dev/null",  "-I" AIT_INCLUDE_DIR};
  if (*AIT_TORCH_INCLUDE_DIR != '\0') {
    words.insert(words.end(), {"-isystem", AIT_TORCH_INCLUDE_DIR, "-isystem",
                               AIT_TORCH_INCLUDE_DIR "/torch/csrc/api/include"});
  }
  words.push_back(source);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const double before = ChildSeconds();
  pid_t pid;
  int status = 1;
  if (posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ) != 0 ||
      waitpid(pid, &status, 0) < 0 || status != 0) {
    std::fprintf(stderr, "bench headers: %s does not compile\n", source.c_str());
    std::exit(1);
  }
  return ChildSeconds() - before;
}

double Cost(const fs::path& folder, const std::string& header) {
  const fs::path source = folder / "include_one.cc";
  std::ofstream(source) << "#include \"" << header << "\"\nint main() {}\n";
  double best = CompileOnce(source);
  for (int i = 0; i < 2; ++i) best = std::min(best, CompileOnce(source));
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  ait::benchmarks::Report report(argc, argv);
  const std::set<std::string> upper = {"tensor",   "optim",      "activation",
                                       "parallel", "checkpoint", "runtime"};
  const std::set<std::string> with_torch = {"ait/tensor/torch.h", "ait/parallel/module.h"};
  std::string folder = (fs::temp_directory_path() / "ait_headers_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  std::vector<std::string> headers;
  for (const auto& entry : fs::recursive_directory_iterator(AIT_INCLUDE_DIR)) {
    if (entry.path().extension() == ".h")
      headers.push_back(fs::relative(entry.path(), AIT_INCLUDE_DIR).string());
  }
  std::sort(headers.begin(), headers.end());
  const bool torch = *AIT_TORCH_INCLUDE_DIR != '\0';
  const double tensor = torch ? Cost(folder, "ATen/core/Tensor.h") : 0;
  for (const std::string& header : headers) {
    const bool heavy = with_torch.contains(header);
    if (heavy && !torch) continue;
    const std::string component = header.substr(4, header.find('/', 4) - 4);
    const double budget = upper.contains(component) ? 3.0 : 1.5;
    report.AddTime(header.substr(4, header.size() - 6),
                   {.ms = 1e3 * Cost(folder, header),
                    .baseline = heavy ? "ATen/core/Tensor.h" : "budget",
                    .baseline_ms = 1e3 * (heavy ? tensor : budget)});
  }
  fs::remove_all(folder);
  return report.Finish();
}
