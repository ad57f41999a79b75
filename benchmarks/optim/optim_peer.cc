// SPDX-License-Identifier: Apache-2.0
#include "optim_peer.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

extern char** environ;

namespace ait::benchmarks {
namespace {

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "bench optim: the peer %s\n", what);
  std::exit(1);
}

}  // namespace

OptimPeer::OptimPeer(const std::string& python) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) Fail("cannot be given pipes");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  std::string accelerator = "DS_ACCELERATOR=cpu";
  environment.push_back(accelerator.data());
  environment.push_back(nullptr);
  std::string program = python, script = AIT_PEER_SCRIPT;
  char* const arguments[] = {program.data(), script.data(), nullptr};
  const int error =
      posix_spawn(&process_, program.c_str(), &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (error != 0) Fail("does not start");
}

OptimPeer::~OptimPeer() {
  close(to_);  // the script ends at the end of its input
  close(from_);
  waitpid(process_, nullptr, 0);
}

std::map<std::string, double> OptimPeer::Round(int threads) {
  const std::string request = std::to_string(threads) + "\n";
  if (write(to_, request.data(), request.size()) < 0) Fail("has ended");
  return nlohmann::json::parse(ReadLine()).get<std::map<std::string, double>>();
}

std::string OptimPeer::ReadLine() {
  std::size_t end;
  while ((end = received_.find('\n')) == std::string::npos) {
    char bytes[4096];
    const ssize_t count = read(from_, bytes, sizeof(bytes));
    if (count <= 0) Fail("has ended without an answer");
    received_.append(bytes, static_cast<std::size_t>(count));
  }
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  if (line.empty() || line.front() != '{') return ReadLine();  // what imports print
  return line;
}

}  // namespace ait::benchmarks
