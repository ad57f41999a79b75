// SPDX-License-Identifier: Apache-2.0
#include "ait/checkpoint/optimizer_state.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ait/checkpoint/safetensors.h"
#include "ait/checkpoint/weights.h"
#include "ait/optim/adafactor.h"
#include "ait/optim/adam.h"
#include "ait/optim/lamb.h"
#include "ait/optim/muon.h"
#include "ait/optim/sgd.h"
#include "parallel/tiny_model.h"
#include "parallel/zero_training.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::ZeroModel;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

struct RankPlan {
  int ranks = 1;
  ZeroStage stage = ZeroStage::kNone;
  Precision precision = {};
};

DataParallelOptions OptionsOf(const RankPlan& setup, const Optimizer& optimizer) {
  return {.zero_stage = setup.stage,
          .precision = setup.precision,
          .slices = optimizer.ownership() == Ownership::kWholeParameters
                        ? SliceRule::kWholeParameters
                        : SliceRule::kEqual,
          .first_bucket = Bytes(1024),
          .bucket_cap = Bytes(4096)};
}

void Step(DataParallel& engine, const ZeroModel& model, int seed) {
  ASSERT_OK(engine.BeginMicroStep(MicroStep::kLast));
  ASSERT_OK(
      engine.Backward(model.Loss(engine, seed, true, engine.communicator()->rank().value() == 0)));
  ASSERT_OK(engine.FinishGradients({.count = 6}));
  ASSERT_OK(engine.Update({.gradient_scale = 1.0 / 6}));
}

// Trains for some steps, on top of what was saved in `from` if that is not empty, and saves.
void Train(const RankPlan& setup, const Optimizer& optimizer, int first, int last,
           const std::string& from, const std::string& to) {
  RunRanks(setup.ranks, [&](const std::shared_ptr<Communicator>& communicator) {
    const ZeroModel model(from.empty() ? 1 : 2);
    auto engine =
        DataParallel::Create(communicator, model.Parameters(), OptionsOf(setup, optimizer));
    ASSERT_OK(engine);
    if (!from.empty()) {
      ASSERT_OK(LoadWeights(from + ".weights", (*engine)->parameters()));
    }
    ASSERT_OK(communicator->Barrier().Wait());
    ASSERT_OK((*engine)->SetOptimizer(optimizer));
    if (!from.empty()) {
      ASSERT_OK_AND_ASSIGN(const LoadedOptimizer loaded, LoadOptimizer(from, **engine, optimizer));
      EXPECT_EQ(loaded.step, first);
      EXPECT_EQ(loaded.description, optimizer.Describe());
    }
    for (int step = first; step < last; ++step) Step(**engine, model, step);
    ASSERT_OK(SaveOptimizer(to, **engine, optimizer));
    if (communicator->rank().value() == 0) {
      ASSERT_OK(SaveWeights(to + ".weights", (*engine)->parameters()));
    }
    ASSERT_OK(communicator->Barrier().Wait());
  });
}

const AdamW kAdamW{{.learning_rate = 1e-2}, {NoDecayForNormsAndBiases()}};

TEST(OptimizerState, GoesFromAnyRanksAndStageToAnyOther) {
  const TempDir dir;
  const std::vector<RankPlan> setups = {{.ranks = 1},
                                        {.ranks = 3, .stage = ZeroStage::kOptimizer},
                                        {.ranks = 2, .stage = ZeroStage::kGradients},
                                        {.ranks = 2}};
  const Lamb lamb{{.learning_rate = 1e-2}};
  const Adafactor adafactor;
  const Muon muon{{.adamw_parameters = {"embedding"}}};
  const Sgd sgd{{.momentum = 0.9}};
  for (const Optimizer* optimizer :
       {static_cast<const Optimizer*>(&kAdamW), static_cast<const Optimizer*>(&lamb),
        static_cast<const Optimizer*>(&adafactor), static_cast<const Optimizer*>(&muon),
        static_cast<const Optimizer*>(&sgd)}) {
    SCOPED_TRACE(optimizer->name());
    Train({.ranks = 2, .stage = ZeroStage::kOptimizer}, *optimizer, 0, 2, "", dir / "first");
    const std::string expected = Contents(dir / "first");
    EXPECT_GT(expected.size(), 1000u);
    for (const RankPlan& setup : setups) {
      Train(setup, *optimizer, 2, 2, dir / "first", dir / "again");
      EXPECT_TRUE(Contents(dir / "again") == expected) << setup.ranks;
      if (optimizer != &kAdamW) break;  // the rest is not of the optimizer
    }
  }
}

