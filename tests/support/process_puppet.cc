// SPDX-License-Identifier: Apache-2.0
// process_puppet [COMMAND...]: does what a test of processes asks for, one command after the other.
//
//   print TEXT / error TEXT   a line to standard output / standard error
//   raw TEXT                  the text alone, without newline, at once
//   env NAME                  "NAME=value", or "NAME is unset"
//   args                      the remaining arguments, each in brackets, and ends
//   copy                      standard input to standard output
//   fds                       the open descriptors, as "fds 0 1 2"
//   tty                       which of the descriptors 0 to 2 are terminals, as "tty 0 0 1"
//   cpus                      how many CPUs it may run on, as "cpus 2"
//   listen                    takes one connection on AIT_LISTEN_FD, prints "connected"
//   bind                      binds MASTER_PORT itself, prints "bound"
//   connect                   connects to MASTER_ADDR:MASTER_PORT
//   ignore SIGNAL             ignores it from now on
//   catch SIGNAL              prints "caught SIGNAL" and ends with code 0 when it comes
//   child                     starts a grandchild of the same group that sleeps; prints "child PID"
//   stubborn                  the same, but the grandchild ignores TERM
//   sleep MILLISECONDS        sleeps; "sleep 0" sleeps for ever
//   only RANK                 ends with code 0 unless this is rank RANK
//   if RANK                   does the next command only on rank RANK
//   exit CODE / raise SIGNAL  ends
#include <arpa/inet.h>
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

int Number(const char* text) { return text == nullptr ? -1 : std::atoi(text); }

bool TakesArgument(std::string_view verb) {
  constexpr std::string_view kVerbs[] = {"print", "error", "raw",  "env",  "ignore",
                                         "catch", "sleep", "only", "exit", "raise"};
  return std::find(std::begin(kVerbs), std::end(kVerbs), verb) != std::end(kVerbs);
}

void Sleep(int milliseconds) {
  if (milliseconds == 0) {
    while (true) pause();
  }
  timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  while (nanosleep(&left, &left) != 0) {
  }
}

void PrintDescriptors() {
  DIR* folder = opendir("/proc/self/fd");
  std::vector<int> open;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.' && Number(entry->d_name) != dirfd(folder)) {
      open.push_back(Number(entry->d_name));
    }
  }
  closedir(folder);
  std::sort(open.begin(), open.end());
  std::printf("fds");
  for (const int fd : open) std::printf(" %d", fd);
  std::printf("\n");
}

void StartChild(bool stubborn) {
  const pid_t child = fork();
  if (child == 0) {
    if (stubborn) signal(SIGTERM, SIG_IGN);
    Sleep(0);
  }
  std::printf("child %d\n", child);
}

sockaddr_in MasterAddress() {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<in_port_t>(Number(std::getenv("MASTER_PORT"))));
  inet_pton(AF_INET, std::getenv("MASTER_ADDR"), &address.sin_addr);
  return address;
}

bool Bind() {
  const sockaddr_in address = MasterAddress();
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
         listen(fd, 1) == 0;
}

bool Connect() {
  const sockaddr_in address = MasterAddress();
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

volatile sig_atomic_t caught = 0;
void Catch(int number) {
  caught = number;
  char text[] = "caught 00\n";
  text[7] = static_cast<char>('0' + number / 10);
  text[8] = static_cast<char>('0' + number % 10);
  const ssize_t ignored = write(1, text, sizeof(text) - 1);
  static_cast<void>(ignored);
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
  const int rank = Number(std::getenv("RANK"));
  for (int i = 1; i < argc; ++i) {
    const std::string verb = argv[i];
    const auto next = [&]() -> const char* { return i + 1 < argc ? argv[++i] : ""; };
    if (verb == "print") {
      std::printf("%s\n", next());
    } else if (verb == "error") {
      std::fprintf(stderr, "%s\n", next());
    } else if (verb == "raw") {
      std::fputs(next(), stdout);
      std::fflush(stdout);
    } else if (verb == "env") {
      const char* name = next();
      const char* value = std::getenv(name);
      std::printf(value != nullptr ? "%s=%s\n" : "%s is unset\n", name, value);
    } else if (verb == "args") {
      while (++i < argc) std::printf("[%s]\n", argv[i]);
    } else if (verb == "copy") {
      for (int c = std::getchar(); c != EOF; c = std::getchar()) std::putchar(c);
    } else if (verb == "fds") {
      PrintDescriptors();
    } else if (verb == "tty") {
      std::printf("tty %d %d %d\n", isatty(0), isatty(1), isatty(2));
    } else if (verb == "cpus") {
      cpu_set_t set;
      sched_getaffinity(0, sizeof(set), &set);
      std::printf("cpus %d\n", CPU_COUNT(&set));
    } else if (verb == "listen") {
      if (accept(Number(std::getenv("AIT_LISTEN_FD")), nullptr, nullptr) < 0) return 98;
      std::printf("connected\n");
    } else if (verb == "bind") {
      if (!Bind()) return 96;
      std::printf("bound\n");
    } else if (verb == "connect") {
      if (!Connect()) return 97;
    } else if (verb == "ignore") {
      signal(Number(next()), SIG_IGN);
    } else if (verb == "catch") {
      signal(Number(next()), Catch);
    } else if (verb == "child" || verb == "stubborn") {
      StartChild(verb == "stubborn");
    } else if (verb == "sleep") {
      Sleep(Number(next()));
    } else if (verb == "only") {
      if (rank != Number(next())) return 0;
    } else if (verb == "if") {
      if (rank != Number(next())) i += TakesArgument(next()) ? 1 : 0;
    } else if (verb == "exit") {
      return Number(next());
    } else if (verb == "raise") {
      raise(Number(next()));
    } else {
      std::fprintf(stderr, "process_puppet: unknown command %s\n", verb.c_str());
      return 99;
    }
  }
  return 0;
}
