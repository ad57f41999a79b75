// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_PARALLEL_ZERO_TRAINING_H_
#define AIT_TESTS_PARALLEL_ZERO_TRAINING_H_

// A training that any stage of ZeRO must end with the same bits: TinyModel and what makes sharding
// hard beside it. Parameters and optimizer state of all ranks are put together by name.

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ait/optim/adam.h"
#include "ait/optim/norm.h"
#include "ait/parallel/unit.h"
#include "ait/parallel/whole_parameters.h"
#include "parallel/tiny_model.h"
#include "support/status_matchers.h"

namespace ait::testing {

/// TinyModel, and parameters of awkward sizes: none, one, more than a bucket, a transposed one, one
/// over the same memory as another, one that only the last micro-step uses, one that only rank 0
/// uses.
struct ZeroModel {
  explicit ZeroModel(int seed = 1)
      : tiny(seed),
        empty(Leaf({0, 3}, seed * 100 + 20)),
        odd(Leaf({7, 19}, seed * 100 + 21)),
        large(Leaf({61, 23}, seed * 100 + 22)),
        transposed(Values({9, 5}, seed * 100 + 23).t().set_requires_grad(true)),
        twin(odd.detach().set_requires_grad(true)),
        late(Leaf({33}, seed * 100 + 24)),
        rank_zero(Leaf({65}, seed * 100 + 25)) {}

  NamedTensors Parameters() const {
    NamedTensors list;
    list.Add("empty", empty);
    list.Add("odd", odd);
    const NamedTensors inner = tiny.Parameters();
    for (std::size_t i = 0; i < inner.size(); ++i) list.Add(inner.name(i), inner.tensor(i));
    list.Add("large", large);
    list.Add("transposed", transposed);
    list.Add("twin", twin);
    list.Add("late", late);
    list.Add("rank_zero", rank_zero);
    return list;
  }

  /// Two units, one inside of the other.
  static std::vector<ParameterUnit> Units() {
    return {
        {.name = "tiny",
         .patterns = {"embedding.*", "head.*", "norm.*", "up.*", "down.*", "frozen.*", "unused.*"}},
        {.name = "rest", .patterns = {"*"}}};
  }

  at::Tensor Loss(DataParallel& engine, int seed, bool is_last, bool is_rank_zero) const {
    return engine.Unit("rest", [&] { return LossOf(engine, seed, is_last, is_rank_zero); });
  }

  at::Tensor LossOf(DataParallel& engine, int seed, bool is_last, bool is_rank_zero) const {
    const auto squares = [](const at::Tensor& p) { return p.to(at::kFloat).pow(2).sum(); };
    const at::Tensor tokens = Tokens(6, seed);
    at::Tensor loss =
        engine
            .Unit("tiny",
                  [&] {
                    return tiny.Loss(tokens,
                                     tokens.mul(3).add(1).remainder(TinyModel::kVocabulary));
                  })
            .to(at::kFloat);
    loss = loss.add(squares(odd).mul(0.1 * (1 + seed % 3))).add(squares(twin.mul(1.5)).mul(0.2));
    loss = loss.add(squares(large.sin()).mul(0.3 + 0.01 * seed)).add(squares(transposed));
    if (is_last) loss = loss.add(squares(late.cos()).mul(1 + 0.1 * seed));
    if (is_rank_zero) loss = loss.add(squares(rank_zero).mul(0.5));
    return loss.add(squares(empty));
  }

