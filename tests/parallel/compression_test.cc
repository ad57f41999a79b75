// SPDX-License-Identifier: Apache-2.0
// The promises of gradient compression, method by method and for several numbers of ranks.
#include "ait/parallel/compression.h"

#include <bit>
#include <cmath>
#include <limits>
#include <mutex>

#include "ait/base/float16.h"
#include "parallel/compressed_ranks.h"

namespace ait {
namespace {

using ::ait::testing::CompressedRank;
using ::ait::testing::ExactSums;
using ::ait::testing::Gradients;
using ::ait::testing::MakeCompression;
using ::ait::testing::RandomGradients;
using ::ait::testing::RunCompressed;
using ::ait::testing::SomeParameters;
using ::ait::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Method {
  std::string name;
  MakeCompression make;
  double max_error;  // of one step without residual: its norm over those of the gradients
  double min_ratio;  // at two ranks
  bool feedback;     // has residuals
  bool any_buckets;  // same bits for any bucket size
};

const CompressionScope kMatrices = {.min_elements = 1000};

std::vector<Method> Methods() {
  return {
      {"bf16", [] { return Bf16Compression(); }, 0.01, 1.9, false, true},
      {"int8", [] { return Int8Compression({.scope = kMatrices}); }, 0.02, 3, true, false},
      {"int8_plain",
       [] {
         return Int8Compression(
             {.block = 64, .error_feedback = ErrorFeedback::kOff, .scope = kMatrices});
       },
       0.02, 3, false, true},
      {"topk", [] { return TopKCompression({.ratio = 0.1, .scope = kMatrices}); }, 0.95, 2, true,
       true},
      {"topk_few", [] { return TopKCompression({.ratio = 1e-9, .scope = kMatrices}); }, 1.01, 9,
       true, true},
      {"powersgd", [] { return PowerSgdCompression({.rank = 2, .start_step = 0}); }, 1.01, 3, true,
       true},
      {"powersgd_plain",
       [] {
         return PowerSgdCompression(
             {.rank = 8, .start_step = 0, .error_feedback = ErrorFeedback::kOff});
       },
       1.01, 1.2, false, true},
  };
}

class EveryMethod : public ::testing::TestWithParam<std::tuple<Method, int>> {
 protected:
  const Method& method() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }

  // What every rank got, by rank; `main` returns it.
  std::vector<Gradients> Collect(const std::function<Gradients(CompressedRank&)>& main,
                                 Bytes bucket = KiB(8)) {
    std::vector<Gradients> of_rank(static_cast<std::size_t>(ranks()));
    RunCompressed(
        ranks(), method().make,
        [&](CompressedRank& rank) { of_rank[static_cast<std::size_t>(rank.rank())] = main(rank); },
        bucket);
    return of_rank;
  }
};

// Bit for bit; NaN equals itself.
void ExpectSameBits(const Gradients& a, const Gradients& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) {
    const std::vector<float>& others = b.at(name);
    ASSERT_EQ(values.size(), others.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(others[i]))
          << name << " " << i;
    }
  }
}

Gradients OfRank(int rank, int step = 0) {
  return RandomGradients(SomeParameters(), 100 * step + rank);
}

TEST_P(EveryMethod, GivesAllRanksTheSameBitsStepAfterStep) {
  const auto of_rank = Collect([](CompressedRank& rank) {
    Gradients last;
    for (int step = 0; step < 4; ++step) {
      auto sums = rank.Step(OfRank(rank.rank(), step));
      EXPECT_OK(sums);
      if (sums.ok()) last = *sums;
    }
    return last;
  });
  for (const Gradients& other : of_rank) ExpectSameBits(of_rank[0], other);
}

