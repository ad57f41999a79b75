// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/net_lint.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>

#include "ait/base/types.h"
#include "comm/net_variables.h"

namespace ait::inline v0 {
namespace {

using internal::FindNetVariable;
using internal::NetGrammar;
using internal::NetVariable;
using enum NetSeverity;

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> words;
  while (true) {
    const std::size_t at = text.find(separator);
    words.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return words;
    text.remove_prefix(at + 1);
  }
}

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// The rules, on one set of settings.
class Linter {
 public:
  Linter(NetSettings& settings, const NetFacts& facts) : settings_(settings), facts_(facts) {
    for (const NetSetting& setting : settings.settings) {
      if (setting.in_force) values_[setting.name] = setting.value;
    }
  }

  std::vector<NetFinding> Run() {
    for (NetSetting& setting : settings_.settings) {
      setting_ = &setting;
      if (!setting.in_force) {
        setting.effective = "not in force";
        Add(kNote,
            "is also set to '" + setting.value + "' by " + setting.source + ", which came too late",
            "keep it in one place");
        continue;
      }
      Lint(setting);
    }
    Host();
    Launch();
    std::stable_sort(
        findings_.begin(), findings_.end(),
        [](const NetFinding& a, const NetFinding& b) { return a.severity > b.severity; });
    return std::move(findings_);
  }

 private:
  void Add(NetSeverity severity, std::string what, std::string advice) {
    Add(severity, setting_->name, std::move(what), std::move(advice));
  }
  void Add(NetSeverity severity, std::string subject, std::string what, std::string advice) {
    findings_.push_back({severity, std::move(subject), std::move(what), std::move(advice)});
  }
  std::string Seen() const {
    return "'" + setting_->value + "'" +
           (setting_->source == "environment" ? "" : " (in " + setting_->source + ")");
  }
  std::optional<std::string> Value(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() || found->second.empty() ? std::nullopt
                                                           : std::optional(found->second);
  }

  void Lint(NetSetting& setting) {
    const NetVariable* variable = FindNetVariable(setting.name);
    if (variable == nullptr) return Unknown(setting);
    setting.effective = setting.value;
    if (setting.value.empty()) {
      setting.effective = "as if not set";
      return;
    }
    switch (variable->grammar) {
      case NetGrammar::kInteger:
        return Integer(*variable, setting);
      case NetGrammar::kDebugLevel:
        return Debug(setting);
      case NetGrammar::kSubsystems:
        return Words(
            setting,
            {"init", "coll", "p2p", "shm", "net", "graph", "tuning", "env", "alloc", "call",
             "proxy", "nvls", "bootstrap", "reg", "profile", "ras", "destroy", "all"},
            "it is ignored");
      case NetGrammar::kPrefixes:
        return Prefixes(setting);
      case NetGrammar::kAdapters:
        return Adapters(setting);
      case NetGrammar::kAlgorithms:
        return Functions(
            setting, {"tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"});
      case NetGrammar::kProtocols:
        return Functions(setting, {"ll", "ll128", "simple"});
      case NetGrammar::kInterfaces:
        return Interfaces(setting);
      case NetGrammar::kThreads:
        return Threads(setting);
      case NetGrammar::kFlag:
        return Flag(setting);
      case NetGrammar::kDistributedDebug:
        return DistributedDebug(setting);
      case NetGrammar::kText:
        return;
    }
  }

  void Unknown(NetSetting& setting) {
    setting.effective = "unknown";
    if (setting.name.find_first_of(" \t") != std::string::npos) {
      return Add(kError,
                 "the name has a space in it: " + setting.source + " says '" + setting.name + "=" +
                     setting.value + "', and NCCL trims nothing",
                 "write NAME=VALUE without spaces");
    }
    // torch renamed them in 2.2 and reads the old names of a few.
    const std::string renamed = "TORCH_" + setting.name;
    if (setting.name.starts_with("NCCL_") && FindNetVariable(renamed) != nullptr) {
      return Add(kWarning, "is the name that torch used before 2.2", "set " + renamed);
    }
    const std::string_view nearest = internal::NearestNetVariable(setting.name);
    Add(nearest.empty() ? kNote : kWarning,
        "is known to no library here, and is ignored in silence",
        nearest.empty() ? "unset it, or check the version that you mean"
                        : StrCat("did you mean ", nearest, "?"));
  }

