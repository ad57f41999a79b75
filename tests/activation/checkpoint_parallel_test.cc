// SPDX-License-Identifier: Apache-2.0
// `Checkpoint` under `DataParallel`: in every stage of ZeRO the parameters are those of the plain
// run without sharding, bit for bit, and the hooks of a parameter fire once.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "ait/activation/checkpoint.h"
#include "ait/activation/keep.h"
#include "ait/optim/adam.h"
#include "ait/parallel/unit.h"
#include "ait/parallel/whole_parameters.h"
#include "ait/tensor/autocast.h"
#include "parallel/tiny_model.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Leaf;
using ::ait::testing::RunRanks;
using ::ait::testing::Tokens;

constexpr std::int64_t kWidth = 12, kVocabulary = 17;
constexpr int kBlocks = 4;

/// Where segments are.
enum class Segments { kNone, kAroundUnits, kInsideUnits, kOverTwoUnits, kNestedAndKept };

struct Block {
  at::Tensor norm, up, bias, down;
};

struct Model {
  explicit Model(int seed)
      : embedding(Leaf({kVocabulary, kWidth}, seed * 100)),
        outside(Leaf({kWidth}, seed * 100 + 1)) {
    for (int i = 1; i <= kBlocks; ++i) {
      const int base = seed * 100 + 10 * i;
      blocks.push_back({Leaf({kWidth}, base, 1.0), Leaf({24 + i, kWidth}, base + 1),
                        Leaf({24 + i}, base + 2), Leaf({kWidth, 24 + i}, base + 3)});
    }
  }

  NamedTensors Parameters() const {
    NamedTensors list;
    list.Add("embedding.weight", embedding);
    list.Add("outside", outside);
    for (int i = 0; i < kBlocks; ++i) {
      const Block& block = blocks[static_cast<std::size_t>(i)];
      const std::string name = StrCat("blocks.", i, ".");
      list.Add(name + "norm", block.norm);
      list.Add(name + "up", block.up);
      list.Add(name + "bias", block.bias);
      list.Add(name + "down", block.down);
    }
    return list;
  }
  static std::vector<ParameterUnit> Units() {
    std::vector<ParameterUnit> units = {{.name = "embedding", .patterns = {"embedding.*"}}};
    for (int i = 0; i < kBlocks; ++i) {
      units.push_back({.name = StrCat("blocks.", i), .patterns = {StrCat("blocks.", i, ".*")}});
    }
    return units;
  }

  at::Tensor embedding, outside;  // outside is in no unit
  std::vector<Block> blocks;
};

/// One rank of a training.
struct Rank {
  DataParallel& engine;
  const Model& model;
  at::Generator generator;  // of dropout: ranks are threads, and the default one is shared
  Segments segments;

  at::Tensor Compute(int i, const at::Tensor& x) const {
    const Block& block = model.blocks[static_cast<std::size_t>(i)];
    const at::Tensor y = at::layer_norm(x, {kWidth}, block.norm);
    const auto up = [&] { return at::linear(y, block.up, block.bias); };
    const at::Tensor hidden = at::gelu(segments == Segments::kNestedAndKept ? Keep(up) : up());
    const at::Tensor mask = at::empty_like(x).bernoulli_(0.8, generator);
    return x + at::linear(hidden, block.down) * mask * model.outside;
  }

  CheckpointOptions Options(int i) const {
    return {.name = StrCat("blocks.", i),
            .determinism = Determinism::kValues,
            .generators = {generator}};
  }

  at::Tensor InUnit(int i, const at::Tensor& x) const {
    const auto self = *this;
    if (segments == Segments::kInsideUnits) {
      return engine.Unit(StrCat("blocks.", i), [&] {
        return Checkpoint(
            Options(i), [self, i](const at::Tensor& in) { return self.Compute(i, in); }, x);
      });
    }
    return engine.Unit(StrCat("blocks.", i), [&] { return Compute(i, x); });
  }

  at::Tensor Run(int i, const at::Tensor& x) const {
    const auto self = *this;
    const auto run = [self, i](const at::Tensor& in) { return self.InUnit(i, in); };
    const bool checkpoints =
        segments == Segments::kAroundUnits || segments == Segments::kNestedAndKept;
    return checkpoints ? Checkpoint(Options(i), run, x) : run(x);
  }