TEST_P(EveryMethod, IsWithinItsBoundOfTheExactSum) {
  std::vector<Gradients> given;
  for (int r = 0; r < ranks(); ++r) given.push_back(OfRank(r));
  const auto exact = ExactSums(given);
  Collect([&](CompressedRank& rank) {
    auto sums = rank.Step(OfRank(rank.rank()));
    EXPECT_OK(sums);
    for (const auto& [name, values] : *sums) {
      double error = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        error += std::pow(double{values[i]} - exact.at(name)[i], 2);
      }
      double norms = 0;  // of what the ranks gave
      for (const Gradients& gradients : given) {
        double squares = 0;
        for (const float value : gradients.at(name)) squares += double{value} * double{value};
        norms += std::sqrt(squares);
      }
      EXPECT_LE(std::sqrt(error), (ranks() == 1 ? 0 : method().max_error) * norms) << name;
    }
    return *sums;
  });
}

TEST_P(EveryMethod, GivesExactParametersTheBitsOfAnAllReduce) {
  if (method().name == "bf16") return;  // everything is in its scope
  Collect([](CompressedRank& rank) {
    const Gradients given = OfRank(rank.rank());
    auto sums = rank.Step(given);
    EXPECT_OK(sums);
    Gradients exact = {{"up.bias", given.at("up.bias")}, {"scale", given.at("scale")}};
    Gradients got;
    for (auto& [name, values] : exact) {
      EXPECT_OK(rank.communicator().AllReduce(View(values), ReduceOp::kSum).Wait());
      got[name] = sums->at(name);
    }
    ExpectSameBits(got, exact);
    return *sums;
  });
}

TEST_P(EveryMethod, KeepsWhatItDidNotSend) {
  if (!method().feedback || ranks() == 1) return;
  constexpr int kSteps = 7;
  std::mutex mutex;
  std::map<std::string, std::vector<double>> given, residuals, got;
  const auto add = [](auto& to, const std::string& name, const std::vector<float>& values) {
    to[name].resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) to[name][i] += double{values[i]};
  };
  Collect([&](CompressedRank& rank) {
    for (int step = 0; step < kSteps; ++step) {
      const Gradients mine = OfRank(rank.rank(), step);
      auto sums = rank.Step(mine);
      EXPECT_OK(sums);
      std::lock_guard lock(mutex);
      for (const auto& [name, values] : mine) add(given, name, values);
      if (rank.rank() != 0) continue;
      for (const auto& [name, values] : *sums) add(got, name, values);
    }
    std::lock_guard lock(mutex);
    for (const CompressionEntry& entry : rank.compression().Save().entries) {
      if (entry.kind == "residual") add(residuals, entry.parameter, entry.values);
    }
    return Gradients();
  });
  EXPECT_THAT(residuals, ::testing::Contains(::testing::Key("up.weight")));
  for (const auto& [name, values] : given) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double residual = residuals.contains(name) ? residuals.at(name)[i] : 0;
      ASSERT_NEAR(got.at(name)[i] + residual, values[i], 2e-4) << name << " " << i;
    }
  }
}

// The same gradient again and again: the mean of what comes out becomes that gradient.
TEST_P(EveryMethod, BecomesExactOnAverage) {
  if (!method().feedback || method().name == "topk_few" || ranks() == 1) return;
  constexpr int kSteps = 60;
  std::vector<Gradients> given;
  for (int r = 0; r < ranks(); ++r) given.push_back(OfRank(r));
  const auto exact = ExactSums(given);
  Collect([&](CompressedRank& rank) {
    std::map<std::string, std::vector<double>> mean;
    for (int step = 0; step < kSteps; ++step) {
      auto sums = rank.Step(OfRank(rank.rank()));
      EXPECT_OK(sums);
      for (const auto& [name, values] : *sums) {
        mean[name].resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) mean[name][i] += values[i] / kSteps;
      }
    }
    for (const auto& [name, values] : mean) {
      double error = 0;
      double norm = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        error += std::pow(values[i] - exact.at(name)[i], 2);
        norm += std::pow(exact.at(name)[i], 2);
      }
      EXPECT_LE(std::sqrt(error / norm), 0.35) << name;
    }
    return Gradients();
  });
}