  void Integer(const NetVariable& variable, NetSetting& setting) {
    // As ncclLoadParam does it: any base by prefix, and nothing behind the number is looked at.
    errno = 0;
    char* end = nullptr;
    const long long number = std::strtoll(setting.value.c_str(), &end, 0);
    const std::string_view rest = end;
    if (errno == ERANGE) {
      setting.effective = "the default";
      return Add(kError, Seen() + " does not fit 64 bits; the default is taken", "give a number");
    }
    setting.effective = StrCat(number);
    if (end == setting.value.c_str()) {
      setting.effective = "0";
      return Add(kError, Seen() + " is not a number and is read as 0",
                 Lower(setting.value) == "true" || Lower(setting.value) == "yes" ||
                         Lower(setting.value) == "on"
                     ? "write 1"
                     : "write a number");
    }
    if (!rest.empty()) {
      Add(kError,
          StrCat(Seen(), " is read as ", number,
                 ": what stands behind the number is not looked at"),
          "write the whole number");
    } else if (setting.value.size() > 1 && setting.value[0] == '0' &&
               std::isdigit(setting.value[1]) != 0) {
      Add(kWarning, StrCat(Seen(), " is octal and means ", number), "write no zero in front");
    }
    if (number < variable.least || number > variable.most) {
      Add(kError, StrCat(Seen(), " is outside of ", variable.least, " to ", variable.most),
          "give a value in the range");
    }
    if (variable.workaround && number == *variable.workaround) {
      Add(kWarning, StrCat(Seen(), " switches off ", variable.workaround_costs),
          "unset it, unless it works around a fault that you still have");
    }
    if (variable.name == "NCCL_IB_GID_INDEX" && number >= 0) {
      Add(kWarning,
          StrCat(Seen(),
                 " is fixed for every host, but the table of GIDs differs from host to host"),
          "unset it: NCCL finds the index; else compare /sys/class/infiniband/*/ports/*/gids");
    }
  }

  void Debug(NetSetting& setting) {
    static const std::set<std::string> kLevels = {"version", "warn", "info", "abort", "trace"};
    const std::string level = Lower(setting.value);
    if (!kLevels.contains(level)) {
      setting.effective = "none";
      return Add(kError, Seen() + " is no level; NCCL stays silent",
                 "give VERSION, WARN, INFO or TRACE");
    }
    if ((level == "info" || level == "trace") && !Value("NCCL_DEBUG_FILE")) {
      Add(kNote, Seen() + " writes from every rank to standard output",
          "set NCCL_DEBUG_FILE=nccl.%h.%p.log (%h host, %p process)");
    }
  }

  void Words(NetSetting& setting, const std::set<std::string>& known, const char* consequence) {
    std::string text = Lower(setting.value);
    if (text.starts_with('^')) text.erase(0, 1);
    for (const std::string& word : Split(text, ',')) {
      if (!known.contains(word)) {
        Add(kWarning, StrCat("'", word, "' of ", Seen(), " is no word of NCCL: ", consequence),
            "give words of: " + Join({known.begin(), known.end()}));
      }
    }
  }

