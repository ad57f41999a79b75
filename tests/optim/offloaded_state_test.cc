// SPDX-License-Identifier: Apache-2.0
#include "optim/offloaded_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <ostream>
#include <thread>
#include <tuple>

#include "ait/optim/adam.h"
#include "ait/optim/lion.h"
#include "ait/optim/sgd.h"
#include "optim/flat_optimizer.h"
#include "optim/optim_fixtures.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using internal::ChunkPlan;
using internal::OwnedPiece;
using internal::PlanChunks;
using internal::StateArray;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::LayoutOf;
using testing::RandomFloats;
using testing::StatusIs;
using testing::ThreadsOf;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string path = ::testing::TempDir() + "offloaded-state-XXXXXX";
    path_ = ::mkdtemp(path.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// About 1.1 MB of AdamW state: 18 chunks of 64 KiB; parameters end anywhere.
const std::vector<std::int64_t> kSizes = {100'000, 7, 33'000, 0, 1, 65, 8'192};

ParameterLayout BigLayout() {
  ParameterLayout layout = LayoutOf(kSizes);
  for (std::size_t i = 0; i < layout.parameters.size(); ++i) {
    layout.parameters[i].model_element = static_cast<std::int64_t>(i) * 1'000'000;
  }
  return layout;
}

// Parameters and gradients of a flat buffer, and an optimizer.
struct Bound {
  std::unique_ptr<BoundOptimizer> optimizer;
  DType dtype = DType::kFloat32;
  std::int64_t count = 0;
  std::vector<std::byte> parameters;
  std::vector<std::byte> copy;
  std::vector<float> gradients;

  UpdateSlice Slice(std::int64_t begin, std::int64_t end, std::vector<void*>& copies) {
    const Buffer all{parameters.data(), count, dtype};
    copies = {copy.data() + begin * SizeOf(dtype)};
    return {.begin = begin,
            .parameters = all.Slice(begin, end - begin),
            .gradients = View(gradients).Slice(begin, end - begin),
            .copies = copies};
  }
};

void Bind(const Optimizer& optimizer, BindOptions options, Bound& run) {
  const ParameterLayout layout = BigLayout();
  run.dtype = options.parameter_dtype;
  run.count = layout.owned[0].end;
  const auto bytes = static_cast<std::size_t>(run.count * SizeOf(run.dtype));
  run.parameters.resize(bytes);
  run.copy.resize(bytes);
  run.gradients.resize(static_cast<std::size_t>(run.count));
  ASSERT_OK_AND_ASSIGN(run.optimizer, optimizer.Bind(layout, std::move(options)));
  std::vector<void*> copies;
  ASSERT_OK(
      run.optimizer->SetParameters(run.Slice(0, run.count, copies), RandomFloats(run.count, 1)));
}

// A step over slices that begin and end inside of parameters and chunks.
void Step(Bound& run, unsigned seed, const std::vector<std::int64_t>& cuts) {
  run.gradients = RandomFloats(run.count, seed);
  ASSERT_OK(run.optimizer->BeginStep(
      {.learning_rate_factor = 0.5, .gradients_after = GradientsAfter::kZero}));
  std::int64_t begin = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const std::int64_t end = i < cuts.size() ? cuts[i] : run.count;
    std::vector<void*> copies;
    ASSERT_OK(run.optimizer->Update(run.Slice(begin, end, copies)));
    begin = end;
  }
}

using StateBytes = std::map<std::tuple<std::string, std::string>, std::vector<std::byte>>;

StateBytes StateOf(BoundOptimizer& optimizer) {
  StateBytes state;
  EXPECT_OK(optimizer.VisitState(StateAccess::kRead, [&](const StateSlice& slice) {
    auto& bytes = state[{std::string(slice.parameter), std::string(slice.state)}];
    EXPECT_EQ(static_cast<std::int64_t>(bytes.size()), slice.begin * SizeOf(slice.dtype));
    bytes.insert(bytes.end(), slice.bytes.begin(), slice.bytes.end());
    return OkStatus();
  }));
  return state;
}

void ExpectSame(Bound& a, Bound& b) {
  EXPECT_EQ(a.parameters, b.parameters);
  EXPECT_EQ(a.copy, b.copy);
  EXPECT_EQ(StateOf(*a.optimizer), StateOf(*b.optimizer));
  EXPECT_TRUE(testing::SameBits(a.gradients, b.gradients));
  std::vector<float> exact_a(static_cast<std::size_t>(a.count));
  std::vector<float> exact_b = exact_a;
  std::vector<void*> copies;
  ASSERT_OK(a.optimizer->GetParameters(a.Slice(0, a.count, copies), exact_a));
  ASSERT_OK(b.optimizer->GetParameters(b.Slice(0, b.count, copies), exact_b));
  EXPECT_TRUE(testing::SameBits(exact_a, exact_b));
}

struct Case {
  std::string name;
  std::shared_ptr<const Optimizer> optimizer;
  DType dtype = DType::kFloat32;
  Masters masters = Masters::kFloat32;
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

std::vector<Case> Cases() {
  const auto adamw = std::make_shared<AdamW>(
      AdamW::Options{.weight_decay = 0.1},
      ParameterGroups{{.name = "p2", .pattern = "p2", .learning_rate = 0.02}});
  const auto sgd = std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.1, .momentum = 0.9});
  const auto adamw8 = std::make_shared<AdamW>(AdamW::Options{.state = StateFormat::kBlockwise8bit},
                                              ParameterGroups{});
  const auto lion8 = std::make_shared<Lion>(Lion::Options{.state = StateFormat::kBlockwise8bit});
  return {{"adamw", adamw},
          {"sgd", sgd},
          {"lion", std::make_shared<Lion>()},
          {"adamw_8bit", adamw8},
          {"adamw_8bit_bf16", adamw8, DType::kBFloat16},
          {"lion_8bit", lion8},
          {"plain_sgd", std::make_shared<Sgd>()},
          {"plain_sgd_bf16", std::make_shared<Sgd>(), DType::kBFloat16},
          {"adamw_bf16", adamw, DType::kBFloat16},
          {"adamw_remainder", adamw, DType::kBFloat16, Masters::kRemainder},
          {"adamw_kahan", adamw, DType::kBFloat16, Masters::kKahan},
          {"adamw_stochastic", adamw, DType::kBFloat16, Masters::kStochastic},
          {"adamw_fp16", adamw, DType::kFloat16}};
}

