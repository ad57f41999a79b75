// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/visit_tensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ait {
namespace {

using internal::ForEachTensor;
using internal::TensorSearch;

struct Cache {
  at::Tensor keys;
  std::vector<at::Tensor> values;
  int length = 0;
};

template <typename Visit>
void VisitTensors(const Cache& cache, Visit&& visit) {
  visit(cache.keys);
  visit(cache.values);
}

/// A type that is not known.
struct Closed {
  at::Tensor tensor;
};

const std::string kName = "name";

at::Tensor Number(int value) { return at::scalar_tensor(value); }

/// The values of the tensors found, in order; -1 for one that is not defined.
template <TensorSearch search, typename T>
std::vector<int> Found(const T& value) {
  std::vector<int> numbers;
  ForEachTensor<search>(value, [&](const at::Tensor& tensor) {
    numbers.push_back(tensor.defined() ? tensor.item<int>() : -1);
  });
  return numbers;
}

TEST(VisitTensors, FindsTensorsInNestedContainersInOrder) {
  const auto value = std::make_tuple(
      Number(1), 7, std::string("text"),
      std::map<std::string, std::vector<at::Tensor>>{{"a", {Number(2), Number(3)}}, {"b", {}}},
      std::pair(std::optional<at::Tensor>(), std::optional(Number(4))),
      std::variant<int, at::Tensor>(Number(5)), at::Tensor(), std::array{Number(6), Number(7)},
      std::vector<float>{1, 2}, Cache{Number(8), {Number(9)}});
  const std::vector<int> expected = {1, 2, 3, 4, 5, -1, 6, 7, 8, 9};
  EXPECT_EQ(Found<TensorSearch::kResults>(value), expected);
  EXPECT_EQ(Found<TensorSearch::kInputs>(value), expected);
}

TEST(VisitTensors, OnlyResultsAreFollowedThroughPointers) {
  const at::Tensor number = Number(1);
  const auto value = std::make_tuple(std::make_shared<Cache>(Cache{Number(2), {Number(3)}}),
                                     &number, std::shared_ptr<at::Tensor>());
  EXPECT_EQ(Found<TensorSearch::kResults>(value), (std::vector<int>{2, 3, 1}));
  EXPECT_TRUE(Found<TensorSearch::kInputs>(value).empty());
}

TEST(VisitTensors, InputsOfUnknownTypesArePassedOver) {
  const auto value = std::make_tuple(Closed{Number(1)}, std::vector<Closed>(2),
                                     std::function<int()>(), std::cref(kName), Number(2));
  EXPECT_EQ(Found<TensorSearch::kInputs>(value), std::vector<int>{2});
}

TEST(VisitTensors, RangesOfTheirOwnKindEnd) {
  const std::filesystem::path path = "a/b";  // a path is a range of paths
  int calls = 0;
  ForEachTensor<TensorSearch::kInputs>(path, [&](const at::Tensor&) { ++calls; });
  EXPECT_EQ(calls, 0);
}

TEST(VisitTensors, KnowsWhatOnlyRefersToTensors) {
  EXPECT_TRUE(internal::kIsViewOfTensors<at::TensorList>);
  EXPECT_TRUE(internal::kIsViewOfTensors<std::span<const at::Tensor>>);
  EXPECT_FALSE(internal::kIsViewOfTensors<std::vector<at::Tensor>>);
  EXPECT_FALSE((internal::kIsViewOfTensors<std::array<at::Tensor, 2>>));
  EXPECT_FALSE(internal::kIsViewOfTensors<at::IntArrayRef>);
  EXPECT_FALSE(internal::kIsViewOfTensors<at::Tensor>);
}

}  // namespace
}  // namespace ait
