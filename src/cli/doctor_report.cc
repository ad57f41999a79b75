// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor_report.h"

#include <cstdio>
#include <utility>

#include "cli/program.h"

namespace ait::cli {
namespace {

using Json = nlohmann::json;

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

std::string Text(const Json& value) { return value.get<std::string>(); }

std::string List(const Json& words) {
  std::string text;
  for (const Json& word : words) {
    text += text.empty() ? "" : ", ";
    text += word.is_string() ? Text(word) : word.dump();
  }
  return text.empty() ? "none" : text;
}

std::string HostText(const Json& host) {
  std::string text = "host " + Text(host["host"]);
  if (host.contains("ranks")) text += ", ranks " + List(host["ranks"]);
  text += "\n";
  for (const Json& interface : host["interfaces"]) {
    const std::string state = std::string(interface["up"] ? "up" : "down") +
                              (interface["running"] ? "" : ", no carrier") +
                              (interface["loopback"] ? ", loopback" : "");
    text += Format("  interface %-12s %-18s %s\n", Text(interface["name"]).c_str(), state.c_str(),
                   List(interface["addresses"]).c_str());
  }
  text += "  adapters of InfiniBand or RoCE: " + List(host["adapters"]) + "\n";
  text += "  its name resolves to: " + List(host["addresses"]) + "\n";
  text += "  files of NCCL: " + List(host["files"]) + "\n";
  for (const Json& variable : host["variables"]) {
    text += "  " + Text(variable["name"]) + "=" + Text(variable["value"]);
    if (variable["effective"] != variable["value"]) {
      text += "  means: " + Text(variable["effective"]);
    }
    text += "  (" + Text(variable["source"]) + ")\n";
  }
  for (const Json& finding : host["findings"]) {
    text += "  " + Text(finding["severity"]) + ": " + Text(finding["subject"]) + ": " +
            Text(finding["what"]) + "\n      " + Text(finding["advice"]) + "\n";
  }
  return text;
}

std::string PairText(const Json& pair) {
  std::string text = Format("  rank %d -> rank %d at %s: ", pair["from"].get<int>(),
                            pair["to"].get<int>(), Text(pair["address"]).c_str());
  if (!pair["error"].get<std::string>().empty()) {
    text += "error: " + Text(pair["error"]);
  } else {
    text += Format("%.1f us, %.2f GB/s", pair["latency_us"].get<double>(),
                   pair["gb_per_s"].get<double>());
  }
  if (!pair.contains("shared_memory")) return text + "\n";
  const Json& shared = pair["shared_memory"];
  if (!Text(shared["error"]).empty())
    return text + "; shared memory: error: " + Text(shared["error"]) + "\n";
  return text + Format("; shared memory: %.1f us, %.2f GB/s\n", shared["latency_us"].get<double>(),
                       shared["gb_per_s"].get<double>());
}

}  // namespace

Json DescribeHost(const NetFacts& facts, const NetSettings& settings,
                  const std::vector<NetFinding>& findings) {
  Json host = {{"host", facts.hostname},     {"interfaces", Json::array()},
               {"adapters", facts.adapters}, {"addresses", facts.hostname_addresses},
               {"cpus", facts.cpus},         {"files", settings.files},
               {"variables", Json::array()}, {"findings", Json::array()}};
  for (const NetInterface& interface : facts.interfaces) {
    host["interfaces"].push_back({{"name", interface.name},
                                  {"up", interface.up},
                                  {"running", interface.running},
                                  {"loopback", interface.loopback},
                                  {"addresses", interface.addresses}});
  }
  for (const NetSetting& setting : settings.settings) {
    host["variables"].push_back({{"name", setting.name},
                                 {"value", setting.value},
                                 {"source", setting.source},
                                 {"effective", setting.effective}});
  }
  for (const NetFinding& finding : findings) {
    host["findings"].push_back({{"severity", Name(finding.severity)},
                                {"subject", finding.subject},
                                {"what", finding.what},
                                {"advice", finding.advice}});
  }
  return host;
}

Json MakeReport(std::vector<Json> hosts, const std::vector<PairResult>& pairs) {
  int errors = 0, warnings = 0;
  std::string next;
  for (const Json& host : hosts) {
    for (const Json& finding : host["findings"]) {
      if (finding["severity"] == "note") continue;
      ++(finding["severity"] == "error" ? errors : warnings);
      if (next.empty() && finding["severity"] == "error") {
        next = "on host " + Text(host["host"]) + ", " + Text(finding["subject"]) + ": " +
               Text(finding["advice"]);
      }
    }
  }
  Json report = {{"hosts", std::move(hosts)}, {"pairs", Json::array()}};
  for (const PairResult& pair : pairs) {
    Json row = {{"from", pair.from},
                {"to", pair.to},
                {"address", pair.address},
                {"error", pair.error},
                {"latency_us", pair.latency_us},
                {"gb_per_s", pair.gigabytes_per_second}};
    if (pair.shares_host && pair.from < pair.to) {
      row["shared_memory"] = {{"error", pair.shared_memory_error},
                              {"latency_us", pair.shared_memory_latency_us},
                              {"gb_per_s", pair.shared_memory_gigabytes_per_second}};
    }
    errors += (pair.error.empty() ? 0 : 1) + (pair.shared_memory_error.empty() ? 0 : 1);
    if (next.empty() && !pair.error.empty()) {
      next = StrCat("let rank ", pair.from, " reach ", pair.address,
                    " (firewall, route, GLOO_SOCKET_IFNAME), then run this again");
    }
    report["pairs"].push_back(std::move(row));
  }
  if (next.empty()) {
    next = pairs.empty() ? "ait doctor net -n 2, or the same under the launcher of the run"
                         : "ait bench comm";
  }
  report["errors"] = errors;
  report["warnings"] = warnings;
  report["verdict"] = errors != 0 ? "errors" : warnings != 0 ? "warnings" : "ok";
  report["next"] = next;
  return report;
}

std::string ReportText(const Json& report) {
  std::string text;
  for (const Json& host : report["hosts"]) text += HostText(host);
  if (!report["pairs"].empty()) {
    text += "pairs: half of a round trip of one byte over TCP, and bandwidth\n";
  }
  for (const Json& pair : report["pairs"]) text += PairText(pair);
  text += "verdict: " + Counted(report["errors"], "error") + ", " +
          Counted(report["warnings"], "warning") + "\nnext: " + Text(report["next"]) + "\n";
  return text;
}

}  // namespace ait::cli
