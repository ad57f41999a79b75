// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/devices.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <utility>

#include "topology/kernel_file_internal.h"

namespace ait::inline v0 {
namespace {

using internal::ReadIdSet;
using internal::ReadInteger;
using internal::ReadLine;

/// Names in a folder, in order; none if there is no such folder.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// "0x030200" as a number.
std::optional<std::uint32_t> ReadHex(const std::string& path) {
  const std::string line = ReadLine(path).value_or("");
  if (!line.starts_with("0x")) return std::nullopt;
  std::uint32_t value = 0;
  const char* const end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + 2, end, value, 16);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

/// The node that a device's folder tells; -1 is unknown.
std::optional<int> NodeIn(const std::string& folder) {
  const auto node = ReadInteger(folder + "/numa_node");
  if (!node || *node < 0 || *node > NodeSet::kMaxId) return std::nullopt;
  return static_cast<int>(*node);
}

/// Hex digits of `text` in small letters, `digits` of them; "" if it is anything else.
std::string HexField(std::string_view text, std::size_t digits) {
  while (text.size() > digits && text.front() == '0') text.remove_prefix(1);
  if (text.empty() || text.size() > digits) return "";
  std::string field(digits - text.size(), '0');
  for (const char letter : text) {
    if (std::isxdigit(static_cast<unsigned char>(letter)) == 0) return "";
    field += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return field;
}

/// The address as /sys writes it, "" if it is none.
std::string SysfsAddress(std::string_view pci_id) {
  auto parts = internal::Split(internal::Trim(pci_id), ':');
  if (parts.size() == 2) parts.insert(parts.begin(), "0000");
  if (parts.size() != 3) return "";
  const auto slot = internal::Split(parts[2], '.');
  if (slot.size() != 2 || slot[1].size() != 1 || slot[1][0] < '0' || slot[1][0] > '7') return "";
  const std::string domain = HexField(parts[0], 4), bus = HexField(parts[1], 2),
                    device = HexField(slot[0], 2);
  if (domain.empty() || bus.empty() || device.empty()) return "";
  return StrCat(domain, ":", bus, ":", device, ".", slot[1]);
}

std::string VendorOf(std::uint32_t vendor) {
  switch (vendor) {
    case 0x10de:
      return "NVIDIA";
    case 0x1002:
      return "AMD";
    case 0x8086:
      return "Intel";
    default:
      return "";
  }
}

void ReadGpus(const SystemRoots& roots, MachineDevices& devices) {
  const std::string folder = roots.sys + "/bus/pci/devices";
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    devices.notes.push_back(StrCat("GPUs unknown: cannot read ", folder));
    return;
  }
  for (const std::string& address : NamesIn(folder)) {
    const std::string device = StrCat(folder, "/", address);
    // PCI Code and ID Assignment Specification: base class and sub-class, without the interface.
    const std::uint32_t kind = ReadHex(device + "/class").value_or(0) >> 8;
    const bool computes = kind == 0x0300 /* VGA */ || kind == 0x0302 /* 3D controller */ ||
                          kind == 0x0380 /* other display */ || kind == 0x1200 /* accelerator */;
    const std::string vendor = VendorOf(ReadHex(device + "/vendor").value_or(0));
    if (!computes || vendor.empty()) continue;
    devices.gpus.push_back({.pci_id = address,
                            .vendor = vendor,
                            .node = NodeIn(device),
                            .local_cpus = ReadIdSet(device + "/local_cpulist").value_or(CpuSet())});
  }
}

/// What /sys knows of the hardware behind an adapter: the node and address of the device, or of the
/// nearest PCI device above it, since a virtio adapter has neither.
void FindHardware(const std::string& link, NetworkPlace& place) {
  place.node = NodeIn(link);
  std::error_code error;
  std::filesystem::path folder = std::filesystem::canonical(link, error);
  while (!error && folder.has_relative_path()) {
    const std::string address = SysfsAddress(folder.filename().string());
    if (!address.empty()) {
      place.pci_id = address;
      if (!place.node) place.node = NodeIn(folder);
      return;
    }
    folder = folder.parent_path();
  }
}

void ReadNetworks(const SystemRoots& roots, MachineDevices& devices) {
  const std::string net = roots.sys + "/class/net";
  std::error_code error;
  if (!std::filesystem::is_directory(net, error)) {
    devices.notes.push_back(StrCat("network adapters unknown: cannot read ", net));
  }
  for (const std::string& name : NamesIn(net)) {
    const std::string device = StrCat(net, "/", name, "/device");
    if (!std::filesystem::is_directory(device, error)) continue;
    NetworkPlace place{.name = name};
    FindHardware(device, place);
    place.is_up = ReadLine(StrCat(net, "/", name, "/operstate")) == "up";
    devices.networks.push_back(std::move(place));
  }
  const std::string infiniband = roots.sys + "/class/infiniband";
  for (const std::string& name : NamesIn(infiniband)) {
    NetworkPlace place{.name = name, .kind = NetworkKind::kInfiniband};
    FindHardware(StrCat(infiniband, "/", name, "/device"), place);
    const std::string ports = StrCat(infiniband, "/", name, "/ports");
    for (const std::string& port : NamesIn(ports)) {  // "4: ACTIVE"
      const std::string state = ReadLine(StrCat(ports, "/", port, "/state")).value_or("");
      place.is_up |= state.find("ACTIVE") != std::string::npos;
    }
    devices.networks.push_back(std::move(place));
  }
}

}  // namespace

MachineDevices ReadDevices(const SystemRoots& roots) {
  MachineDevices devices;
  ReadGpus(roots, devices);
  ReadNetworks(roots, devices);
  return devices;
}

StatusOr<std::optional<int>> NodeOfPciDevice(std::string_view pci_id, const SystemRoots& roots) {
  const std::string address = SysfsAddress(pci_id);
  if (address.empty()) {
    return InvalidArgumentError("\"", pci_id,
                                "\" is no PCI address; domain:bus:device.function is needed, such "
                                "as 0000:1b:00.0");
  }
  const std::string folder = StrCat(roots.sys, "/bus/pci/devices/", address);
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return NotFoundError("no PCI device ", address, ": cannot read ", folder);
  }
  return NodeIn(folder);
}

}  // namespace ait::inline v0
