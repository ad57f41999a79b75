// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_DOCTOR_REPORT_H_
#define AIT_CLI_DOCTOR_REPORT_H_

// What `ait doctor net` says: hosts with their findings, pairs of ranks, and a verdict. As JSON between
// ranks and for programs, as text for people.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ait/comm/net_lint.h"
#include "cli/net_probe.h"

namespace ait::cli {

/// What one host has to say: "host", "ranks", "interfaces", "adapters", "addresses", "cpus", "files",
/// "variables" and "findings".
nlohmann::json DescribeHost(const NetFacts& facts, const NetSettings& settings,
                            const std::vector<NetFinding>& findings);

/// The whole: "hosts", "pairs", "verdict" ("ok", "warnings" or "errors"), "errors", "warnings", "next".
nlohmann::json MakeReport(std::vector<nlohmann::json> hosts, const std::vector<PairResult>& pairs);

/// The report for people.
std::string ReportText(const nlohmann::json& report);

}  // namespace ait::cli

#endif  // AIT_CLI_DOCTOR_REPORT_H_
