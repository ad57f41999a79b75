// SPDX-License-Identifier: Apache-2.0
// What is predicted before there is an engine, against the buffers of engines that have trained.
#include "ait/parallel/memory_setup.h"

#include <filesystem>
#include <mutex>

#include "ait/optim/adafactor.h"
#include "ait/optim/adam.h"
#include "ait/optim/lion.h"
#include "ait/parallel/unit.h"
#include "parallel/engine_support.h"
#include "parallel/tiny_model.h"

namespace ait {
namespace {

using ::ait::testing::Leaf;
using ::ait::testing::RunRanks;
using ::testing::HasSubstr;

// Blocks of a matrix, a wide one and a vector; one more tensor that is in no block.
struct Model {
  static constexpr int kBlocks = 4;
  std::vector<std::array<at::Tensor, 3>> blocks;
  at::Tensor table = Leaf({50, 48}, 1);

  Model() {
    for (int i = 0; i < kBlocks; ++i) {
      blocks.push_back(
          {Leaf({96, 97}, 3 * i + 2), Leaf({48, 192 + 32 * i}, 3 * i + 3), Leaf({101}, 3 * i + 4)});
    }
  }

  NamedTensors Parameters() const {
    NamedTensors list;
    list.Add("table", table);
    for (int i = 0; i < kBlocks; ++i) {
      for (int j = 0; j < 3; ++j) {
        list.Add(StrCat("blocks.", i, ".", j), blocks[static_cast<std::size_t>(i)][j]);
      }
    }
    return list;
  }

  at::Tensor Loss(DataParallel& engine) const {
    const auto squares = [](const at::Tensor& p) { return p.to(at::kFloat).pow(2).sum(); };
    at::Tensor loss = squares(table);
    for (int i = 0; i < kBlocks; ++i) {
      loss = loss.add(engine.Unit(StrCat("blocks.", i), [&] {
        const auto& block = blocks[static_cast<std::size_t>(i)];
        return squares(block[0]).add(squares(block[1])).add(squares(block[2]));
      }));
    }
    return loss;
  }
};

struct Case {
  DataParallelOptions options;
  OptimizerKind kind = OptimizerKind::kAdam;
  StateFormat state = StateFormat::kFloat32;
};

Status Train(DataParallel& engine, const Model& model, const Case& test) {
  if (test.kind == OptimizerKind::kAdafactor) {
    AIT_RETURN_IF_ERROR(engine.SetOptimizer(Adafactor{}));
  } else if (test.kind == OptimizerKind::kLion) {
    AIT_RETURN_IF_ERROR(engine.SetOptimizer(Lion{{.state = test.state}}));
  } else {
    AIT_RETURN_IF_ERROR(engine.SetOptimizer(AdamW{{.state = test.state}}));
  }
  for (int step = 0; step < 2; ++step) {
    AIT_RETURN_IF_ERROR(testing::Reduce(engine, model.Loss(engine)));
    AIT_RETURN_IF_ERROR(engine.Update({}));
  }
  return OkStatus();
}

// The most that any rank holds of each part, and the prediction of the same.
void ExpectPredicted(const Case& test, int ranks) {
  MemoryParts most;
  std::mutex mutex;
  RunRanks(ranks, [&](const std::shared_ptr<Communicator>& communicator) {
    const Model model;
    DataParallelOptions options = test.options;
    options.units = UnitsUnder("blocks", model.Parameters());
    auto engine = testing::Engine(communicator, model.Parameters(), options);
    ASSERT_NE(engine, nullptr);
    ASSERT_OK(Train(*engine, model, test));
    const MemoryParts parts = PartsOf(engine->Memory());
    const std::lock_guard lock(mutex);
    for (const auto part :
         {&MemoryParts::parameters, &MemoryParts::gradients, &MemoryParts::masters,
          &MemoryParts::states, &MemoryParts::buckets, &MemoryParts::gathered}) {
      most.*part = std::max(most.*part, parts.*part);
    }
  });
  const Model model;
  DataParallelOptions options = test.options;
  options.units = UnitsUnder("blocks", model.Parameters());
  auto setup = SetupOf(model.Parameters(), options, WorldSize(ranks));
  ASSERT_OK(setup);
  setup->optimizer = test.kind;
  setup->state = test.state;
  const auto prediction = PredictMemory(*setup);
  ASSERT_OK(prediction);
  const std::string table = prediction->DescribeBeside(most);
  EXPECT_EQ(prediction->rank.parameters, most.parameters) << table;
  EXPECT_EQ(prediction->rank.gradients, most.gradients) << table;
  EXPECT_EQ(prediction->rank.masters, most.masters) << table;
  if (test.state == StateFormat::kFloat32 && test.kind != OptimizerKind::kAdafactor) {
    EXPECT_EQ(prediction->rank.states, most.states) << table;
  } else {  // rounded to cache lines piece by piece
    EXPECT_NEAR(prediction->rank.states, most.states, 0.05 * most.states) << table;
  }
  EXPECT_EQ(prediction->rank.buckets, most.buckets) << table;
  EXPECT_EQ(prediction->rank.gathered, most.gathered) << table;
}

TEST(MemorySetup, PredictsTheBuffersOfEveryStageAndPrecision) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const Precision& precision :
         {Precision::Float32(), Precision::Bf16(), Precision::Bf16(Masters::kRemainder),
          Precision::Bf16(Masters::kNone)}) {
      for (const int ranks : {1, 2, 3}) {
        SCOPED_TRACE(StrCat("stage ", stage, ", ", precision.Describe(), ", ranks ", ranks));
        ExpectPredicted({.options = {.zero_stage = static_cast<ZeroStage>(stage),
                                     .precision = precision,
                                     .first_bucket = KiB(8),
                                     .bucket_cap = KiB(64)}},
                        ranks);
      }
    }
  }
}

