// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_PARALLEL_C10D_REDUCER_H_
#define AIT_TESTS_PARALLEL_C10D_REDUCER_H_

// DataParallel beside libtorch's own c10d::Reducer: gradient by gradient, bit for bit. The Reducer
// is private to libtorch and its constructor changes with each release; it is used in tests alone.

#include "tensor/torch_internal.h"
// Keep the order.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <vector>

#include "ait/parallel/data_parallel.h"
#include "parallel/tiny_model.h"
#include "tensor/c10d_support.h"

namespace ait::testing {

inline std::vector<at::Tensor> Trainable(const TinyModel& model) {
  return {model.embedding, model.norm_weight, model.norm_bias, model.up,
          model.up_bias,   model.down,        model.down_bias, model.scale};
}

/// The line of /proc/self/maps of the mapping that holds this address.
inline std::string MappingOf(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    char* end = nullptr;
    const auto begin = std::strtoull(line.c_str(), &end, 16);
    const auto limit = std::strtoull(end + 1, nullptr, 16);
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (begin <= at && at < limit) return line;
  }
  return "";
}

/// Computes gradients of ten steps with a DataParallel over `ours` and a Reducer over `theirs`, of
/// two ranks both. Returns the sum of all bits, as text; an error where a gradient differs. Sets
/// `mapping`, if it is given, to that of the Reducer's buckets.
inline StatusOr<std::string> CompareGradients(const std::shared_ptr<Communicator>& ours,
                                              C10dBackendPtr theirs,
                                              std::string* mapping = nullptr) {
  constexpr std::int64_t kCap = 1200;  // bytes: several buckets
  const int rank = ours->rank().value();
  TinyModel model;
  AIT_ASSIGN_OR_RETURN(
      auto engine, DataParallel::Create(ours, model.Parameters(),
                                        {.first_bucket = Bytes(kCap), .bucket_cap = Bytes(kCap)}));
  if (engine->layout().buckets().size() < 3) return InternalError("there are too few buckets");
  TinyModel reference;
  const std::vector<at::Tensor> parameters = Trainable(reference);
  const std::vector<bool> dense(parameters.size(), false);
  const auto [buckets, limits] =
      c10d::compute_bucket_assignment_by_size(parameters, {kCap, kCap}, dense);
  c10d::Reducer reducer(parameters, {buckets.rbegin(), buckets.rend()},
                        GroupWith(std::move(theirs), "reducer"), dense, kCap,
                        /*find_unused_parameters=*/false,
                        /*gradient_as_bucket_view=*/true, /*param_names=*/{}, kCap,
                        /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                        /*bucket_bytes_cap_list=*/{});
  std::uint64_t bits = 0;
  for (int step = 0; step < 10; ++step) {
    {
      const c10::NoGradGuard no_grad;
      const std::vector<at::Tensor> values = Trainable(TinyModel(step + 2));
      const std::vector<at::Tensor> mine = Trainable(model);
      for (std::size_t i = 0; i < values.size(); ++i) {
        mine[i].copy_(values[i]);
        parameters[i].copy_(values[i]);
        if (parameters[i].grad().defined()) parameters[i].grad().zero_();
      }
    }
    const at::Tensor tokens = Tokens(7, 2 * step + rank);
    const at::Tensor targets = Tokens(7, 2 * step + rank + 1000);

    AIT_RETURN_IF_ERROR(engine->BeginMicroStep(MicroStep::kLast));
    AIT_RETURN_IF_ERROR(engine->Backward(model.Loss(tokens, targets)));
    AIT_RETURN_IF_ERROR(engine->FinishGradients({}).status());

    reducer.prepare_for_forward();
    reducer.rebuild_buckets();
    const at::Tensor loss = reference.Loss(tokens, targets);
    reducer.prepare_for_backward({loss});
    torch::autograd::backward({loss}, {});

    const std::vector<at::Tensor> mine = Trainable(model);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      // The Reducer divides by the world size: for two ranks an exact operation.
      if (!mine[i].grad().equal(parameters[i].grad().mul(2))) {
        return InternalError("step ", step, ": the gradients of parameter ", i, " differ");
      }
      const at::Tensor flat = mine[i].grad().flatten();
      for (std::int64_t k = 0; k < flat.numel(); ++k) {
        bits = bits * 31 + std::bit_cast<std::uint32_t>(flat.const_data_ptr<float>()[k]);
      }
    }
    AIT_RETURN_IF_ERROR(engine->Discard());
  }
  if (mapping != nullptr) *mapping = MappingOf(parameters[0].grad().const_data_ptr());
  return StrCat(bits);
}

}  // namespace ait::testing

#endif  // AIT_TESTS_PARALLEL_C10D_REDUCER_H_
