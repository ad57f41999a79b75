// SPDX-License-Identifier: Apache-2.0
// The program of the README, on a corpus of a few sentences.
#include <gtest/gtest.h>
#include <unistd.h>

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
#include "ait/runtime/trainer.h"
#include "ait/tensor/gloo.h"
#include "ait/tensor/torch.h"
#include "gpt.h"
#include "support/document.h"
#include "support/status_matchers.h"

namespace {

const GptConfig config = {.layers = 1, .width = 32, .heads = 2, .context = 256};

// clang-format off: as the page shows it
ait::Status Train() {
  AIT_ASSIGN_OR_RETURN(auto world, ait::World::FromEnvironment({
                                       .transport = ait::Automatic({.between = ait::Gloo()})}));
  AIT_ASSIGN_OR_RETURN(auto data, ait::TokenDataset::Open("corpus", {.sequence_length = 256,
                                                                     .global_batch_size = 32,
                                                                     .shard = world->shard(),
                                                                     .seed = 1}));
  Gpt model(config);
  AIT_ASSIGN_OR_RETURN(auto engine, ait::DataParallel::Create(world->communicator(),
                                                              ait::NamedParameters(*model)));
  auto optimizer = ait::AdamW{{.learning_rate = 3e-4, .weight_decay = 0.1},
                              {ait::NoDecayForNormsAndBiases()}};
  ait::Trainer trainer(*engine, optimizer, {.clip_norm = 1.0, .accumulate = 4, .directory = "run",
                                            .progress = ait::ProgressTo(STDERR_FILENO)});
  while (const ait::TokenBatch* batch = data.Next()) {
    auto step = trainer.Step(*batch, [&](const ait::TokenBatch& b) {
      return ait::LossSum{ait::SumOfCrossEntropy(model->forward(ait::Inputs(b)), ait::Targets(b)),
                          b.token_count()};
    });
    if (!step.ok()) return step.status();  // says which rank, bucket and phase, and what to do
  }
  AIT_RETURN_IF_ERROR(data.status());
  return trainer.Save();                   // safetensors, durably
}
// clang-format on

TEST(Readme, ItsProgramIsThis) { ait::testing::ExpectCodeIsCompiled(AIT_README, AIT_SOURCE); }

TEST(Readme, ItsProgramTrainsAndSaves) {
  const auto old_folder = std::filesystem::current_path();
  std::string folder = (std::filesystem::temp_directory_path() / "ait_readme_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::filesystem::current_path(folder);
  {
    std::ofstream text("text");
    for (int i = 0; i < 2000; ++i) text << "The order of the samples is a function. ";
  }
  ASSERT_OK(ait::PackText({"text"}, {.directory = "corpus"}));
  EXPECT_OK(Train());
  Gpt model(config);
  EXPECT_OK(ait::LoadWeights("run/weights.safetensors", ait::NamedParameters(*model)));
  EXPECT_TRUE(std::filesystem::exists("run/metrics.jsonl"));
  std::filesystem::current_path(old_folder);
  std::filesystem::remove_all(folder);
}

}  // namespace