  /// NCCL_ALGO, NCCL_PROTO: entries with ";", each "function:words", the first one may lack a function.
  void Functions(NetSetting& setting, const std::set<std::string>& known) {
    static const std::set<std::string> kFunctions = {"broadcast", "reduce", "allgather",
                                                     "reducescatter", "allreduce"};
    bool first = true;
    for (const std::string& entry : Split(Lower(setting.value), ';')) {
      std::string words = entry;
      const std::size_t colon = entry.find(':');
      if (colon != std::string::npos) {
        if (!kFunctions.contains(entry.substr(0, colon))) {
          Add(kError,
              StrCat("'", entry.substr(0, colon), "' of ", Seen(), " is no collective; init fails"),
              "give one of: " + Join({kFunctions.begin(), kFunctions.end()}));
        }
        words = entry.substr(colon + 1);
      } else if (!first) {
        Add(kError, StrCat("'", entry, "' of ", Seen(), " lacks its collective; init fails"),
            "only the first entry may have none: write collective:words");
      }
      first = false;
      if (words.starts_with('^')) words.erase(0, 1);
      for (const std::string& word : Split(words, ',')) {
        if (!known.contains(word)) {
          Add(kError,
              StrCat("'", word, "' of ", Seen(), " is not known; init fails with ncclInvalidUsage"),
              "give words of: " + Join({known.begin(), known.end()}));
        }
      }
    }
    Add(kNote, Seen() + " overrules NCCL's choice, and must be equal on all ranks",
        "unset it when you have measured what you wanted");
  }

  struct Match {
    bool exact = false, exclude = false;
    std::vector<std::string> words;
  };
  static Match ParseMatch(std::string_view text) {
    Match match;
    if (text.starts_with('^')) {
      match.exclude = true;
      text.remove_prefix(1);
    }
    if (text.starts_with('=')) {
      match.exact = true;
      text.remove_prefix(1);
    }
    match.words = Split(text, ',');
    return match;
  }
  static bool Fits(const Match& match, const std::string& word, const std::string& name) {
    return match.exact ? name == word : name.starts_with(word);
  }

  void Prefixes(NetSetting& setting) {
    const Match match = ParseMatch(setting.value);
    std::vector<std::string> taken, names;
    for (const NetInterface& interface : facts_.interfaces) {
      names.push_back(interface.name);
      bool fits = false;
      for (const std::string& word : match.words) {
        fits |= word.size() > 1 && Fits(match, word, interface.name);
      }
      if (fits == match.exclude) continue;
      if (interface.addresses.empty() || !interface.up) continue;
      taken.push_back(interface.name);
    }
    setting.effective = taken.empty() ? "no interface" : Join(taken);
    for (const std::string& word : match.words) {
      if (word.size() <= 1) {
        Add(kWarning, StrCat("'", word, "' of ", Seen(), " is too short; NCCL ignores it"),
            "write more letters of the name");
        continue;
      }
      std::vector<std::string> more;
      bool any = false;
      for (const std::string& name : names) {
        if (!Fits(match, word, name)) continue;
        any = true;
        if (name != word) more.push_back(name);
      }
      const bool is_whole = std::find(names.begin(), names.end(), word) != names.end();
      if (is_whole && !more.empty() && !match.exact) {
        Add(kWarning,
            StrCat("'", word, "' of ", Seen(), " is a prefix: it also means ", Join(more)),
            StrCat("write ", match.exclude ? "^=" : "=", word, " for that one alone"));
      }
      if (!any && !match.exclude) {
        Add(kError, StrCat("'", word, "' of ", Seen(), " fits no interface of this host"),
            "there are: " + Join(names));
      }
    }
    if (taken.empty()) {
      Add(kError, Seen() + " leaves no interface that is up and has an address; init fails",
          "there are: " + Join(names));
    }
  }