class OffloadedState : public ::testing::TestWithParam<Case> {
 protected:
  BindOptions InMemory() const {
    return {.parameter_dtype = GetParam().dtype, .masters = GetParam().masters, .seed = 5};
  }
  BindOptions InFile() const {
    BindOptions options = InMemory();
    options.offload = {.directory = directory_.path(), .chunk = KiB(64)};
    return options;
  }
  TemporaryDirectory directory_;
};

TEST_P(OffloadedState, GivesTheBitsOfMemory) {
  Bound memory;
  Bound file;
  Bound threads;
  Bind(*GetParam().optimizer, InMemory(), memory);
  Bind(*GetParam().optimizer, InFile(), file);
  BindOptions options = InFile();
  options.executor = ThreadsOf(3);
  options.offload.chunks = 3;
  Bind(*GetParam().optimizer, options, threads);
  for (unsigned step = 1; step <= 4; ++step) {
    Step(memory, step, {});
    Step(file, step, {});
    Step(threads, step, {64, 30'016, 100'000, 100'032, 120'064});
    ExpectSame(memory, file);
    ExpectSame(memory, threads);
  }
}

TEST_P(OffloadedState, TakesStateThatIsVisitedForWriting) {
  Bound memory;
  Bound file;
  Bind(*GetParam().optimizer, InMemory(), memory);
  Bind(*GetParam().optimizer, InFile(), file);
  Step(memory, 1, {});
  StateBytes state = StateOf(*memory.optimizer);
  ASSERT_OK(file.optimizer->VisitState(StateAccess::kReadWrite, [&](const StateSlice& slice) {
    const auto& from = state[{std::string(slice.parameter), std::string(slice.state)}];
    std::copy_n(from.data() + slice.begin * SizeOf(slice.dtype), slice.bytes.size(),
                slice.bytes.data());
    return OkStatus();
  }));
  ASSERT_OK(file.optimizer->set_step(1));
  file.gradients = memory.gradients;
  file.parameters = memory.parameters;
  file.copy = memory.copy;
  ExpectSame(memory, file);
  Step(memory, 2, {});
  Step(file, 2, {});
  ExpectSame(memory, file);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OffloadedState, ::testing::ValuesIn(Cases()),
                         [](const auto& way) { return way.param.name; });