  TinyModel tiny;
  at::Tensor empty, odd, large, transposed, twin, late, rank_zero;
};

/// What is compared: bytes by "parameter" and by "parameter/state", and numbers of every step.
struct ZeroResult {
  std::map<std::string, std::string> bytes;
  std::vector<double> norms;
  bool operator==(const ZeroResult&) const = default;
};

struct ZeroRun {
  DataParallelOptions options;
  const Optimizer* optimizer = nullptr;
  int steps = 50;
  int micro_steps = 1;
  double clip = 1.0;
};

/// The bytes of tensor i as they lie.
inline std::string BytesOf(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().contiguous();
  return {static_cast<const char*>(values.const_data_ptr()), values.nbytes()};
}

/// Puts the state that this rank owns where the other ranks put theirs. `sizes` of a parameter is
/// how many elements it has.
inline void AddState(DataParallel& engine, std::map<std::string, std::string>& bytes) {
  std::map<std::string, std::int64_t> counts;
  for (const ParameterInfo& info : engine.layout().parameters()) counts[info.name] = info.count();
  for (const auto& optimizer : engine.optimizers()) {
    EXPECT_OK(optimizer->VisitState(StateAccess::kRead, [&](const StateSlice& slice) {
      std::string& all = bytes[StrCat(slice.parameter, "/", slice.state)];
      const auto element = static_cast<std::size_t>(SizeOf(slice.dtype));
      all.resize(static_cast<std::size_t>(counts[std::string(slice.parameter)]) * element);
      std::memcpy(all.data() + static_cast<std::size_t>(slice.begin) * element, slice.bytes.data(),
                  slice.bytes.size());
      return OkStatus();
    }));
  }
}

/// Trains on one rank. `adjust` may change the options of this rank, such as its hybrid groups.
/// Returns parameters, and of the state what this rank owns.
inline ZeroResult TrainZero(const std::shared_ptr<Communicator>& communicator, const ZeroRun& run) {
  const int rank = communicator->rank().value();
  const int ranks = communicator->size().value();
  ZeroModel model(1 + rank);
  ZeroResult result;
  DataParallelOptions options = run.options;
  options.units = ZeroModel::Units();
  auto engine = DataParallel::Create(communicator, model.Parameters(), options);
  EXPECT_OK(engine);
  if (!engine.ok()) return result;
  EXPECT_OK((*engine)->SetOptimizer(*run.optimizer));
  for (int step = 0; step < run.steps; ++step) {
    for (int micro = 0; micro < run.micro_steps; ++micro) {
      const bool last = micro + 1 == run.micro_steps;
      EXPECT_OK((*engine)->BeginMicroStep(last ? MicroStep::kLast : MicroStep::kAccumulate));
      const int seed = (step * run.micro_steps + micro) * ranks + rank;
      EXPECT_OK((*engine)->Backward(model.Loss(**engine, seed, last, rank == 0)));
    }
    auto sum = (*engine)->FinishGradients({.count = 6 * run.micro_steps});
    EXPECT_OK(sum);
    if (!sum.ok()) return result;
    result.norms.push_back(sum->norm);
    if (step % 10 == 7) {
      EXPECT_OK((*engine)->Discard());
      continue;
    }
    EXPECT_OK((*engine)->Update(
        {.gradient_scale = ClipFactor(sum->norm, run.clip) / static_cast<double>(sum->count)}));
  }
  const NamedTensors parameters = model.Parameters();
  auto whole = (*engine)->GatherFull();
  EXPECT_OK(whole);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    result.bytes[parameters.name(i)] = BytesOf(parameters.tensor(i));
  }
  AddState(**engine, result.bytes);
  EXPECT_OK(communicator->Barrier().Wait());  // the peers have read
  return result;
}

/// Trains on `ranks` threads, expects the same parameters on all, and puts their states together.
inline ZeroResult TrainZeroThreads(
    int ranks, const ZeroRun& run,
    const std::function<void(Communicator&, DataParallelOptions&)>& adjust = nullptr) {
  std::vector<ZeroResult> results(static_cast<std::size_t>(ranks));
  RunRanks(ranks, [&](std::shared_ptr<Communicator> communicator) {
    ZeroRun own = run;
    if (adjust != nullptr) adjust(*communicator, own.options);
    results[static_cast<std::size_t>(communicator->rank().value())] = TrainZero(communicator, own);
  });
  ZeroResult all = results.front();
  for (const ZeroResult& result : results) {
    EXPECT_EQ(result.norms, all.norms);
    for (const auto& [name, bytes] : result.bytes) {
      std::string& merged = all.bytes[name];
      if (name.find('/') == std::string::npos) {
        EXPECT_TRUE(bytes == merged) << name << " differs between ranks";
        continue;
      }
      merged.resize(bytes.size());
      for (std::size_t i = 0; i < bytes.size(); ++i) merged[i] |= bytes[i];  // zero where not owned
    }
  }
  return all;
}

/// The first that differs, for messages.
inline std::string Difference(const ZeroResult& a, const ZeroResult& b) {
  if (a.bytes.size() != b.bytes.size()) return "other names";
  for (const auto& [name, bytes] : a.bytes) {
    const auto found = b.bytes.find(name);
    if (found == b.bytes.end()) return name + " is missing";
    if (found->second != bytes) return name + " differs";
  }
  return a.norms == b.norms ? "" : "norms differ";
}

}  // namespace ait::testing

#endif  // AIT_TESTS_PARALLEL_ZERO_TRAINING_H_
