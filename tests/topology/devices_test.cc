// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/devices.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/status_matchers.h"
#include "topology/fixture.h"

namespace ait {
namespace {

using ::ait::testing::Fixture;
using ::ait::testing::StatusIs;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A device where /sys has it, and the link under bus/pci/devices.
void AddPci(Fixture& fixture, const std::string& address, const char* kind, const char* vendor,
            const char* node, const char* cpus = "0-3\n") {
  const std::string home = "sys/devices/pci0000:00/" + address;
  fixture.Write(home + "/class", kind);
  fixture.Write(home + "/vendor", vendor);
  fixture.Write(home + "/numa_node", node);
  fixture.Write(home + "/local_cpulist", cpus);
  fixture.Link("sys/bus/pci/devices/" + address, home);
}

TEST(Devices, FindsGpusAndTheirNodes) {
  Fixture fixture;
  AddPci(fixture, "0000:1b:00.0", "0x030200\n", "0x10de\n", "1\n", "8-15\n");  // data centre
  AddPci(fixture, "0000:03:00.0", "0x030000\n", "0x10de\n", "0\n");            // with a display
  AddPci(fixture, "0001:01:00.0", "0x120000\n", "0x1002\n", "-1\n");           // accelerator
  AddPci(fixture, "0000:00:02.0", "0x038000\n", "0x8086\n", "0\n");
  AddPci(fixture, "0000:05:00.0", "0x030000\n", "0x1a03\n", "0\n");  // a board's own graphics
  AddPci(fixture, "0000:1b:00.1", "0x040300\n", "0x10de\n", "1\n");  // sound of a GPU
  AddPci(fixture, "0000:06:00.0", "0x068000\n", "0x10de\n", "1\n");  // an NVSwitch
  AddPci(fixture, "0000:07:00.0", "graphics\n", "0x10de\n", "1\n");
  const MachineDevices devices = ReadDevices(fixture.roots());
  ASSERT_EQ(devices.gpus.size(), 4u);
  EXPECT_EQ(devices.gpus[0].pci_id, "0000:00:02.0");
  EXPECT_EQ(devices.gpus[0].vendor, "Intel");
  EXPECT_EQ(devices.gpus[1].pci_id, "0000:03:00.0");
  EXPECT_EQ(devices.gpus[1].node, 0);
  EXPECT_EQ(devices.gpus[2].vendor, "NVIDIA");
  EXPECT_EQ(devices.gpus[2].node, 1);
  EXPECT_EQ(devices.gpus[2].local_cpus.ToString(), "8-15");
  EXPECT_EQ(devices.gpus[3].vendor, "AMD");
  EXPECT_EQ(devices.gpus[3].node, std::nullopt) << "-1 is unknown, not node 0";
}

TEST(Devices, TakesAddressesAsCudaAndNvmlWriteThem) {
  Fixture fixture;
  AddPci(fixture, "0000:1b:00.0", "0x030200", "0x10de", "1");
  AddPci(fixture, "0000:1c:00.0", "0x030200", "0x10de", "-1");
  for (const char* address : {"0000:1b:00.0", "0000:1B:00.0", "00000000:1B:00.0", "1b:00.0"}) {
    EXPECT_EQ(NodeOfPciDevice(address, fixture.roots()).value(), 1) << address;
  }
  EXPECT_EQ(NodeOfPciDevice("0000:1c:00.0", fixture.roots()).value(), std::nullopt);
  EXPECT_THAT(NodeOfPciDevice("0000:1d:00.0", fixture.roots()),
              StatusIs(StatusCode::kNotFound, HasSubstr("0000:1d:00.0")));
  for (const char* address : {"", "GPU-1", "0000:1b:00", "0000:1b:00.9", "0000:1b:00.00",
                              "0000:1g:00.0", "10000:1b:00.0", "0:../..:00.0", ":1b:00.0"}) {
    EXPECT_THAT(NodeOfPciDevice(address, fixture.roots()),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("no PCI address")))
        << address;
  }
}

TEST(Devices, FindsAdaptersWithHardwareBehindThem) {
  Fixture fixture;
  AddPci(fixture, "0000:31:00.0", "0x020000", "0x15b3", "1");
  const std::string port = "sys/devices/pci0000:00/0000:31:00.0";
  fixture.Write(port + "/net/ens1/operstate", "up\n");
  fixture.Link(port + "/net/ens1/device", port);
  fixture.Link("sys/class/net/ens1", port + "/net/ens1");
  fixture.Write(port + "/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  fixture.Link(port + "/infiniband/mlx5_0/device", port);
  fixture.Link("sys/class/infiniband/mlx5_0", port + "/infiniband/mlx5_0");
  // A virtio adapter: its device has no node, the PCI device above it has.
  AddPci(fixture, "0000:00:03.0", "0x020000", "0x1af4", "0");
  const std::string virtio = "sys/devices/pci0000:00/0000:00:03.0/virtio2";
  fixture.Write(virtio + "/net/eth0/operstate", "down\n");
  fixture.Link(virtio + "/net/eth0/device", virtio);
  fixture.Link("sys/class/net/eth0", virtio + "/net/eth0");
  fixture.Write("sys/class/net/lo/operstate", "unknown\n");
  fixture.Write("sys/class/net/bonding_masters", "\n");  // a file, no adapter

  const MachineDevices devices = ReadDevices(fixture.roots());
  ASSERT_EQ(devices.networks.size(), 3u);
  EXPECT_EQ(devices.networks[0].name, "ens1");
  EXPECT_EQ(devices.networks[0].pci_id, "0000:31:00.0");
  EXPECT_EQ(devices.networks[0].node, 1);
  EXPECT_TRUE(devices.networks[0].is_up);
  EXPECT_EQ(devices.networks[1].name, "eth0");
  EXPECT_EQ(devices.networks[1].pci_id, "0000:00:03.0");
  EXPECT_EQ(devices.networks[1].node, 0);
  EXPECT_FALSE(devices.networks[1].is_up);
  EXPECT_EQ(devices.networks[2].name, "mlx5_0");
  EXPECT_EQ(devices.networks[2].kind, NetworkKind::kInfiniband);
  EXPECT_EQ(devices.networks[2].node, 1);
  EXPECT_TRUE(devices.networks[2].is_up);
  EXPECT_THAT(devices.notes, IsEmpty());
}

TEST(Devices, OfAMachineWithoutSysAreNone) {
  Fixture fixture;
  const MachineDevices devices = ReadDevices(fixture.roots());
  EXPECT_THAT(devices.gpus, IsEmpty());
  EXPECT_THAT(devices.networks, IsEmpty());
  EXPECT_THAT(devices.notes, Contains(HasSubstr("GPUs unknown")));
  EXPECT_THAT(devices.notes, Contains(HasSubstr("network adapters unknown")));
}

TEST(Devices, OfThisMachineHaveNodesThatExist) {
  const MachineDevices devices = ReadDevices();
  for (const GpuPlace& gpu : devices.gpus) {
    EXPECT_EQ(NodeOfPciDevice(gpu.pci_id).value(), gpu.node);
    if (gpu.node) {
      EXPECT_TRUE(std::filesystem::exists(StrCat("/sys/devices/system/node/node", *gpu.node)));
    }
  }
  for (const NetworkPlace& network : devices.networks) EXPECT_FALSE(network.name.empty());
}

}  // namespace
}  // namespace ait
