// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_TOPO_REPORT_H_
#define AIT_CLI_TOPO_REPORT_H_

// How `ait topo` shows what it read, as text and as JSON.

#include <string>
#include <vector>

#include "ait/topology/budget.h"
#include "ait/topology/devices.h"
#include "ait/topology/huge_pages.h"
#include "ait/topology/machine.h"
#include "ait/topology/rank_layout.h"

namespace ait::cli {

struct ChosenLayout {
  LayoutPolicy policy = LayoutPolicy::kCompact;
  HostLayout host;
};

struct TopoReport {
  Machine machine;
  MachineDevices devices;
  HugePageState huge_pages;
  Budget budget;
  std::vector<ChosenLayout> layouts;
};

std::string TopoText(const TopoReport& report);

/// One object: "machine", "devices", "process", "layouts".
std::string TopoJson(const TopoReport& report);

}  // namespace ait::cli

#endif  // AIT_CLI_TOPO_REPORT_H_
