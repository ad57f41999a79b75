// SPDX-License-Identifier: Apache-2.0
// The code of docs/training.md, docs/precision.md, docs/checkpoint.md, docs/optim.md and
// docs/zero.md, on a corpus of a few sentences.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "ait/checkpoint/weights.h"
#include "ait/comm/automatic.h"
#include "ait/comm/world.h"
#include "ait/data/pack.h"
#include "ait/data/token_dataset.h"
#include "ait/optim/adam.h"
#include "ait/parallel/data_parallel.h"
#include "ait/parallel/module.h"
#include "ait/parallel/unit.h"
#include "ait/runtime/trainer.h"
#include "ait/tensor/autocast.h"
#include "ait/tensor/gloo.h"
#include "ait/tensor/torch.h"
#include "gpt.h"
#include "support/document.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace {

const GptConfig config = {.layers = 1, .width = 32, .heads = 2, .context = 64};

/// The folder that the programs run in, with a corpus.
class Pages : public ::testing::Test {
 protected:
  Pages() {
    std::filesystem::current_path(folder_.path());
    std::ofstream text("text");
    for (int i = 0; i < 20; ++i) text << "The order of the samples is a function. ";
    text.close();
    EXPECT_OK(ait::PackText({"text"}, {.directory = "corpus"}));
  }
  ~Pages() override { std::filesystem::current_path(old_folder_); }

 private:
  const std::filesystem::path old_folder_ = std::filesystem::current_path();
  const ait::testing::TempDir folder_;
};

ait::StatusOr<ait::TokenDataset> OpenCorpus(ait::Shard shard) {
  return ait::TokenDataset::Open(
      "corpus",
      {.sequence_length = config.context, .global_batch_size = 2, .shard = shard, .seed = 1});
}

// clang-format off: as the pages show it
ait::Status Train(Gpt& model) {
  AIT_ASSIGN_OR_RETURN(auto world, ait::World::FromEnvironment({
                                       .transport = ait::Automatic({.between = ait::Gloo()})}));
  AIT_ASSIGN_OR_RETURN(auto data, OpenCorpus(world->shard()));
  AIT_ASSIGN_OR_RETURN(auto engine, ait::DataParallel::Create(world->communicator(),
                                                              ait::NamedParameters(*model),
                                                              {.buffers = ait::NamedBuffers(*model)}));
  ait::Trainer trainer(*engine, ait::AdamW{{.learning_rate = 3e-4}},
                       {.clip_norm = 1.0, .total_steps = 1000, .directory = "run",
                        .progress = ait::ProgressTo(STDERR_FILENO)});
  while (!trainer.done()) {
    const ait::TokenBatch* batch = data.Next();
    if (batch == nullptr) break;                            // the end of the data, or an error
    auto step = trainer.Step(*batch, [&](const ait::TokenBatch& b) {
      const at::Tensor logits = model->forward(ait::Inputs(b));
      return ait::LossSum{ait::SumOfCrossEntropy(logits, ait::Targets(b)), b.token_count()};
    });
    if (!step.ok()) return step.status();
  }
  AIT_RETURN_IF_ERROR(data.status());
  return trainer.Save();                                    // run/weights.safetensors
}

std::atomic<bool> interrupted = false;      // of the program: it outlives the trainer
void Interrupt(int) { interrupted = true; }

template <typename Step>
void TrainUntilInterrupted(ait::Trainer& trainer, const Step& step) {
  std::signal(SIGINT, Interrupt);             // before the loop
  while (!trainer.done()) {
    if (interrupted) trainer.RequestStop();     // in the loop, before Step
    step();
  }
}

ait::Status SaveAndLoad(const Gpt& model) {
  AIT_RETURN_IF_ERROR(ait::SaveWeights("weights.safetensors", ait::NamedParameters(*model)));
  AIT_RETURN_IF_ERROR(ait::LoadWeights("weights.safetensors", ait::NamedParameters(*model)).status());
  return ait::OkStatus();
}

auto Grouped() {
  auto optimizer = ait::AdamW{{.learning_rate = 3e-4, .weight_decay = 0.1},
                              {{.name = "head", .pattern = "head.*", .learning_rate = 1e-3},
                               ait::NoDecayForNormsAndBiases()}};
  return optimizer;
}

ait::Status StepInBf16(ait::Trainer& trainer, Gpt& model, const ait::TokenBatch* batch) {
  auto step = trainer.Step(*batch, [&](const ait::TokenBatch& b) {
    const ait::Autocast bf16(ait::DType::kBFloat16);   // or TrainerOptions::autocast
    const at::Tensor logits = model->forward(ait::Inputs(b));
    return ait::LossSum{ait::SumOfCrossEntropy(logits.to(at::kFloat), ait::Targets(b)), b.token_count()};
  });
  return step.status();
}