TEST_P(EveryMethod, GivesTheSameBitsForAnyBucketSizeWhereItSaysSo) {
  if (!method().any_buckets) return;
  const auto main = [](CompressedRank& rank) {
    Gradients last;
    for (int step = 0; step < 3; ++step) last = rank.Step(OfRank(rank.rank(), step)).value();
    return last;
  };
  const Gradients small = Collect(main, Bytes(64))[0];
  ExpectSameBits(small, Collect(main, KiB(9))[0]);
  ExpectSameBits(small, Collect(main, MiB(1))[0]);
}

TEST_P(EveryMethod, ShowsAllRanksWhatIsNotFiniteAndForgetsTheStep) {
  if (ranks() == 1) return;
  const auto with_bad_step = [](float bad) {
    return [bad](CompressedRank& rank) {
      EXPECT_OK(rank.Step(OfRank(rank.rank())));
      if (bad != 0) {
        Gradients gradients = OfRank(rank.rank(), 1);
        if (rank.rank() == rank.size() - 1) gradients.at("up.weight")[77] = bad;
        auto sums = rank.Reduce(gradients);
        EXPECT_OK(sums);
        bool is_finite = true;
        for (const float value : sums->at("up.weight")) {
          is_finite = is_finite && std::isfinite(value);
        }
        EXPECT_FALSE(is_finite) << "rank " << rank.rank();
        for (const float value : sums->at("filter")) EXPECT_TRUE(std::isfinite(value));
        rank.compression().EndStep(GradientCompression::StepEnd::kDiscarded);
      }
      auto sums = rank.Step(OfRank(rank.rank(), 2));
      EXPECT_OK(sums);
      return *sums;
    };
  };
  const Gradients without = Collect(with_bad_step(0))[0];
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    ExpectSameBits(Collect(with_bad_step(bad))[0], without);
  }
}

TEST_P(EveryMethod, SendsFewerBytesAndSaysHowMany) {
  if (ranks() != 2) return;
  Collect(
      [&](CompressedRank& rank) {
        auto sums = rank.Step(OfRank(rank.rank()));
        EXPECT_OK(sums);
        std::int64_t exact = 0;
        for (const FlatBucket& bucket : rank.layout().buckets()) exact += 4 * bucket.count;
        rank.counters.exact_sent_bytes = exact;  // the engine's part: 2 (N-1)/N is 1
        EXPECT_GE(rank.counters.ratio(), method().min_ratio);
        EXPECT_GT(rank.counters.relative_error(), 0);
        EXPECT_LE(rank.counters.relative_error(), method().max_error);
        EXPECT_GT(rank.counters.collectives, 0);
        return *sums;
      },
      KiB(64));
}

TEST_P(EveryMethod, GoesOnFromItsStateAsIfNothingHadHappened) {
  std::vector<std::string> saved(static_cast<std::size_t>(ranks()));
  const auto straight = Collect([&](CompressedRank& rank) {
    for (int step = 0; step < 3; ++step) EXPECT_OK(rank.Step(OfRank(rank.rank(), step)));
    saved[static_cast<std::size_t>(rank.rank())] = rank.compression().Save().ToBytes();
    EXPECT_OK(rank.Step(OfRank(rank.rank(), 3)));
    return rank.Step(OfRank(rank.rank(), 4)).value();
  });
  const auto resumed = Collect([&](CompressedRank& rank) {
    auto state = CompressionState::FromBytes(saved[static_cast<std::size_t>(rank.rank())]);
    EXPECT_OK(state);
    auto lost = rank.compression().Load({&*state, 1});
    EXPECT_OK(lost);
    EXPECT_THAT(*lost, IsEmpty());
    EXPECT_EQ(rank.compression().Save(), *state);
    EXPECT_OK(rank.Step(OfRank(rank.rank(), 3)));
    return rank.Step(OfRank(rank.rank(), 4)).value();
  });
  ExpectSameBits(straight[0], resumed[0]);
}

INSTANTIATE_TEST_SUITE_P(Compression, EveryMethod,
                         ::testing::Combine(::testing::ValuesIn(Methods()),
                                            ::testing::Values(1, 2, 3, 4)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" +
                                  std::to_string(std::get<1>(test.param));
                         });