TEST(OptimizerState, ARunThatGoesOnHasTheBitsOfOneThatNeverStopped) {
  const TempDir dir;
  const Muon muon{{.learning_rate = 1e-3}};
  for (const Optimizer* optimizer :
       {static_cast<const Optimizer*>(&kAdamW), static_cast<const Optimizer*>(&muon)}) {
    const RankPlan setup{.ranks = 2, .stage = ZeroStage::kOptimizer};
    Train(setup, *optimizer, 0, 5, "", dir / "whole");
    Train(setup, *optimizer, 0, 2, "", dir / "part");
    Train({.ranks = 2}, *optimizer, 2, 5, dir / "part", dir / "rest");
    EXPECT_TRUE(Contents(dir / "rest") == Contents(dir / "whole"));
    EXPECT_TRUE(Contents(dir / "rest.weights") == Contents(dir / "whole.weights"));
  }
}

TEST(OptimizerState, MastersAndRemaindersBecomeEachOther) {
  const TempDir dir;
  const RankPlan masters{
      .ranks = 2, .stage = ZeroStage::kOptimizer, .precision = Precision::Bf16()};
  const RankPlan remainders{.ranks = 2,
                            .stage = ZeroStage::kOptimizer,
                            .precision = Precision::Bf16(Masters::kRemainder)};
  Train(masters, kAdamW, 0, 4, "", dir / "masters");
  Train(remainders, kAdamW, 0, 4, "", dir / "remainders");
  Train(masters, kAdamW, 4, 4, dir / "remainders", dir / "became_masters");
  Train(remainders, kAdamW, 4, 4, dir / "masters", dir / "became_remainders");
  EXPECT_TRUE(Contents(dir / "became_masters") == Contents(dir / "masters"));
  EXPECT_TRUE(Contents(dir / "became_remainders") == Contents(dir / "remainders"));
}

// A small model of one rank, whose file the tests below change.
class OptimizerFile : public ::testing::Test {
 protected:
  OptimizerFile() {
    w_ = testing::Leaf({3, 5}, 1);
    conv_ = testing::Values({2, 3, 2, 2}, 2)
                .contiguous(at::MemoryFormat::ChannelsLast)
                .set_requires_grad(true);
    b_ = testing::Leaf({5}, 3);
    s_ = testing::Leaf({}, 4);
    parameters_.Add("w", w_);
    parameters_.Add("conv", conv_);
    parameters_.Add("b", b_);
    parameters_.Add("s", s_);
    auto engine = DataParallel::Create(testing::Alone(), parameters_);
    EXPECT_OK(engine);
    engine_ = *std::move(engine);
    EXPECT_OK(engine_->SetOptimizer(optimizer_));
    EXPECT_OK(SaveOptimizer(path(), *engine_, optimizer_));
  }

  std::string path() const { return dir_ / "optimizer"; }

  struct File {
    SafetensorsMetadata metadata;
    std::vector<TensorInfo> infos;
    std::vector<std::vector<std::byte>> bytes;
  };

  File Read(const std::string& from) const {
    File content;
    auto file = SafetensorsFile::Open(from);
    EXPECT_OK(file);
    content.metadata = file->metadata();
    for (const TensorInfo& info : file->tensors()) {
      content.infos.push_back(info);
      content.bytes.emplace_back(static_cast<std::size_t>(info.bytes().value()));
      EXPECT_OK(file->Read(info, content.bytes.back()));
    }
    return content;
  }

  void Write(const File& content) const {
    std::vector<TensorBytes> tensors;
    for (std::size_t i = 0; i < content.infos.size(); ++i) {
      const TensorInfo& info = content.infos[i];
      tensors.push_back({info.name, info.dtype, info.shape, content.bytes[i]});
    }
    EXPECT_OK(WriteSafetensors(path(), tensors, content.metadata));
  }

