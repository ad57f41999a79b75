// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NET_LINT_H_
#define AIT_COMM_NET_LINT_H_

// What the variables of NCCL, Gloo, OpenMP and torchrun really mean on this host, and which of them do
// not mean what somebody thought.
//
// The grammar is that of the libraries, not that of their manuals: NCCL reads integers with strtoll and
// looks at nothing behind them, so that "true" is 0; its lists of interfaces are prefixes; a name it does
// not know is ignored in silence. Names of interfaces and adapters are compared with those that exist.
//
//   AIT_ASSIGN_OR_RETURN(NetFacts facts, ReadNetFacts());
//   NetSettings settings = ReadNetSettings(environment);        // pairs of name and value
//   for (const NetFinding& finding : LintNet(settings, facts)) Print(finding);
//
// Reads files and the interfaces of the host; opens no connection and changes nothing. `ait doctor net`
// prints it. NCCL's grammar is that of 2.28 to 2.30; a variable that only other versions know is a note.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/base/status.h"

namespace ait::inline v0 {

/// A network interface of this network namespace.
struct NetInterface {
  std::string name;
  bool up = false;       // set up by the administrator
  bool running = false;  // with a carrier
  bool loopback = false;
  std::vector<std::string> addresses;  // "10.0.0.2", "fd00::2"; without link-local ones
};

/// What this host has.
struct NetFacts {
  std::vector<NetInterface> interfaces;
  std::vector<std::string> adapters;  // InfiniBand and RoCE, by their names in sysfs: "mlx5_0"
  std::string hostname;
  std::vector<std::string> hostname_addresses;  // what the name resolves to; empty: nothing
  int cpus = 0;                                 // this process may use; 0 if unknown
  int host_cpus = 0;                            // that are online; 0 if unknown
};

/// Reads the facts. `sys` is where the kernel's files are. **Blocks.** While the name of the host is
/// resolved. **Errors.** Unavailable: the interfaces cannot be listed.
StatusOr<NetFacts> ReadNetFacts(const std::string& sys = "/sys");

/// One variable, where it is set.
struct NetSetting {
  std::string name;
  std::string value;
  std::string source;    // "environment", or the path of a file
  bool in_force = true;  // false: another source came first
  std::string
      effective;  // what the library makes of it: "0 (off)", "eth0, eth1"; filled by LintNet
};

struct NetSettings {
  std::vector<NetSetting> settings;  // in the order of names; of one name, the one in force first
  std::vector<std::string> files;    // that were read
};

using NetEnvironment = std::vector<std::pair<std::string, std::string>>;

/// Those of the environment that this page is about, and those of NCCL's files: NCCL_CONF_FILE or
/// ~/.nccl.conf, then `system_file`. The environment wins, then the first file.
NetSettings ReadNetSettings(const NetEnvironment& environment,
                            const std::string& system_file = "/etc/nccl.conf");

enum class NetSeverity {
  kNote,     // worth knowing
  kWarning,  // slower than it must be, or a trap for the next change
  kError,    // does not do what it says, or the run will fail
};
std::string_view Name(NetSeverity severity);

struct NetFinding {
  NetSeverity severity = NetSeverity::kNote;
  std::string subject;  // the variable, or "host"
  std::string what;     // with the value seen
  std::string advice;   // what to do
};

/// Everything that deserves a word, errors first. Fills in what is effective.
std::vector<NetFinding> LintNet(NetSettings& settings, const NetFacts& facts);

}  // namespace ait::inline v0

#endif  // AIT_COMM_NET_LINT_H_
