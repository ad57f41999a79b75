// SPDX-License-Identifier: Apache-2.0
#include "ait/checkpoint/weights.h"

#include <gtest/gtest.h>

// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
// clang-format on

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

at::Tensor Numbers(std::vector<std::int64_t> sizes, double first = 0,
                   at::ScalarType type = at::kFloat) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return at::arange(count, at::TensorOptions(at::kDouble)).add(first).to(type).reshape(sizes);
}

NamedTensors Named(const std::vector<std::pair<std::string, at::Tensor>>& list) {
  NamedTensors tensors;
  for (const auto& [name, tensor] : list) tensors.Add(name, tensor);
  return tensors;
}

TEST(Weights, RoundTripKeepsEveryValueAndTheTensorsKeepTheirMemory) {
  const TempDir dir;
  const NamedTensors saved =
      Named({{"w", Numbers({3, 4}).set_requires_grad(true)},
             {"half", Numbers({5}, -2, at::kBFloat16)},
             {"scalar", Numbers({}, 7, at::kLong)},
             {"empty", at::empty({0, 3})},
             {"flag", at::ones({2}, at::kBool)},
             {"gap", Numbers({4, 6}).slice(1, 1, 3)},
             {"nhwc", Numbers({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast)}});
  ASSERT_OK(SaveWeights(dir / "f", saved));
  NamedTensors loaded;
  for (std::size_t i = 0; i < saved.size(); ++i)
    loaded.Add(saved.name(i), at::zeros_like(saved.tensor(i)));
  const at::Tensor gap = at::zeros({6, 4}).t().slice(1, 1, 3);  // other strides than those saved
  loaded = Named({{"w", loaded.tensor(0)},
                  {"half", loaded.tensor(1)},
                  {"scalar", loaded.tensor(2)},
                  {"empty", loaded.tensor(3)},
                  {"flag", loaded.tensor(4)},
                  {"gap", gap},
                  {"nhwc", loaded.tensor(6)}});
  const void* memory = loaded.tensor(0).const_data_ptr();
  const auto version = loaded.tensor(0)._version();
  ASSERT_OK(LoadWeights(dir / "f", loaded));
  for (std::size_t i = 0; i < saved.size(); ++i)
    EXPECT_TRUE(at::equal(saved.tensor(i).detach(), loaded.tensor(i))) << saved.name(i);
  EXPECT_EQ(loaded.tensor(0).const_data_ptr(), memory);
  EXPECT_GT(loaded.tensor(0)._version(), version);  // autograd is told
}

TEST(Weights, TheFileIsAPlainSafetensorsFileForPython) {
  const TempDir dir;
  ASSERT_OK(SaveWeights(dir / "f", Named({{"b", Numbers({2})}}), {{"step", "9"}}));
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(dir / "f"));
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}, {"step", "9"}}));
  const TensorInfo* info = file.Find("b");
  ASSERT_NE(info, nullptr);
  std::vector<float> values(2);
  ASSERT_OK(file.Read(*info, std::as_writable_bytes(std::span(values))));
  EXPECT_THAT(values, ElementsAre(0, 1));
}

TEST(Weights, TiedTensorsAreWrittenOnceAndFoundUnderEachName) {
  const TempDir dir;
  const at::Tensor tied = Numbers({300, 8});
  ASSERT_OK(SaveWeights(dir / "f",
                        Named({{"wte", tied}, {"head", tied}, {"view", tied.view({8, 300})}})));
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(dir / "f"));
  ASSERT_EQ(file.tensors().size(), 2u);  // another shape is another tensor
  EXPECT_EQ(file.tensors()[0].name, "head");
  EXPECT_EQ(file.metadata().at("wte"), "head");

  // A model without the tie gets both.
  const NamedTensors apart = Named(
      {{"wte", at::zeros({300, 8})}, {"head", at::zeros({300, 8})}, {"view", at::zeros({8, 300})}});
  ASSERT_OK(LoadWeights(dir / "f", apart));
  EXPECT_TRUE(at::equal(apart.tensor(0), tied));
  EXPECT_TRUE(at::equal(apart.tensor(1), tied));

  // A file that knows of one name only serves a model with the tie.
  ASSERT_OK(SaveWeights(dir / "one", Named({{"wte", tied}})));
  const at::Tensor both = at::zeros({300, 8});
  ASSERT_OK(LoadWeights(dir / "one", Named({{"head", both}, {"wte", both}})));
  EXPECT_TRUE(at::equal(both, tied));
}

