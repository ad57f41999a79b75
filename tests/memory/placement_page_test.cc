// SPDX-License-Identifier: Apache-2.0
// The code of docs/placement.md.
#include <gtest/gtest.h>

#include <functional>

#include "ait/memory/buffer.h"
#include "ait/memory/numa.h"
#include "ait/memory/placement.h"
#include "ait/memory/pool.h"
#include "support/document.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using Log = std::function<void(const std::string&)>;

// clang-format off: as the page shows it
Status PlaceOn(int node, std::size_t bytes, const Log& log) {
  AIT_ASSIGN_OR_RETURN(const auto memory, NumaResource::Create({.nodes = {node}}));
  AIT_ASSIGN_OR_RETURN(void* const block, memory->Allocate(bytes));
  const PlacementReport report = memory->Verify(block, bytes);
  if (report.verdict == PlacementVerdict::kWrong) log(report.ToString());
  memory->Deallocate(block, bytes);
  AIT_ASSIGN_OR_RETURN(const auto spread, NumaResource::Create({.policy = NumaPolicy::kInterleave}));
  AIT_ASSIGN_OR_RETURN(const auto local, NumaResource::Create({.policy = NumaPolicy::kLocal}));
  AIT_RETURN_IF_ERROR(HostBuffer::Create(spread, bytes).status());
  AIT_RETURN_IF_ERROR(HostBuffer::Create(local, bytes).status());
  AIT_ASSIGN_OR_RETURN(const auto pool, PoolResource::Create({.upstream = memory}));
  AIT_RETURN_IF_ERROR(HostBuffer::Create(pool, bytes).status());
  const NumaCapabilities may = ProbeNuma();
  log(may.ToString());
  if (!may.bind.is_allowed) log(may.bind.reason);
  return OkStatus();
}
// clang-format on

TEST(PlacementPage, ItsCodeIsThis) {
  testing::ExpectCodeIsCompiled(AIT_DOCS "/placement.md", AIT_SOURCE);
}

TEST(PlacementPage, ItsCodeRuns) {
  std::string text;
  EXPECT_OK(PlaceOn(0, 10'000, [&](const std::string& line) { text += line; }));
  EXPECT_NE(text.find("bind: "), std::string::npos) << text;
}

}  // namespace
}  // namespace ait
