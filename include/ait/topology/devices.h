// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_DEVICES_H_
#define AIT_TOPOLOGY_DEVICES_H_

// The GPUs and network adapters of the machine, and the NUMA node that each is attached to.
//
// Read from /sys alone: neither CUDA nor a driver is needed, and a GPU that this process may not
// use is there too. A program that uses CUDA asks for the node of its own devices, by address:
//
//   AIT_ASSIGN_OR_RETURN(DeviceInfo gpu, runtime->Describe(Device(0)));   // ait/device/runtime.h
//   AIT_ASSIGN_OR_RETURN(std::optional<int> node, NodeOfPciDevice(gpu.pci_id));
//
// The kernel says -1 where the firmware does not tell, on most virtual machines: that stays
// unknown, and is never taken for node 0.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/topology/id_set.h"
#include "ait/topology/system_roots.h"

namespace ait::inline v0 {

/// A device that computes: a display or accelerator of NVIDIA, AMD or Intel. The graphics of a
/// board's management controller do not count.
struct GpuPlace {
  std::string pci_id;       // "0000:1b:00.0"
  std::string vendor;       // "NVIDIA", "AMD" or "Intel"
  std::optional<int> node;  // nullopt if unknown
  CpuSet local_cpus;        // CPUs near it; empty if unknown
};

enum class NetworkKind { kEthernet, kInfiniband };

/// An adapter with hardware behind it: no bridges, tunnels or loopback.
struct NetworkPlace {
  std::string name;  // "eth0" of /sys/class/net, "mlx5_0" of /sys/class/infiniband
  NetworkKind kind = NetworkKind::kEthernet;
  std::string pci_id;       // "" if it is not on PCI
  std::optional<int> node;  // nullopt if unknown
  bool is_up = false;       // the link
};

struct MachineDevices {
  std::vector<GpuPlace> gpus;          // by PCI address
  std::vector<NetworkPlace> networks;  // by kind and name
  std::vector<std::string> notes;      // what could not be read
};

/// Reads what there is; what is not there is an empty list.
MachineDevices ReadDevices(const SystemRoots& roots = {});

/// The node of a PCI device, nullopt if the system does not know it. The address may be written as
/// CUDA ("0000:1B:00.0") or NVML ("00000000:1B:00.0") write it, or without domain.
/// **Errors.** InvalidArgument: no PCI address. NotFound: no such device here.
StatusOr<std::optional<int>> NodeOfPciDevice(std::string_view pci_id,
                                             const SystemRoots& roots = {});

}  // namespace ait::inline v0

#endif  // AIT_TOPOLOGY_DEVICES_H_