  void ExpectRefused(const std::vector<std::string>& texts) {
    const auto loaded = LoadOptimizer(path(), *engine_, optimizer_);
    for (const std::string& text : texts) {
      EXPECT_THAT(loaded, StatusIs(StatusCode::kFailedPrecondition, HasSubstr(text)));
    }
  }

  TempDir dir_;
  at::Tensor w_, conv_, b_, s_;
  NamedTensors parameters_;
  AdamW optimizer_{{.learning_rate = 3e-4, .beta2 = 0.95, .weight_decay = 0.1},
                   {NoDecayForNormsAndBiases()}};
  std::unique_ptr<DataParallel> engine_;
};

TEST_F(OptimizerFile, OfTorchIsReadAndWrittenAgain) {
  const std::string torch = AIT_REFERENCE "/torch_adamw.safetensors";
  ASSERT_OK_AND_ASSIGN(const LoadedOptimizer loaded, LoadOptimizer(torch, *engine_, optimizer_));
  EXPECT_EQ(loaded.step, 3);
  EXPECT_EQ(loaded.description, "torch.optim.AdamW");
  EXPECT_EQ(engine_->optimizers()[0]->step(), 3);
  ASSERT_OK(SaveOptimizer(path(), *engine_, optimizer_));
  const File ours = Read(path()), theirs = Read(torch);
  ASSERT_EQ(ours.infos.size(), theirs.infos.size());
  for (std::size_t i = 0; i < ours.infos.size(); ++i) {
    EXPECT_EQ(ours.infos[i].name, theirs.infos[i].name);
    EXPECT_EQ(ours.infos[i].shape, theirs.infos[i].shape) << ours.infos[i].name;
    EXPECT_EQ(ours.bytes[i], theirs.bytes[i]) << ours.infos[i].name;
  }
  // "conv" is channels-last here: its state lies in that order in memory.
  for (const StateSlice& slice : engine_->optimizers()[0]->State()) {
    if (slice.parameter != "conv" || slice.state != "exp_avg") continue;
    std::vector<float> row_major(24);
    for (std::size_t i = 0; i < theirs.infos.size(); ++i) {
      if (theirs.infos[i].name == "state.conv.exp_avg")
        std::memcpy(row_major.data(), theirs.bytes[i].data(), 96);
    }
    EXPECT_EQ(slice.floats()[1], row_major[4]);  // the next channel, not the next column
  }

  const auto groups = nlohmann::json::parse(ours.metadata.at("param_groups"));
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].at("params"), nlohmann::json({"b", "s"}));
  EXPECT_EQ(groups[0].at("weight_decay"), 0.0);
  EXPECT_EQ(groups[1].at("params"), nlohmann::json({"w", "conv"}));
  EXPECT_EQ(groups[1].at("lr"), 3e-4);
}

TEST_F(OptimizerFile, GoesIntoTorchOptim) {
  const std::string torch = AIT_REFERENCE "/torch_adamw.safetensors";
  ASSERT_OK(LoadOptimizer(torch, *engine_, optimizer_));
  ASSERT_OK(SaveOptimizer(path(), *engine_, optimizer_));
  if (!std::filesystem::exists(AIT_PYTHON)) GTEST_SKIP() << "no Python";
  auto python = testing::Process::Spawn(
      {.program = AIT_PYTHON,
       .args = {AIT_REFERENCE "/torch_optimizer.py", "verify", path(), torch}});
  const testing::Exit exit = python.Wait();
  if (exit.code == 77) GTEST_SKIP() << exit.output;
  EXPECT_EQ(exit.code, 0) << exit.output;
}

TEST_F(OptimizerFile, OfAnotherFormatOptimizerOrVersionIsRefused) {
  const File good = Read(path());
  for (const auto& [field, value] :
       {std::pair("optimizer_format", "2"), std::pair("optimizer", "sgd"),
        std::pair("state_version", "7")}) {
    File file = good;
    const std::string own = std::exchange(file.metadata[field], value);
    Write(file);
    ExpectRefused({StrCat("\"", field, "\" is \"", value, "\" in the file and \"", own, "\"")});
    file.metadata.erase(field);
    Write(file);
    ExpectRefused({StrCat("it has no field \"", field, "\"")});
  }
}

