// SPDX-License-Identifier: Apache-2.0
// Optimizer state in files gives the bits of memory in every stage.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include "ait/optim/adam.h"
#include "ait/optim/host_offload.h"
#include "ait/optim/sgd.h"
#include "parallel/zero_training.h"
#include "support/document.h"

namespace ait {
namespace {

using ::ait::testing::Difference;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::TrainZeroThreads;
using ::ait::testing::ZeroModel;
using ::ait::testing::ZeroResult;
using ::ait::testing::ZeroRun;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ZeroOffload : public ::testing::Test {
 protected:
  ZeroOffload() {
    std::string path = ::testing::TempDir() + "zero-offload-XXXXXX";
    directory_ = ::mkdtemp(path.data());
  }
  ~ZeroOffload() override { std::filesystem::remove_all(directory_); }

  StateOffload Offload() const { return {.directory = directory_, .chunk = KiB(64), .chunks = 3}; }
  std::string directory_;
};

TEST_F(ZeroOffload, GivesTheSameBits) {
  const AdamW adamw({.learning_rate = 1e-2});
  for (const Precision& precision : {Precision::Float32(), Precision::Bf16()}) {
    for (const ZeroStage stage : {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients}) {
      ZeroRun run{.options = {.zero_stage = stage,
                              .precision = precision,
                              .first_bucket = Bytes(256),
                              .bucket_cap = Bytes(2000)},
                  .optimizer = &adamw,
                  .steps = 10,
                  .micro_steps = 2};
      const ZeroResult expected = TrainZeroThreads(3, run);
      run.options.offload = Offload();
      EXPECT_EQ(Difference(TrainZeroThreads(3, run), expected), "")
          << "stage " << static_cast<int>(stage);
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(ZeroOffload, ReportsWhatIsInMemoryAndWhatInTheFile) {
  RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
    ZeroModel model;
    ASSERT_OK_AND_ASSIGN(auto engine, DataParallel::Create(communicator, model.Parameters(),
                                                           {.zero_stage = ZeroStage::kOptimizer,
                                                            .offload = Offload()}));
    ASSERT_OK(engine->SetOptimizer(AdamW{}));
    std::int64_t elements = 0;
    for (const ParameterInfo& info : engine->layout().parameters()) elements += info.count();
    const MemoryReport report = engine->Memory();
    EXPECT_GE(report.offloaded, elements * 8 / 2);
    EXPECT_LE(report.measured.states, 3 * (64 << 10));
    EXPECT_EQ(report.formula.states, 0);
    EXPECT_EQ(report.measured.masters, 0);
    EXPECT_THAT(engine->optimizers().front()->DescribeState(), HasSubstr(directory_));
  });
}

TEST_F(ZeroOffload, TellsWhatIsWrongAtTheStart) {
  RunRanks(1, [&](std::shared_ptr<Communicator> communicator) {
    ZeroModel model;
    StateOffload offload = Offload();
    offload.chunks = 2;
    EXPECT_THAT(DataParallel::Create(communicator, model.Parameters(), {.offload = offload}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("StateOffload::chunks is 2")));
    offload = Offload();
    offload.directory += "/gone";
    ASSERT_OK_AND_ASSIGN(
        auto engine, DataParallel::Create(communicator, model.Parameters(), {.offload = offload}));
    EXPECT_THAT(engine->SetOptimizer(AdamW{}), StatusIs(StatusCode::kNotFound, HasSubstr("/gone")));
    EXPECT_OK(engine->SetOptimizer(Sgd{}));  // without momentum there is no state
  });
}

// The code of docs/offload.md.
// clang-format off: as the page shows it
Status Page(const std::shared_ptr<Communicator>& communicator, const NamedTensors& parameters,
            const std::string& directory) {
auto engine = ait::DataParallel::Create(communicator, parameters,
    {.zero_stage = ait::ZeroStage::kGradients, .offload = {.directory = directory}});
  AIT_RETURN_IF_ERROR(engine.status());
  return (*engine)->SetOptimizer(AdamW{});
}

// What it does is tested by tests/optim/host_offload_test.cc.
[[maybe_unused]] Status PageOfHost(const std::shared_ptr<DeviceRuntime>& gpus, const ParameterLayout& layout, Buffer parameters,
                  Buffer gradients, const Event& backward_done, Stream& stream, double tokens) {
AIT_ASSIGN_OR_RETURN(auto offload, ait::HostOffload::Create(ait::AdamW{}, layout, {.runtime = gpus}));
AIT_RETURN_IF_ERROR(offload->TakeParameters({0, parameters}));
AIT_RETURN_IF_ERROR(offload->BeginStep({.gradient_scale = 1 / tokens}));
AIT_RETURN_IF_ERROR(offload->Update({0, parameters, gradients, &backward_done}));
AIT_RETURN_IF_ERROR(offload->Await(stream));
  return OkStatus();
}
// clang-format on

TEST_F(ZeroOffload, PageIsThis) {
  ait::testing::ExpectCodeIsCompiled(AIT_PAGE, AIT_SOURCE);
  RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
    ZeroModel model;
    EXPECT_OK(Page(communicator, model.Parameters(), directory_));
  });
}

}  // namespace
}  // namespace ait