// What only some methods promise.

TEST(Bf16Compression, IsTheSumInFp32RoundedOnce) {
  RunCompressed(
      3, [] { return Bf16Compression(); },
      [](CompressedRank& rank) {
        auto sums = rank.Step(OfRank(rank.rank()));
        ASSERT_OK(sums);
        for (const auto& [name, values] : *sums) {
          for (std::size_t i = 0; i < values.size(); ++i) {
            float sum = 0;
            for (int r = 0; r < 3; ++r) {
              const float rounded = static_cast<float>(BFloat16(OfRank(r).at(name)[i]));
              sum = r == 0 ? rounded : sum + rounded;
            }
            ASSERT_EQ(values[i], static_cast<float>(BFloat16(sum))) << name << " " << i;
          }
        }
      });
}

TEST(TopKCompression, SumsExactlyWhereThatSendsLess) {
  RunCompressed(
      4, [] { return TopKCompression({.ratio = 0.25, .scope = {.min_elements = 0}}); },
      [](CompressedRank& rank) {
        Gradients exact = OfRank(rank.rank());
        auto sums = rank.Step(exact);
        ASSERT_OK(sums);
        for (auto& [name, values] : exact) {
          ASSERT_OK(rank.communicator().AllReduce(View(values), ReduceOp::kSum).Wait());
        }
        ExpectSameBits(*sums, exact);
      });
}

TEST(TopKCompression, WarmsUp) {
  RunCompressed(
      2,
      [] {
        return TopKCompression(
            {.ratio = 0.001, .warmup_steps = 2, .scope = {.min_elements = 1000}});
      },
      [](CompressedRank& rank) {
        std::vector<std::int64_t> chosen;
        for (int step = 0; step < 4; ++step) {
          auto sums = rank.Step(OfRank(0));  // the same on both: they choose the same
          ASSERT_OK(sums);
          chosen.push_back(
              std::ranges::count_if(sums->at("up.weight"), [](float value) { return value != 0; }));
        }
        EXPECT_EQ(chosen, (std::vector<std::int64_t>{240, 24, 3, 3}));
      });
}

TEST(PowerSgdCompression, IsExactForMatricesOfLowRankFromTheSecondStepOn) {
  RunCompressed(
      2, [] { return PowerSgdCompression({.rank = 2, .start_step = 0}); },
      [](CompressedRank& rank) {
        Gradients gradients = OfRank(rank.rank());
        std::vector<float>& matrix = gradients.at("up.weight");
        for (std::size_t i = 0; i < matrix.size(); ++i) {
          const auto row = static_cast<float>(i / 60), column = static_cast<float>(i % 60);
          matrix[i] = (row - 9) * (column - 31) / 100 + (rank.rank() == 0 ? row : 0);
        }
        auto sums = rank.Step(gradients);
        ASSERT_OK(sums);
        for (std::size_t i = 0; i < matrix.size(); ++i) {
          const auto row = static_cast<float>(i / 60), column = static_cast<float>(i % 60);
          ASSERT_NEAR(sums->at("up.weight")[i], 2 * (row - 9) * (column - 31) / 100 + row, 1e-3);
        }
      });
}

TEST(PowerSgdCompression, BearsMatricesOfZerosAndThenOthers) {
  RunCompressed(
      2, [] { return PowerSgdCompression({.rank = 4, .start_step = 0}); },
      [](CompressedRank& rank) {
        Gradients gradients = OfRank(rank.rank());
        std::ranges::fill(gradients.at("up.weight"), 0.0f);
        for (int step = 0; step < 2; ++step) {
          auto sums = rank.Step(gradients);
          ASSERT_OK(sums);
          EXPECT_EQ(sums->at("up.weight"), gradients.at("up.weight"));
        }
        std::ranges::fill(gradients.at("up.weight"), 0.5f);  // of rank one
        auto sums = rank.Step(gradients);
        ASSERT_OK(sums);
        for (const float value : sums->at("up.weight")) ASSERT_NEAR(value, 1, 1e-4);
      });
}