class OffloadedAdamW : public ::testing::Test {
 protected:
  BindOptions InFile() const {
    return {.offload = {.directory = directory_.path(), .chunk = KiB(64)}};
  }
  TemporaryDirectory directory_;
};

TEST_F(OffloadedAdamW, TellsWhatIsInMemoryAndWhatInTheFile) {
  Bound run;
  BindOptions options = InFile();
  options.parameter_dtype = DType::kBFloat16;
  Bind(AdamW{}, options, run);
  EXPECT_EQ(run.optimizer->state_bytes(), 4 * 64 << 10);
  EXPECT_EQ(run.optimizer->master_bytes(), 0);
  std::int64_t bytes = 0;
  for (const std::int64_t size : kSizes) bytes += size * 12;
  EXPECT_GE(run.optimizer->offloaded_bytes(), bytes);
  EXPECT_LE(run.optimizer->offloaded_bytes(), bytes * 102 / 100 + (64 << 10));
  EXPECT_THAT(run.optimizer->DescribeState(), HasSubstr(directory_.path()));
  EXPECT_TRUE(run.optimizer->State().empty());
  Bound memory;
  Bind(AdamW{}, {}, memory);
  EXPECT_EQ(memory.optimizer->offloaded_bytes(), 0);
  EXPECT_EQ(memory.optimizer->DescribeState(), "memory");
}

