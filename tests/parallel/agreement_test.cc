// SPDX-License-Identifier: Apache-2.0
// The start-up check of DataParallel: models that differ between ranks.
#include <functional>

#include "ait/parallel/data_parallel.h"
#include "parallel/tiny_model.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Leaf;
using ::ait::testing::RunRanks;
using ::ait::testing::StatusIs;
using ::ait::testing::Values;
using ::testing::HasSubstr;

using Model = std::vector<std::pair<std::string, at::Tensor>>;

// Makes an engine on three ranks; rank 1 and 2 change the model first. All ranks must fail alike.
void ExpectDisagreement(const std::function<void(Model&, DataParallelOptions&)>& change,
                        const std::vector<std::string>& texts) {
  RunRanks(3, [&](std::shared_ptr<Communicator> communicator) {
    Model model = {{"first", Leaf({4, 3}, 1)}, {"second", Leaf({5}, 2)}, {"third", Leaf({2}, 3)}};
    DataParallelOptions options;
    if (communicator->rank() != Rank(0)) change(model, options);
    NamedTensors list;
    for (const auto& [name, tensor] : model) list.Add(name, tensor);
    const Status status = DataParallel::Create(communicator, list, options).status();
    for (const std::string& text : texts) {
      EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)));
    }
    EXPECT_THAT(Message(status), HasSubstr("ranks 1, 2"));
  });
}

TEST(Agreement, NamesTheParameterThatDiffersAndTheRanks) {
  ExpectDisagreement([](Model& m, auto&) { m[1].second = Leaf({6}, 2); },
                     {"rank 0 has parameter second: float32 [5] strides [1] on cpu",
                      "ranks 1, 2 have parameter second: float32 [6] strides [1] on cpu"});
  ExpectDisagreement([](Model& m, auto&) { m[1].first = "other"; },
                     {"rank 0 has parameter second", "have parameter other"});
  ExpectDisagreement(
      [](Model& m, auto&) { m[0].second = Values({3, 4}, 1).t().set_requires_grad(true); },
      {"strides [3, 1]", "strides [1, 4]"});
  ExpectDisagreement(
      [](Model& m, auto&) { m[2].second = Values({2}, 1).to(at::kDouble).set_requires_grad(true); },
      {"third: float32", "third: float64"});
  ExpectDisagreement([](Model& m, auto&) { m[0].second.set_requires_grad(false); },
                     {"have parameter first: float32 [4, 3] strides [3, 1] on cpu, frozen"});
  ExpectDisagreement([](Model& m, auto&) { m.pop_back(); },
                     {"rank 0 has parameter third", "have nothing"});
  ExpectDisagreement([](Model& m, auto&) { m.emplace_back("head", m[0].second); },
                     {"rank 0 has nothing", "parameter head", "tied to parameter 0"});
  ExpectDisagreement([](Model& m, auto&) { std::swap(m[0], m[2]); },
                     {"rank 0 has parameter first", "have parameter third"});
}

TEST(Agreement, NamesTheOptionThatDiffers) {
  ExpectDisagreement([](auto&, DataParallelOptions& o) { o.bucket_cap = MiB(5); },
                     {"bucket_cap 26214400", "bucket_cap 5242880"});
  ExpectDisagreement([](auto&, DataParallelOptions& o) { o.must_agree = "layers 12"; },
                     {"must_agree \"\"", "must_agree \"layers 12\""});
  ExpectDisagreement([](auto&, DataParallelOptions& o) { o.buffers.Add("mean", Values({3}, 1)); },
                     {"rank 0 has nothing", "have buffer mean: Float [3]"});
}

TEST(Agreement, PassesOnWhatOneRankCannotDo) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    NamedTensors list;
    list.Add("a", Leaf({2}, 1));
    if (communicator->rank() == Rank(1)) list.Add("a", Leaf({2}, 1));
    EXPECT_THAT(DataParallel::Create(communicator, list),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("the same name a")));
  });
}

TEST(Agreement, ShowsTheFirstDifferencesOfMany) {
  RunRanks(2, [](std::shared_ptr<Communicator> communicator) {
    NamedTensors list;
    for (int i = 0; i < 9; ++i) {
      list.Add(StrCat("p", i), Leaf({2 + communicator->rank().value()}, 1));
    }
    const Status status = DataParallel::Create(communicator, list).status();
    EXPECT_THAT(status,
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("and 6 more differences")));
    EXPECT_THAT(Message(status), HasSubstr("rank 1 has parameter p2"));
  });
}

}  // namespace
}  // namespace ait
