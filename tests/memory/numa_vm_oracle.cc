// SPDX-License-Identifier: Apache-2.0
// What libnuma places, ait finds; what ait places, libnuma finds. Runs with numa_vm_guest.
#include <gtest/gtest.h>
#include <numa.h>
#include <numaif.h>

#include <cstring>

#include "ait/memory/numa.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

constexpr std::size_t kBytes = std::size_t{3} << 20;

TEST(TwoNodes, WhatLibnumaPlacesIsFound) {
  ASSERT_GE(numa_available(), 0);
  for (int node : {0, 1}) {
    void* const block = numa_alloc_onnode(kBytes, node);
    ASSERT_NE(block, nullptr);
    std::memset(block, 1, kBytes);
    const PlacementReport there = VerifyPlacement(block, kBytes, {.nodes = {node}});
    EXPECT_EQ(there.verdict, PlacementVerdict::kVerified) << there.ToString();
    const PlacementReport elsewhere = VerifyPlacement(block, kBytes, {.nodes = {1 - node}});
    EXPECT_EQ(elsewhere.verdict, PlacementVerdict::kWrong) << elsewhere.ToString();
    numa_free(block, kBytes);
  }
}

TEST(TwoNodes, LibnumaFindsWhatIsPlaced) {
  for (int node : {0, 1}) {
    ASSERT_OK_AND_ASSIGN(const auto memory, NumaResource::Create({.nodes = {node}}));
    ASSERT_OK_AND_ASSIGN(void* const block, memory->Allocate(kBytes));
    for (std::size_t at = 0; at < kBytes; at += 4096) {
      int found = -1;
      ASSERT_EQ(get_mempolicy(&found, nullptr, 0, static_cast<char*>(block) + at,
                              MPOL_F_NODE | MPOL_F_ADDR),
                0);
      ASSERT_EQ(found, node) << "the page at " << at;
    }
    memory->Deallocate(block, kBytes);
  }
}

}  // namespace
}  // namespace ait
