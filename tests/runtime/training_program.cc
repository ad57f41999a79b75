// SPDX-License-Identifier: Apache-2.0
// Trains the toy model on two ranks until Ctrl-C, then saves:
//   training_program DIRECTORY [save]      with "save" it saves after every step, too
#include <atomic>
#include <csignal>
#include <cstdio>
#include <string_view>

#include "ait/optim/sgd.h"
#include "ait/runtime/trainer.h"
#include "runtime/toy_model.h"

namespace {

std::atomic<ait::Trainer*> trainer_of_rank_zero = nullptr;

ait::Status Train(ait::testing::ToyRank& rank, const char* directory, bool saves_often) {
  ait::TrainerOptions options;
  options.directory = directory;
  ait::Trainer trainer(*rank.engine, ait::Sgd{}, options);
  if (rank.rank() == 0) {
    trainer_of_rank_zero = &trainer;
    std::signal(SIGINT, [](int) { trainer_of_rank_zero.load()->RequestStop(); });
  }
  while (!trainer.done()) {
    const auto step =
        trainer.Step(ait::testing::MakeBatch(rank.rank(), 5),
                     [&](const ait::testing::ToyBatch& batch) { return rank.model.Loss(batch); });
    AIT_RETURN_IF_ERROR(step.status());
    if (saves_often) AIT_RETURN_IF_ERROR(trainer.Save());
    if (rank.rank() == 0 && trainer.step() <= 10) {
      std::printf("step %d\n", static_cast<int>(trainer.step()));
      std::fflush(stdout);
    }
  }
  if (rank.rank() == 0) std::signal(SIGINT, SIG_IGN);
  AIT_RETURN_IF_ERROR(trainer.Save());
  if (rank.rank() == 0) std::printf("saved after step %d\n", static_cast<int>(trainer.step()));
  return ait::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::atomic<int> failures = 0;
  const bool saves_often = argc > 2 && std::string_view(argv[2]) == "save";
  ait::testing::RunRanks(2, [&](ait::testing::ToyRank& rank) {
    if (const ait::Status status = Train(rank, argv[1], saves_often); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      ++failures;
    }
  });
  return failures.load();
}