  void Adapters(NetSetting& setting) {
    const Match match = ParseMatch(setting.value);
    std::vector<std::string> taken;
    for (const std::string& adapter : facts_.adapters) {
      bool fits = false;
      for (const std::string& word : match.words) fits |= Fits(match, Split(word, ':')[0], adapter);
      if (fits != match.exclude) taken.push_back(adapter);
    }
    setting.effective = taken.empty() ? "no adapter: TCP" : Join(taken);
    const std::string there = facts_.adapters.empty() ? "none" : Join(facts_.adapters);
    if (!match.exclude) {
      for (const std::string& word : match.words) {
        const std::string name = Split(word, ':')[0];
        const bool any =
            std::any_of(facts_.adapters.begin(), facts_.adapters.end(),
                        [&](const auto& adapter) { return Fits(match, name, adapter); });
        if (!any) {
          Add(kError, StrCat("'", word, "' of ", Seen(), " is no adapter of this host"),
              StrCat("/sys/class/infiniband has: ", there));
        }
        const bool whole = std::find(facts_.adapters.begin(), facts_.adapters.end(), name) !=
                           facts_.adapters.end();
        std::vector<std::string> more;
        for (const std::string& adapter : facts_.adapters) {
          if (adapter != name && adapter.starts_with(name)) more.push_back(adapter);
        }
        if (whole && !match.exact && !more.empty()) {
          Add(kWarning,
              StrCat("'", word, "' of ", Seen(), " is a prefix: it also means ", Join(more)),
              StrCat("write =", setting.value));
        }
      }
    }
    if (taken.empty()) {
      Add(kError, Seen() + " leaves no adapter: NCCL falls back to TCP in silence",
          StrCat("/sys/class/infiniband has: ", there));
    }
  }

  void Interfaces(NetSetting& setting) {
    if (setting.value.starts_with('^') || setting.value.starts_with('=')) {
      return Add(kError, Seen() + " is the syntax of NCCL; this variable takes names of interfaces",
                 "write the name of one interface");
    }
    std::vector<std::string> names;
    names.reserve(facts_.interfaces.size());
    for (const NetInterface& interface : facts_.interfaces) names.push_back(interface.name);
    for (const std::string& word : Split(setting.value, ',')) {
      const auto found = std::find_if(facts_.interfaces.begin(), facts_.interfaces.end(),
                                      [&](const NetInterface& i) { return i.name == word; });
      if (found == facts_.interfaces.end()) {
        Add(kError, StrCat("'", word, "' of ", Seen(), " is no interface of this host"),
            "there are: " + Join(names));
      } else if (!found->up || found->addresses.empty()) {
        Add(kError,
            StrCat("interface ", word, " of ", Seen(), " ",
                   found->up ? "has no address" : "is down"),
            "take one that is up and has an address");
      } else if (found->loopback && IsOnSeveralHosts()) {
        Add(kError, Seen() + " is the loopback interface, but the run has several hosts",
            "take the interface that leads to the others, or unset it");
      }
    }
  }

  void Threads(NetSetting& setting) {
    std::int64_t most = 0;
    for (const std::string& word : Split(setting.value, ',')) {
      char* end = nullptr;
      const long number = std::strtol(word.c_str(), &end, 10);
      if (word.empty() || *end != '\0' || number < 1) {
        setting.effective = "the default";
        return Add(kError, Seen() + " is no number of threads; the default is one a CPU",
                   "write a number, at least 1");
      }
      if (most == 0) most = number;
    }
    // A process that may not use every CPU has been bound: the ones it may use are its own.
    const bool is_bound = facts_.host_cpus > 0 && facts_.cpus < facts_.host_cpus;
    const std::int64_t sharers = is_bound ? 1 : LocalRanks();
    const auto counted = [](std::int64_t count, const char* noun) {
      return StrCat(count, " ", noun, count == 1 ? "" : "s");
    };
    if (facts_.cpus > 0 && most * sharers > facts_.cpus) {
      Add(kWarning,
          StrCat(Seen(), " for ", counted(sharers, "rank"), " is ",
                 counted(most * sharers, "thread"), " on ", counted(facts_.cpus, "CPU")),
          StrCat("set it to ", std::max<std::int64_t>(1, facts_.cpus / sharers)));
    } else if (facts_.cpus > 0 && most == 1 && facts_.cpus / sharers >= 2) {
      Add(kNote,
          StrCat(Seen(), " leaves ", facts_.cpus - sharers, " of ", counted(facts_.cpus, "CPU"),
                 " to nobody (torchrun sets 1 by itself)"),
          StrCat("set it to ", facts_.cpus / sharers));
    }
  }