TEST(PowerSgdCompression, BeginsWithExactSteps) {
  RunCompressed(
      2, [] { return PowerSgdCompression({.rank = 1, .start_step = 2}); },
      [](CompressedRank& rank) {
        for (int step = 0; step < 3; ++step) {
          Gradients exact = OfRank(rank.rank(), step);
          auto sums = rank.Step(exact);
          ASSERT_OK(sums);
          for (auto& [name, values] : exact) {
            ASSERT_OK(rank.communicator().AllReduce(View(values), ReduceOp::kSum).Wait());
          }
          if (step < 2) {
            ExpectSameBits(*sums, exact);
          } else {
            EXPECT_NE(sums->at("up.weight"), exact.at("up.weight"));
          }
        }
      });
}

// States of all old ranks, and what is kept of them on a new number of ranks.
std::vector<CompressionState> StatesOf(int ranks) {
  std::vector<CompressionState> states(static_cast<std::size_t>(ranks));
  RunCompressed(ranks, Methods()[1].make, [&](CompressedRank& rank) {
    ASSERT_OK(rank.Step(OfRank(rank.rank())));
    states[static_cast<std::size_t>(rank.rank())] = rank.compression().Save();
  });
  return states;
}

double Total(const std::vector<CompressionState>& states) {
  double total = 0;
  for (const CompressionState& state : states) {
    for (const CompressionEntry& entry : state.entries) {
      for (const float value : entry.values) total += double{value};
    }
  }
  return total;
}

TEST(CompressionLoad, KeepsTheTotalOfAllResidualsOnAnyNumberOfRanks) {
  for (const int old_ranks : {2, 3, 4}) {
    const std::vector<CompressionState> states = StatesOf(old_ranks);
    EXPECT_NE(Total(states), 0);
    for (const int new_ranks : {2, 3, 4}) {
      std::vector<CompressionState> after(static_cast<std::size_t>(new_ranks));
      RunCompressed(new_ranks, Methods()[1].make, [&](CompressedRank& rank) {
        auto lost = rank.compression().Load(states);
        ASSERT_OK(lost);
        EXPECT_THAT(*lost, IsEmpty());
        after[static_cast<std::size_t>(rank.rank())] = rank.compression().Save();
      });
      EXPECT_NEAR(Total(after), Total(states), 1e-5) << old_ranks << " to " << new_ranks;
    }
  }
}

TEST(CompressionLoad, SaysWhichResidualsBeginAtZero) {
  const std::vector<CompressionState> states = StatesOf(4);
  RunCompressed(2, Methods()[1].make, [&](CompressedRank& rank) {
    const std::vector<CompressionState> some = {states[0], states[1], states[2]};
    auto lost = rank.compression().Load(some);
    ASSERT_OK(lost);
    if (rank.rank() == 0) {
      EXPECT_THAT(*lost, IsEmpty()) << "it needs 0 and 2";
    } else {
      EXPECT_THAT(*lost, HasSubstr("residuals of rank 1 of 2 begin at zero: they are those of "
                                   "rank 3 of 4"));
      EXPECT_THAT(rank.compression().Save().entries, IsEmpty());
    }
  });
}

TEST(CompressionLoad, RefusesWhatIsNotItsOwn) {
  const std::vector<CompressionState> states = StatesOf(2);
  RunCompressed(
      2, [] { return TopKCompression(); },
      [&](CompressedRank& rank) {
        EXPECT_THAT(rank.compression().Load(states),
                    StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"int8\"")));
        EXPECT_THAT(rank.compression().Load({}), StatusIs(StatusCode::kInvalidArgument));
        CompressionState one = states[0], other = states[1];
        one.method = other.method = "topk";
        other.step = 7;
        const std::vector<CompressionState> mixed = {one, other};
        EXPECT_THAT(rank.compression().Load(mixed),
                    StatusIs(StatusCode::kInvalidArgument, HasSubstr("not of one step")));
      });
}