TEST_F(OptimizerFile, WithoutAStateOrWithOneTooManyIsRefused) {
  const File good = Read(path());
  for (std::size_t i = 0; i < good.infos.size(); ++i) {
    File file = good;
    file.infos.erase(file.infos.begin() + static_cast<std::ptrdiff_t>(i));
    file.bytes.erase(file.bytes.begin() + static_cast<std::ptrdiff_t>(i));
    Write(file);
    const std::string& name = good.infos[i].name;
    ExpectRefused({name == "step"
                       ? "it has no \"step\""
                       : StrCat("\"", name.substr(name.rfind('.') + 1), "\" of parameter \"",
                                name.substr(6, name.rfind('.') - 6), "\"")});
  }
  for (const auto& [name, text] :
       {std::pair("state.old.exp_avg", "of parameter \"old\""),
        std::pair("state.w.momentum_buffer", "\"momentum_buffer\" (F32 [2]) of parameter \"w\""),
        std::pair("other", "\"other\" is neither")}) {
    File file = good;
    file.infos.push_back({.name = name, .dtype = DType::kFloat32, .shape = {2}});
    file.bytes.emplace_back(8);
    Write(file);
    ExpectRefused({text});
  }
}

TEST_F(OptimizerFile, OfOtherShapesOrDtypesIsRefusedWithBoth) {
  const File good = Read(path());
  for (std::size_t i = 0; i < good.infos.size(); ++i) {
    if (good.infos[i].name != "state.w.exp_avg") continue;
    File file = good;
    file.infos[i].shape = {5, 3};
    Write(file);
    ExpectRefused({"\"exp_avg\" of parameter \"w\"", "F32 [5, 3] in the file and F32 [3, 5]"});
    file = good;
    file.infos[i].dtype = DType::kBFloat16;
    file.bytes[i].resize(30);
    Write(file);
    ExpectRefused({"BF16 [3, 5] in the file and F32 [3, 5]"});
  }
}

TEST_F(OptimizerFile, ThatIsDamagedOrNotThereIsNamed) {
  std::filesystem::resize_file(path(), std::filesystem::file_size(path()) - 1);
  EXPECT_THAT(LoadOptimizer(path(), *engine_, optimizer_),
              StatusIs(StatusCode::kDataLoss, HasSubstr("is truncated")));
  EXPECT_THAT(LoadOptimizer(dir_ / "no", *engine_, optimizer_),
              StatusIs(StatusCode::kNotFound, HasSubstr("/no")));
}

TEST_F(OptimizerFile, OfAnEngineWithoutAnOptimizerIsRefused) {
  engine_.reset();
  auto engine = DataParallel::Create(testing::Alone(), parameters_);
  ASSERT_OK(engine);
  EXPECT_THAT(SaveOptimizer(dir_ / "x", **engine, optimizer_),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("SetOptimizer")));
  EXPECT_THAT(LoadOptimizer(path(), **engine, optimizer_),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("SetOptimizer")));
}

TEST(OptimizerState, AFaultOfOneRankIsTheOutcomeOfAll) {
  const TempDir dir;
  RunRanks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    const ZeroModel model(1);
    auto engine = DataParallel::Create(communicator, model.Parameters());
    ASSERT_OK(engine);
    ASSERT_OK((*engine)->SetOptimizer(kAdamW));
    EXPECT_THAT(SaveOptimizer(dir / "no/such/folder", **engine, kAdamW),
                StatusIs(StatusCode::kNotFound, HasSubstr("rank 0: ")));
    ASSERT_OK(SaveOptimizer(dir / "f", **engine, kAdamW));
    const bool is_second = communicator->rank().value() == 1;
    EXPECT_THAT(LoadOptimizer(dir / (is_second ? "missing" : "f"), **engine, kAdamW),
                StatusIs(StatusCode::kNotFound, AllOf(HasSubstr("rank 1"), HasSubstr("missing"))));
    EXPECT_OK(LoadOptimizer(dir / "f", **engine, kAdamW));
  });
}

}  // namespace
}  // namespace ait