TEST(MemorySetup, PredictsOtherOptimizersAndReductions) {
  ExpectPredicted({.options = {.zero_stage = ZeroStage::kOptimizer}, .kind = OptimizerKind::kLion},
                  2);
  ExpectPredicted(
      {.options = {.zero_stage = ZeroStage::kGradients}, .state = StateFormat::kBlockwise8bit}, 2);
  ExpectPredicted({.options = {}, .kind = OptimizerKind::kAdafactor}, 1);
  ExpectPredicted({.options = {.zero_stage = ZeroStage::kGradients, .reduce = ReduceWhen::kOnce}},
                  2);
  ExpectPredicted(
      {.options = {.zero_stage = ZeroStage::kOptimizer, .reduce = ReduceWhen::kEachMicroStep}}, 2);
  ExpectPredicted({.options = {.zero_stage = ZeroStage::kParameters, .prefetch = 2}}, 2);
}

TEST(MemorySetup, PredictsStateInAFile) {
  const std::string directory = std::filesystem::temp_directory_path();
  const Model model;
  const DataParallelOptions options{.offload = {.directory = directory, .chunk = KiB(64)}};
  const auto setup = SetupOf(model.Parameters(), options, WorldSize(1));
  ASSERT_OK(setup);
  const auto prediction = PredictMemory(*setup);
  ASSERT_OK(prediction);
  auto engine = testing::Engine(testing::Alone(), model.Parameters(), options);
  ASSERT_OK(engine->SetOptimizer(AdamW{}));
  const MemoryReport report = engine->Memory();
  EXPECT_EQ(prediction->rank.staging, report.measured.states + report.measured.masters);
  // A file has whole chunks, and the last one is not full.
  EXPECT_GE(report.offloaded, prediction->file_bytes * 95 / 100);
  EXPECT_LE(prediction->file_bytes, report.offloaded + KiB(64).value());
}

TEST(MemorySetup, RefusesWhatTheEngineWould) {
  const Model model;
  const auto setup = SetupOf(
      model.Parameters(), {.zero_stage = ZeroStage::kParameters, .units = {{"head", {"head.*"}}}},
      WorldSize(2));
  EXPECT_THAT(Message(setup.status()), HasSubstr("head"));
}

}  // namespace
}  // namespace ait