TEST(CompressionLoad, NamesParametersThatDoNotFit) {
  std::vector<CompressionState> states = StatesOf(2);
  for (CompressionState& state : states) {
    state.entries[0].parameter = "gone";
    state.entries[1].values.pop_back();
  }
  const std::string shrunk = states[0].entries[1].parameter;
  RunCompressed(2, Methods()[1].make, [&](CompressedRank& rank) {
    auto lost = rank.compression().Load(states);
    ASSERT_OK(lost);
    EXPECT_THAT(*lost, HasSubstr("another size begin at zero: " + shrunk));
    EXPECT_THAT(*lost, HasSubstr("not compressed here: gone"));
  });
}

Status BindAlone(const std::shared_ptr<GradientCompression>& compression) {
  const auto layout = FlatLayout::Create(SomeParameters(), {.world_size = WorldSize(2)});
  return compression->Bind(*layout, Rank(0), WorldSize(2));
}

TEST(CompressionOptions, AreChecked) {
  const auto refused = [](const std::shared_ptr<GradientCompression>& compression,
                          const char* text) {
    EXPECT_THAT(BindAlone(compression), StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refused(Int8Compression({.block = 100}), "a block of 100");
  refused(Int8Compression({.block = 0}), "a block of 0");
  refused(TopKCompression({.ratio = 0}), "a ratio of 0");
  refused(TopKCompression({.ratio = std::nan("")}), "a ratio of nan");
  refused(TopKCompression({.warmup_steps = -1}), "warmup_steps is -1");
  refused(PowerSgdCompression({.rank = 65}), "a rank of 65");
  refused(PowerSgdCompression({.min_ratio = 0.5}), "min_ratio is 0.5");
  refused(PowerSgdCompression({.start_step = -2}), "start_step is -2");
  refused(Bf16Compression({.scope = {.exact = {"*.nothing"}}}), "\"*.nothing\"");
  refused(Bf16Compression({.scope = {.min_elements = -1}}), "min_elements is -1");
}

TEST(CompressionScope, TakesPatternsPredicatesAndSizes) {
  const auto compressed = [](CompressionScope scope) {
    const auto compression = Bf16Compression({.scope = std::move(scope)});
    EXPECT_OK(BindAlone(compression));
    const std::string text = compression->Describe();
    const std::size_t end = text.rfind(" elements in scope");
    const std::size_t begin = text.rfind(' ', end - 1) + 1;
    return std::stoll(text.substr(begin, end - begin));
  };
  const std::int64_t all = 40 * 60 + 40 + 1 + 1037 + 24 * 8 * 9;
  EXPECT_EQ(compressed({.min_elements = 0}), all);
  EXPECT_EQ(compressed({.exact = {"up.*"}, .min_elements = 0}), all - 2440);
  EXPECT_EQ(compressed({.is_exact = [](const ParameterInfo& p) { return p.sizes.size() == 4; },
                        .min_elements = 41}),
            40 * 60 + 1037);
}

TEST(CompressionNamed, KnowsTheNamesOfTheCommandLine) {
  const auto text = [](std::string_view name) {
    auto compression = CompressionNamed(name);
    EXPECT_OK(compression);
    return compression.ok() && *compression ? (*compression)->Describe() : std::string("null");
  };
  EXPECT_EQ(text("none"), "null");
  EXPECT_THAT(text("bf16"), HasSubstr("bf16"));
  EXPECT_THAT(text("int8"), HasSubstr("block 256"));
  EXPECT_THAT(text("int8:128"), HasSubstr("block 128"));
  EXPECT_THAT(text("topk:0.05"), HasSubstr("ratio 0.05"));
  EXPECT_THAT(text("powersgd:8"), HasSubstr("rank 8"));
  for (const char* wrong : {"", "zip", "bf16:2", "none:1", "int8:", "int8:many", "int8:1.5",
                            "powersgd:1e30", "topk:0.1x"}) {
    EXPECT_THAT(CompressionNamed(wrong),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("powersgd[:RANK]")))
        << wrong;
  }
}

}  // namespace
}  // namespace ait