  at::Tensor Loss(const at::Tensor& tokens) const {
    const auto self = *this;
    at::Tensor x = engine.Unit("embedding", [&] { return at::embedding(model.embedding, tokens); });
    // The first block twice: its parameters have gradients from two segments.
    for (const auto& [first, second] : {std::pair(0, 1), std::pair(2, 0), std::pair(3, 1)}) {
      const auto both = [self, first = first, second = second](const at::Tensor& in) {
        return self.Run(second, self.Run(first, in));
      };
      const bool checkpoints =
          segments == Segments::kOverTwoUnits || segments == Segments::kNestedAndKept;
      x = checkpoints ? Checkpoint(Options(first), both, x) : both(x);
    }
    return engine.Unit("embedding", [&] {
      return at::cross_entropy_loss(at::linear(x, model.embedding).to(at::kFloat),
                                    tokens.add(1).remainder(kVocabulary), {}, at::Reduction::Sum);
    });
  }
};

struct Training {
  ZeroStage stage = ZeroStage::kNone;
  Segments segments = Segments::kNone;
  DType autocast = DType::kFloat32;
  ReduceWhen reduce = ReduceWhen::kOnce;
};

/// The parameters after some steps on two ranks, and the losses of rank 0.
std::vector<std::string> Train(const Training& training) {
  std::vector<std::string> outcome;
  RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
    const int rank = communicator->rank().value();
    const Model model(1);
    auto engine = DataParallel::Create(communicator, model.Parameters(),
                                       {.zero_stage = training.stage,
                                        .reduce = training.reduce,
                                        .units = Model::Units(),
                                        .first_bucket = Bytes(256),
                                        .bucket_cap = Bytes(2000)});
    ASSERT_OK(engine);
    ASSERT_OK((*engine)->SetOptimizer(AdamW({.learning_rate = 1e-2})));
    const Rank self{**engine, model,
                    at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(rank + 3)),
                    training.segments};
    std::vector<std::string> mine;
    const auto add = [&](const at::Tensor& tensor) {
      const at::Tensor values = tensor.detach().contiguous();
      mine.emplace_back(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
    };
    for (int step = 0; step < 3; ++step) {
      for (const MicroStep micro : {MicroStep::kAccumulate, MicroStep::kLast}) {
        ASSERT_OK((*engine)->BeginMicroStep(micro));
        at::Tensor loss;
        {
          // Ranks are threads, and libtorch has one cache of casts for all of them.
          const Autocast autocast(training.autocast, Autocast::Device::kCpu, Autocast::Cache::kOff);
          loss = self.Loss(Tokens(6, step * 4 + rank * 2 + static_cast<int>(micro)));
        }
        add(loss);
        ASSERT_OK((*engine)->Backward(loss));
      }
      ASSERT_OK((*engine)->FinishGradients({.count = 12}));
      ASSERT_OK((*engine)->Update({.gradient_scale = 1.0 / 24}));
    }
    const auto whole = (*engine)->GatherFull();
    ASSERT_OK(whole);
    const NamedTensors parameters = model.Parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) add(parameters.tensor(i));
    if (rank == 0) outcome = std::move(mine);
    EXPECT_OK(communicator->Barrier().Wait());
  });
  return outcome;
}

/// "" if all is the same; else the number of losses, which come first, or parameters that differ.
std::string Difference(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  if (a.size() != b.size()) return "other numbers of values";
  std::string text;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) text += StrCat(" ", i);
  }
  return text;
}

void ExpectPlainBits(DType autocast, ReduceWhen reduce) {
  const auto expected = Train({.autocast = autocast, .reduce = reduce});
  ASSERT_FALSE(expected.empty());
  for (const ZeroStage stage :
       {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kParameters}) {
    for (const Segments segments : {Segments::kOverTwoUnits, Segments::kNestedAndKept,
                                    Segments::kAroundUnits, Segments::kInsideUnits}) {
      const bool is_about_units =
          segments == Segments::kAroundUnits || segments == Segments::kInsideUnits;
      if (is_about_units && stage != ZeroStage::kParameters) continue;
      EXPECT_EQ(Difference(Train({stage, segments, autocast, reduce}), expected), "")
          << "stage " << static_cast<int>(stage) << ", segments " << static_cast<int>(segments);
    }
  }
}

TEST(CheckpointParallel, EveryStageGivesTheBitsOfThePlainRun) {
  ExpectPlainBits(DType::kFloat32, ReduceWhen::kEachMicroStep);
}

TEST(CheckpointParallel, EveryStageGivesThemUnderAutocast) {
  ExpectPlainBits(DType::kBFloat16, ReduceWhen::kOnce);
}

}  // namespace
}  // namespace ait