  void Flag(NetSetting& setting) {
    const std::string text = Lower(setting.value);
    static const std::set<std::string> kOn = {"1", "y", "yes", "t", "true", "on"};
    static const std::set<std::string> kOff = {"0", "n", "no", "f", "false", "off"};
    setting.effective = kOn.contains(text) ? "on" : "off";
    if (!kOn.contains(text) && !kOff.contains(text)) {
      Add(kError, Seen() + " is neither on nor off", "write 1 or 0");
    }
  }

  void DistributedDebug(NetSetting& setting) {
    const std::string text = Lower(setting.value);
    if (text != "off" && text != "info" && text != "detail") {
      return Add(kError, Seen() + " is no level; torch refuses to start",
                 "give OFF, INFO or DETAIL");
    }
    if (text == "detail") {
      Add(kWarning, Seen() + " gathers the arguments of every collective over Gloo twice, first",
          "unset it when the fault is found; ait compares signatures always");
    }
  }

  std::int64_t LocalRanks() const {
    const auto local = Value("LOCAL_WORLD_SIZE");
    return local ? std::max(1L, std::strtol(local->c_str(), nullptr, 10)) : 1;
  }
  bool IsOnSeveralHosts() const {
    const auto world = Value("WORLD_SIZE"), local = Value("LOCAL_WORLD_SIZE");
    return world && local && std::strtol(world->c_str(), nullptr, 10) > LocalRanks();
  }

  static bool IsLoopback(std::string_view address) {
    return address.starts_with("127.") || address == "::1" || address == "localhost";
  }

  void Host() {
    if (facts_.hostname_addresses.empty()) {
      Add(IsOnSeveralHosts() ? kError : kWarning, "host",
          StrCat("its name, ", facts_.hostname, ", does not resolve"),
          "add it to /etc/hosts with the address that the others reach, or set GLOO_SOCKET_IFNAME");
    } else if (std::all_of(facts_.hostname_addresses.begin(), facts_.hostname_addresses.end(),
                           IsLoopback) &&
               !Value("GLOO_SOCKET_IFNAME")) {
      Add(IsOnSeveralHosts() ? kWarning : kNote, "host",
          StrCat("its name, ", facts_.hostname, ", resolves to ", Join(facts_.hostname_addresses),
                 ": c10d's Gloo publishes that, and no other host reaches it"),
          "for several hosts, set GLOO_SOCKET_IFNAME or take the line out of /etc/hosts; ait looks "
          "at "
          "the route instead");
    }
    const bool any =
        std::any_of(facts_.interfaces.begin(), facts_.interfaces.end(), [](const NetInterface& i) {
          return i.up && i.running && !i.loopback && !i.addresses.empty();
        });
    if (!any) {
      Add(IsOnSeveralHosts() ? kError : kNote, "host",
          "no interface but the loopback one is up and has an address",
          "ranks of this host reach each other, other hosts do not");
    }
  }

  void Launch() {
    const auto master = Value("MASTER_ADDR");
    if (master && IsLoopback(*master) && IsOnSeveralHosts()) {
      Add(kError, "MASTER_ADDR", "'" + *master + "' is this host itself on every host",
          "set it to the address of rank 0's host");
    }
    if (Value("TORCHELASTIC_USE_AGENT_STORE") == "True" && !Value("TORCHELASTIC_RUN_ID")) {
      Add(kError, "TORCHELASTIC_USE_AGENT_STORE",
          "'True' is left from another launch: all ranks wait for a store that nobody serves",
          "unset it");
    }
  }

  NetSettings& settings_;
  const NetFacts& facts_;
  std::map<std::string, std::string> values_;  // in force
  const NetSetting* setting_ = nullptr;
  std::vector<NetFinding> findings_;
};

}  // namespace

std::string_view Name(NetSeverity severity) {
  switch (severity) {
    case kNote:
      return "note";
    case kWarning:
      return "warning";
    case kError:
      return "error";
  }
  return "unknown";
}

std::vector<NetFinding> LintNet(NetSettings& settings, const NetFacts& facts) {
  return Linter(settings, facts).Run();
}

}  // namespace ait::inline v0