ait::StatusOr<at::Tensor> RunABlock(ait::World* world, Gpt& model, at::Tensor x) {
  const ait::NamedTensors parameters = ait::NamedParameters(*model);
  AIT_ASSIGN_OR_RETURN(auto engine,
                       ait::DataParallel::Create(world->communicator(), parameters,
                                                 {.zero_stage = ait::ZeroStage::kParameters,
                                                  .precision = ait::Precision::Bf16(),
                                                  .units = ait::UnitsUnder("blocks", parameters)}));
  auto* block = model->blocks[0]->as<BlockImpl>();
  x = engine->Unit("blocks.0", [&](const at::Tensor& in) { return block->forward(in); }, x);
  return x;
}
// clang-format on

TEST_F(Pages, ZeroIsThis) { ait::testing::ExpectCodeIsCompiled(AIT_DOCS "/zero.md", AIT_SOURCE); }

TEST_F(Pages, ZeroRunsABlock) {
  ASSERT_OK_AND_ASSIGN(auto world, ait::World::FromEnvironment());
  Gpt model(config);
  const at::Tensor x = at::ones({1, 4, config.width}, at::kBFloat16);
  ASSERT_OK_AND_ASSIGN(const at::Tensor y, RunABlock(world.get(), model, x));
  EXPECT_EQ(y.sizes(), x.sizes());
}

TEST_F(Pages, PrecisionIsThis) {
  ait::testing::ExpectCodeIsCompiled(AIT_DOCS "/precision.md", AIT_SOURCE);
}
TEST_F(Pages, TrainingIsThis) {
  ait::testing::ExpectCodeIsCompiled(AIT_DOCS "/training.md", AIT_SOURCE);
}
TEST_F(Pages, CheckpointIsThis) {
  ait::testing::ExpectCodeIsCompiled(AIT_DOCS "/checkpoint.md", AIT_SOURCE);
}
TEST_F(Pages, OptimIsThis) { ait::testing::ExpectCodeIsCompiled(AIT_DOCS "/optim.md", AIT_SOURCE); }

TEST_F(Pages, TrainingTrainsAndSaves) {
  Gpt model(config), loaded(config);
  ASSERT_OK(Train(model));
  EXPECT_OK(ait::LoadWeights("run/weights.safetensors", ait::NamedParameters(*loaded)));
}

TEST_F(Pages, PrecisionTrainsInBf16) {
  ASSERT_OK_AND_ASSIGN(auto world, ait::World::FromEnvironment());
  ASSERT_OK_AND_ASSIGN(auto data, OpenCorpus(world->shard()));
  Gpt model(config);
  ASSERT_OK_AND_ASSIGN(
      auto engine, ait::DataParallel::Create(world->communicator(), ait::NamedParameters(*model)));
  ait::Trainer trainer(*engine, ait::AdamW());
  const ait::TokenBatch* batch = data.Next();
  ASSERT_NE(batch, nullptr);
  EXPECT_OK(StepInBf16(trainer, model, batch));
  EXPECT_EQ(trainer.updates(), 1);
}

TEST_F(Pages, TrainingStopsAfterTheStepThatFollowsAnInterrupt) {
  ASSERT_OK_AND_ASSIGN(auto world, ait::World::FromEnvironment());
  ASSERT_OK_AND_ASSIGN(auto data, OpenCorpus(world->shard()));
  Gpt model(config);
  ASSERT_OK_AND_ASSIGN(
      auto engine, ait::DataParallel::Create(world->communicator(), ait::NamedParameters(*model)));
  ait::Trainer trainer(*engine, ait::AdamW());
  const ait::TokenBatch* batch = data.Next();
  ASSERT_NE(batch, nullptr);
  TrainUntilInterrupted(trainer, [&] {
    ASSERT_OK(trainer.Step(*batch, [&](const ait::TokenBatch& b) {
      const at::Tensor logits = model->forward(ait::Inputs(b));
      return ait::LossSum{ait::SumOfCrossEntropy(logits, ait::Targets(b)), b.token_count()};
    }));
    if (trainer.step() == 2) std::raise(SIGINT);
  });
  std::signal(SIGINT, SIG_DFL);
  EXPECT_EQ(trainer.step(), 3);
}

TEST_F(Pages, CheckpointSavesAndLoads) { EXPECT_OK(SaveAndLoad(Gpt(config))); }

TEST_F(Pages, OptimGroupsByName) {
  const ait::AdamW optimizer = Grouped();
  EXPECT_EQ(ait::GroupOf(optimizer.groups(), {.name = "head.weight", .shape = {8, 8}}), 0);
  EXPECT_EQ(ait::GroupOf(optimizer.groups(), {.name = "norm.weight", .shape = {8}}), 1);
}

}  // namespace
