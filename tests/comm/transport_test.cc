// SPDX-License-Identifier: Apache-2.0
// An engine of one's own: what a Communicator hands to it, and what never gets there.
#include "ait/comm/transport.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "ait/comm/communicator.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::ElementsAre;
using testing::IsOk;
using testing::StatusIs;

/// What a transport was asked for; outlives it.
struct Record {
  std::vector<Operation> operations;
  std::vector<Rank> members;
  std::vector<std::uint64_t> ids;
  Status aborted;
};

/// Rank 1 of 3. Its all-gather pretends that every rank gave what this one gives.
class RecordingTransport final : public Transport {
 public:
  explicit RecordingTransport(Record& record) : record_(record) {}
  std::string_view name() const override { return "recording"; }
  Rank rank() const override { return Rank(1); }
  WorldSize size() const override { return WorldSize(3); }
  Work Start(Operation operation) override {
    if (operation.kind == OperationKind::kAllGather) {
      for (int r = 0; r < 3; ++r) {
        const Buffer part =
            operation.output.Slice(r * operation.input.count, operation.input.count);
        std::copy_n(static_cast<const std::byte*>(operation.input.data), part.bytes().value(),
                    static_cast<std::byte*>(part.data));
      }
    }
    record_.operations.push_back(std::move(operation));
    return Work();
  }
  StatusOr<std::unique_ptr<Transport>> Subgroup(std::span<const Rank> members, std::uint64_t id,
                                                Deadline) override {
    record_.members.assign(members.begin(), members.end());
    record_.ids.push_back(id);
    return std::make_unique<RecordingTransport>(record_);
  }
  void Abort(const Status& reason) override { record_.aborted = reason; }

 private:
  Record& record_;
};

TEST(Transport, GetsCheckedOperationsWithNumberLabelAndDeadline) {
  Record record;
  Communicator communicator(std::make_unique<RecordingTransport>(record),
                            {.timeout = std::chrono::hours(1)});
  EXPECT_EQ(communicator.transport_name(), "recording");
  std::vector<float> x(6);
  std::vector<float> y(2);
  EXPECT_OK(communicator.AllReduce(View(x), ReduceOp::kMax, {.label = "norm"}).Wait());
  EXPECT_OK(communicator.Send(View(y), Rank(0), 8).Wait());
  EXPECT_OK(
      communicator
          .ReduceScatter(View(x), View(y), ReduceOp::kSum, {.timeout = std::chrono::seconds(10)})
          .Wait());
  ASSERT_EQ(record.operations.size(), 3u);

  const Operation& reduce = record.operations[0];
  EXPECT_EQ(reduce.Describe(), "all-reduce (max) of 6 float32, sequence 1, norm");
  EXPECT_EQ(reduce.input.data, x.data());
  EXPECT_EQ(reduce.output.data, x.data());
  EXPECT_GT(reduce.deadline.remaining(), std::chrono::minutes(50));

  EXPECT_EQ(record.operations[1].sequence, 0u) << "messages have no place in the order";
  EXPECT_EQ(record.operations[1].peer, Rank(0));
  EXPECT_EQ(record.operations[1].tag, 8u);

  const Operation& scatter = record.operations[2];
  EXPECT_EQ(scatter.sequence, 2u);
  EXPECT_THAT(scatter.counts, ElementsAre(2, 2, 2));
  EXPECT_EQ(scatter.output.data, y.data());
  EXPECT_LE(scatter.deadline.remaining(), std::chrono::seconds(10));
}

TEST(Transport, NeverSeesWhatIsRefusedButTheNumberIsTaken) {
  Record record;
  Communicator communicator(std::make_unique<RecordingTransport>(record));
  std::vector<int> x(6);
  EXPECT_THAT(communicator.AllReduce(View(x), ReduceOp::kAverage).Wait(),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_TRUE(record.operations.empty());
  EXPECT_OK(communicator.Barrier().Wait());
  EXPECT_EQ(record.operations.at(0).sequence, 2u);
}

TEST(Transport, BuffersOfOtherRanksRootsAreNotHandedOver) {
  Record record;
  Communicator communicator(std::make_unique<RecordingTransport>(record));
  std::vector<int> x(6);
  std::vector<int> y(2);
  EXPECT_OK(communicator.Gather(View(y), View(x), Rank(0)).Wait());
  EXPECT_OK(communicator.Scatter(View(x), View(y), Rank(0)).Wait());
  EXPECT_EQ(record.operations.at(0).output.data, nullptr);
  EXPECT_EQ(record.operations.at(1).input.data, nullptr);
}

TEST(Transport, MakesSubgroupsWithIdsOfTheirOwn) {
  Record record;
  Communicator communicator(std::make_unique<RecordingTransport>(record));
  ASSERT_OK(communicator.Split(4, 0));
  EXPECT_THAT(record.members, ElementsAre(Rank(0), Rank(1), Rank(2)));
  ASSERT_OK(communicator.Split(4, 0));
  ASSERT_EQ(record.ids.size(), 2u);
  EXPECT_NE(record.ids[0], record.ids[1]);
}

TEST(Transport, IsToldOfAnAbort) {
  Record record;
  Communicator communicator(std::make_unique<RecordingTransport>(record));
  communicator.Abort(DataLossError("a flipped bit"));
  EXPECT_THAT(record.aborted, StatusIs(StatusCode::kDataLoss, "a flipped bit"));
}

}  // namespace
}  // namespace ait
