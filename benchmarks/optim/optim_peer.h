// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BENCHMARKS_OPTIM_OPTIM_PEER_H_
#define AIT_BENCHMARKS_OPTIM_OPTIM_PEER_H_

// benchmarks/peers/optim.py as a process that takes turns with this one: it waits between calls.

#include <map>
#include <string>

#include <sys/types.h>

namespace ait::benchmarks {

class OptimPeer {
 public:
  /// Starts `python` on the script; ends the program if that fails.
  explicit OptimPeer(const std::string& python);
  ~OptimPeer();
  OptimPeer(const OptimPeer&) = delete;
  OptimPeer& operator=(const OptimPeer&) = delete;

  /// One call of each of its variants with so many threads: milliseconds by name.
  std::map<std::string, double> Round(int threads);

 private:
  std::string ReadLine();

  pid_t process_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string received_;
};

}  // namespace ait::benchmarks

#endif  // AIT_BENCHMARKS_OPTIM_OPTIM_PEER_H_