TEST(Weights, DifferentValuesForNamesThatTheModelTiesAreReported) {
  const TempDir dir;
  const at::Tensor tied = at::zeros({2, 3});
  const NamedTensors model = Named({{"wte", tied}, {"a", at::zeros({1})}, {"head", tied}});
  ASSERT_OK(SaveWeights(
      dir / "two",
      Named({{"wte", Numbers({2, 3})}, {"a", at::ones({1})}, {"head", Numbers({2, 3}, 1)}})));
  const auto reports = StatusIs(
      StatusCode::kFailedPrecondition,
      HasSubstr("one tensor in the model, different ones in the file: \"wte\" and \"head\""));
  EXPECT_THAT(CheckWeights(dir / "two", model), reports);
  EXPECT_THAT(LoadWeights(dir / "two", model), reports);
  EXPECT_TRUE(at::equal(tied, at::zeros({2, 3})));

  // Two copies of the same values are one tensor.
  ASSERT_OK(SaveWeights(
      dir / "same",
      Named({{"wte", Numbers({2, 3})}, {"a", at::ones({1})}, {"head", Numbers({2, 3})}})));
  ASSERT_OK(CheckWeights(dir / "same", model));
  EXPECT_TRUE(at::equal(tied, at::zeros({2, 3})));  // a check changes nothing
  ASSERT_OK(LoadWeights(dir / "same", model));
  EXPECT_TRUE(at::equal(tied, Numbers({2, 3})));
}

TEST(Weights, EverythingThatDiffersIsNamedAndNothingIsChanged) {
  const TempDir dir;
  ASSERT_OK(SaveWeights(dir / "f", Named({{"wte", Numbers({300, 8})},
                                          {"fc", Numbers({8}, 1)},
                                          {"old", Numbers({3})},
                                          {"bias", Numbers({8}, 0, at::kBFloat16)}})));
  const NamedTensors model = Named({{"wte", at::zeros({256, 8})},
                                    {"fc", at::zeros({8})},
                                    {"new", at::zeros({})},
                                    {"bias", at::zeros({8})}});
  EXPECT_THAT(
      LoadWeights(dir / "f", model),
      StatusIs(StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("/f does not fit the model"),
                     HasSubstr("\"wte\" is F32 [300, 8] in the file and F32 [256, 8] in the model"),
                     HasSubstr("\"bias\" is BF16 [8] in the file and F32 [8] in the model"),
                     HasSubstr("missing in the file: \"new\" (F32 [])"),
                     HasSubstr("unknown to the model: \"old\" (F32 [3])"))));
  EXPECT_TRUE(at::equal(model.tensor(1), at::zeros({8})));
}

TEST(Weights, NamesMayDifferIfThePolicySaysSo) {
  const TempDir dir;
  ASSERT_OK(SaveWeights(dir / "f", Named({{"a", Numbers({2})}, {"old", Numbers({3})}})));
  const NamedTensors model = Named({{"a", at::zeros({2})}, {"new", at::ones({1})}});
  EXPECT_THAT(LoadWeights(dir / "f", model, {.missing = NamePolicy::kMayDiffer}),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("\"old\""), Not(HasSubstr("\"new\"")))));
  EXPECT_THAT(LoadWeights(dir / "f", model, {.unexpected = NamePolicy::kMayDiffer}),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("\"new\""), Not(HasSubstr("\"old\"")))));
  ASSERT_OK_AND_ASSIGN(
      const LoadedWeights loaded,
      LoadWeights(dir / "f", model,
                  {.missing = NamePolicy::kMayDiffer, .unexpected = NamePolicy::kMayDiffer}));
  EXPECT_THAT(loaded.missing, ElementsAre("new"));
  EXPECT_THAT(loaded.unexpected, ElementsAre("old"));
  EXPECT_TRUE(at::equal(model.tensor(0), Numbers({2})));
  EXPECT_TRUE(at::equal(model.tensor(1), at::ones({1})));
}

TEST(Weights, LongListsAreCut) {
  const TempDir dir;
  ASSERT_OK(SaveWeights(dir / "f", {}));
  NamedTensors model;
  for (int i = 0; i < 9; ++i) model.Add(StrCat("t", i), at::zeros({1}));
  EXPECT_THAT(
      LoadWeights(dir / "f", model),
      StatusIs(StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("\"t4\""), HasSubstr("and 4 more"), Not(HasSubstr("\"t5\"")))));
}

TEST(Weights, TensorsThatNoFileCanHoldAreRefused) {
  const TempDir dir;
  const at::Tensor sparse = at::sparse_coo_tensor({2, 2}, at::TensorOptions(at::kFloat));
  for (const at::Tensor& tensor : {at::Tensor(), sparse, at::zeros({1}, at::kComplexFloat)}) {
    EXPECT_THAT(SaveWeights(dir / "f", Named({{"odd", tensor}})),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"odd\"")));
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "f"));
  EXPECT_THAT(SaveWeights(dir / "f", Named({{"a", at::zeros({1})}, {"a", at::zeros({1})}})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("twice")));
}

TEST(Weights, DamagedAndMissingFilesAreNamed) {
  const TempDir dir;
  const NamedTensors model = Named({{"a", at::zeros({100})}});
  EXPECT_THAT(LoadWeights(dir / "f", model), StatusIs(StatusCode::kNotFound, HasSubstr("/f")));
  ASSERT_OK(SaveWeights(dir / "f", model));
  std::filesystem::resize_file(dir / "f", std::filesystem::file_size(dir / "f") - 1);
  EXPECT_THAT(LoadWeights(dir / "f", model),
              StatusIs(StatusCode::kDataLoss, HasSubstr("is truncated")));
}

}  // namespace
}  // namespace ait
