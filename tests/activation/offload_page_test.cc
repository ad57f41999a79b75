// SPDX-License-Identifier: Apache-2.0
// The code of docs/activation-offload.md.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ait/activation/compression.h"
#include "ait/activation/keep.h"
#include "ait/activation/offload.h"
#include "ait/activation/policies.h"
#include "support/document.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

// clang-format off: as the page shows it
at::Tensor LossWith(const std::shared_ptr<SavedTensorPolicy>& policy,
                    const std::function<at::Tensor(const at::Tensor&)>& model,
                    const at::Tensor& inputs) {
  const SavedTensorScope scope(policy);
  at::Tensor loss = model(inputs);
  return loss;
}

StatusOr<std::shared_ptr<SavedTensorPolicy>> Policies(const std::string& directory,
                                                      const at::Tensor& inputs) {
  AIT_ASSIGN_OR_RETURN(auto offload, ActivationOffload::Create({.directory = directory}));
  offload->KeepResident({inputs});
  AIT_ASSIGN_OR_RETURN(auto int8, ActivationCompression::Create(
      {.format = SavedFormat::kInt8, .then = offload}));
  return std::shared_ptr<SavedTensorPolicy>(int8);
}

at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const SavedTensorScope exact(nullptr);
  return at::scaled_dot_product_attention(q, k, v);
}

at::Tensor Hidden(at::Tensor x, const at::Tensor& up) {
  x = Dropout(Relu(at::linear(x, up)), 0.1, true);
  return x;
}

StatusOr<std::vector<SegmentAction>> Plans(const std::shared_ptr<SavedTensorPolicy>& int8) {
  const std::vector<std::string> names = {"blocks.0", "blocks.1", "blocks.2", "blocks.3", "head"};
  AIT_ASSIGN_OR_RETURN(auto half, CheckpointPolicy::EveryKth(2).MakePlan(names));
  AIT_ASSIGN_OR_RETURN(auto products,
      CheckpointPolicy::Matching("blocks.*").KeepResults(MatrixProducts()).MakePlan(names));
  AIT_ASSIGN_OR_RETURN(const auto policy, CheckpointPolicy::Parse("blocks.*=recompute,blocks.3=keep"));
  AIT_ASSIGN_OR_RETURN(auto plan, policy.MakePlan(names, {.offload = int8}));
  return std::vector<SegmentAction>{half->action("blocks.1"), products->action("blocks.1"),
                                    plan->action("blocks.3"), plan->action("head")};
}
// clang-format on

TEST(OffloadPage, ItsCodeIsThis) {
  testing::ExpectCodeIsCompiled(AIT_DOCS "/activation-offload.md", AIT_SOURCE);
}

TEST(OffloadPage, ItsCodeRuns) {
  const at::Tensor inputs = at::randn({64, 1024});
  const at::Tensor up = at::randn({1024, 1024}).set_requires_grad(true);
  ASSERT_OK_AND_ASSIGN(const auto policy,
                       Policies(std::filesystem::temp_directory_path().string(), inputs));
  LossWith(
      policy,
      [&](const at::Tensor& in) {
        const at::Tensor hidden = Hidden(in, up).view({1, 4, 16, 1024});
        return Attend(hidden, hidden, hidden).sum();
      },
      inputs)
      .backward();
  EXPECT_TRUE(up.grad().defined());
  ASSERT_OK_AND_ASSIGN(const auto actions, Plans(policy));
  EXPECT_EQ(actions, (std::vector{SegmentAction::kKeep, SegmentAction::kRecompute,
                                  SegmentAction::kKeep, SegmentAction::kKeep}));
}

}  // namespace
}  // namespace ait
