// SPDX-License-Identifier: Apache-2.0
// The code of docs/compression.md.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ait/comm/communicator.h"
#include "ait/parallel/compression.h"
#include "parallel/engine_support.h"
#include "parallel/tiny_model.h"
#include "support/document.h"
#include "support/process.h"

namespace ait {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}
Status Write(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  return file.flush() ? OkStatus() : DataLossError("cannot write ", path);
}

// clang-format off: as the page shows it
StatusOr<std::unique_ptr<DataParallel>> Make(const std::shared_ptr<Communicator>& communicator,
                                             const NamedTensors& parameters) {
  auto engine = ait::DataParallel::Create(communicator, parameters, {
      .compression = ait::Int8Compression({.scope = {.exact = {"embedding.*", "*.bias"}}})});
  return engine;
}

StatusOr<std::shared_ptr<GradientCompression>> BetweenHosts(Communicator& all, int host, int local_rank) {
  AIT_ASSIGN_OR_RETURN(const auto of_host, all.Split(host, all.rank().value()));
  AIT_ASSIGN_OR_RETURN(const auto across, all.Split(local_rank, all.rank().value()));
  return ait::CompressionBetweenHosts(
      {.compression = ait::PowerSgdCompression(), .host = of_host, .across = across});
}

Status SaveState(DataParallel& engine, int rank) {
  AIT_ASSIGN_OR_RETURN(const ait::CompressionState state, engine.SaveCompression());
  return Write(ait::StrCat("compression.", rank), state.ToBytes());
}

StatusOr<std::string> LoadState(DataParallel& engine, int old_world_size) {
  std::vector<ait::CompressionState> states;
  for (int old = 0; old < old_world_size; ++old) {
    AIT_ASSIGN_OR_RETURN(states.emplace_back(),
                         ait::CompressionState::FromBytes(Read(ait::StrCat("compression.", old))));
  }
  return engine.LoadCompression(states);   // what was lost, for the log; empty: nothing
}
// clang-format on

TEST(CompressionPage, ItsCodeIsThis) {
  testing::ExpectCodeIsCompiled(AIT_DOCS "/compression.md", AIT_SOURCE);
}

TEST(CompressionPage, ItsCodeCompressesBetweenHosts) {
  testing::RunRanks(4, [&](std::shared_ptr<Communicator> communicator) {
    const int rank = communicator->rank().value();
    auto compression = BetweenHosts(*communicator, rank / 2, rank % 2);
    ASSERT_OK(compression);
    const testing::TinyModel model(1);
    auto engine = testing::Engine(communicator, model.Parameters(), {.compression = *compression});
    const at::Tensor tokens = testing::Tokens(8, rank);
    EXPECT_OK(testing::Reduce(*engine, model.Loss(tokens, tokens)));
  });
}

TEST(CompressionPage, ItsCodeSavesAndLoads) {
  const testing::TempDir folder;
  const std::filesystem::path old_folder = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  for (const int ranks : {2, 3}) {
    testing::RunRanks(ranks, [&](std::shared_ptr<Communicator> communicator) {
      const testing::TinyModel model(1);
      auto engine = Make(communicator, model.Parameters());
      ASSERT_OK(engine);
      if (ranks == 3) {
        auto lost = LoadState(**engine, 2);
        ASSERT_OK(lost);
        EXPECT_EQ(*lost, "");
      }
      const at::Tensor tokens = testing::Tokens(8, 1);
      ASSERT_OK(testing::Reduce(**engine, model.Loss(tokens, tokens)));
      ASSERT_OK((*engine)->Discard());
      if (ranks == 3) return;
      ASSERT_OK(SaveState(**engine, communicator->rank().value()));
    });
  }
  std::filesystem::current_path(old_folder);
}

}  // namespace
}  // namespace ait