TEST_F(OffloadedAdamW, UpdatesSlicesFromSeveralThreads) {
  Bound memory;
  Bound file;
  Bind(AdamW{}, {}, memory);
  Bind(AdamW{}, InFile(), file);
  for (unsigned step = 1; step <= 3; ++step) {
    Step(memory, step, {});
    file.gradients = RandomFloats(file.count, step);
    ASSERT_OK(file.optimizer->BeginStep(
        {.learning_rate_factor = 0.5, .gradients_after = GradientsAfter::kZero}));
    std::vector<std::jthread> threads;
    for (std::int64_t begin = 0; begin < file.count; begin += 40'000) {
      threads.emplace_back([&, begin] {
        std::vector<void*> copies;
        EXPECT_OK(file.optimizer->Update(
            file.Slice(begin, std::min(begin + 40'000, file.count), copies)));
      });
    }
    threads.clear();
    ExpectSame(memory, file);
  }
}

TEST_F(OffloadedAdamW, PassesOnTheErrorOfAVisitor) {
  Bound run;
  Bind(AdamW{}, InFile(), run);
  int calls = 0;
  EXPECT_THAT(run.optimizer->VisitState(StateAccess::kRead,
                                        [&](const StateSlice&) {
                                          return ++calls == 3 ? AbortedError("enough") : OkStatus();
                                        }),
              StatusIs(StatusCode::kAborted, "enough"));
  EXPECT_EQ(calls, 3);
}

TEST_F(OffloadedAdamW, TellsWhatIsWrongWithTheDirectory) {
  BindOptions options = InFile();
  options.offload.directory += "/gone";
  EXPECT_THAT(AdamW{}.Bind(BigLayout(), options),
              StatusIs(StatusCode::kNotFound, HasSubstr("/gone")));
  options = InFile();
  options.offload.chunks = 1;
  EXPECT_THAT(AdamW{}.Bind(BigLayout(), options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("chunks")));
}

TEST_F(OffloadedAdamW, FailsForGoodWhenTheFileIsTruncated) {
  Bound run;
  Bind(AdamW{}, InFile(), run);
  Step(run, 1, {});
  StateOf(*run.optimizer);  // all of it is in the file now
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (!target.starts_with(directory_.path())) continue;
    ASSERT_EQ(::truncate(entry.path().c_str(), 8 * 64 << 10), 0);
  }
  ASSERT_OK(run.optimizer->BeginStep({}));
  std::vector<void*> copies;
  const Status status = run.optimizer->Update(run.Slice(0, run.count, copies));
  EXPECT_THAT(status, StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr("cannot read 65536 bytes"),
                                                            HasSubstr("truncated"))));
  EXPECT_EQ(run.optimizer->Update(run.Slice(0, 64, copies)), status);
  EXPECT_EQ(run.optimizer->VisitState(StateAccess::kRead, [](auto&) { return OkStatus(); }),
            status);
}

// An optimizer of whole parameters.
class Whole final : public internal::FlatOptimizer {
 public:
  Status Bind(BindOptions options) {
    return Init(BigLayout(), {}, std::move(options), {{.name = "a"}}, Ownership::kWholeParameters);
  }

 private:
  void OnBeginStep(const StepOptions&) override {}
  Status UpdateOwned(const UpdateSlice&) override { return OkStatus(); }
};

TEST_F(OffloadedAdamW, IsRefusedForWholeParameters) {
  EXPECT_THAT(Whole().Bind(InFile()),
              StatusIs(StatusCode::kUnimplemented,
                       AllOf(HasSubstr("needs whole parameters"), HasSubstr("AdamW"))));
  EXPECT_OK(Whole().Bind({}));
}

// The plan.

TEST(PlanChunks, PutsEveryElementOnceIntoAChunkThatHoldsIt) {
  const std::vector<StateArray> arrays = {
      {.name = "q", .dtype = DType::kUInt8, .block = 1},
      {.name = "scale", .block = 256},
      {.name = "plain", .of = [](const ParameterSegment& p) { return p.size() < 5'000; }}};
  const ParameterLayout layout = LayoutOf({100'000, 4'000, 7, 300'000, 64});
  std::vector<OwnedPiece> pieces;
  for (std::size_t i = 0; i < layout.parameters.size(); ++i) {
    pieces.push_back({.range = layout.parameters[i].range(),
                      .parameter = i,
                      .group = 0,
                      .state = std::vector<std::byte*>(3)});
  }
  pieces[0].range.begin += 2'048;  // owned from there on
  ASSERT_OK_AND_ASSIGN(const ChunkPlan plan,
                       PlanChunks(pieces, arrays, layout.parameters, 64 << 10));
  std::vector<OwnedPiece> joined;
  for (std::size_t chunk = 0; chunk + 1 < plan.chunk_begins.size(); ++chunk) {
    std::int64_t end = 0;
    for (std::size_t p = plan.chunk_begins[chunk]; p < plan.chunk_begins[chunk + 1]; ++p) {
      const OwnedPiece& piece = plan.pieces[p];
      const ParameterSegment& parameter = layout.parameters[piece.parameter];
      for (std::size_t a = 0; a < arrays.size(); ++a) {
        const std::int64_t offset = plan.offsets[p * arrays.size() + a];
        EXPECT_EQ(offset >= 0, !arrays[a].of || arrays[a].of(parameter));
        if (offset < 0) continue;
        EXPECT_GE(offset, end);
        EXPECT_EQ(offset % 64, 0);
        end = offset + arrays[a].EntriesOf(piece.range.size()) * SizeOf(arrays[a].dtype);
        EXPECT_LE(end, 64 << 10);
      }
      if (!joined.empty() && joined.back().parameter == piece.parameter) {
        EXPECT_EQ(joined.back().range.end, piece.range.begin);
        EXPECT_EQ((piece.range.begin - parameter.begin) % 256, 0);
        joined.back().range.end = piece.range.end;
      } else {
        joined.push_back(piece);
      }
    }
    if (chunk + 2 < plan.chunk_begins.size()) {
      EXPECT_GT(end, 60 << 10);  // chunks are full
    }
  }
  ASSERT_EQ(joined.size(), pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) EXPECT_EQ(joined[i].range, pieces[i].range);
}

TEST(PlanChunks, RefusesAChunkThatDoesNotHoldABlock) {
  const std::vector<StateArray> arrays = {{.name = "a"}, {.name = "scale", .block = 1 << 20}};
  const ParameterLayout layout = LayoutOf({3 << 20});
  EXPECT_THAT(PlanChunks({{.range = {0, 3 << 20}, .parameter = 0, .group = 0}}, arrays,
                         layout.parameters, 64 << 10),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("65536 bytes"), HasSubstr("1048576 elements"),
                             HasSubstr("\"p0\""))));
}

}  // namespace
}  // namespace ait
