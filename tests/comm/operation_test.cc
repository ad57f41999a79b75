// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/operation.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace ait {
namespace {

Operation AllReduceOf(std::int64_t count) {
  Operation operation;
  operation.kind = OperationKind::kAllReduce;
  operation.output = {nullptr, count, DType::kFloat32};
  operation.sequence = 7;
  return operation;
}

TEST(Operation, SignatureTellsEveryFieldApartThatRanksMustAgreeOn) {
  std::vector<Operation> operations(6, AllReduceOf(1024));
  operations[1].kind = OperationKind::kBroadcast;
  operations[2].reduce = ReduceOp::kMax;
  operations[3].dtype = DType::kInt32;
  operations[4].output.count = 1025;
  operations[5].sequence = 8;

  Operation rooted = operations[1];
  for (int root = 1; root < 8; ++root) {
    rooted.peer = Rank(root);
    operations.push_back(rooted);
  }
  Operation parts;
  for (const OperationKind kind : {OperationKind::kReduceScatter, OperationKind::kAllGather,
                                   OperationKind::kGather, OperationKind::kScatter}) {
    parts.kind = kind;
    for (const std::vector<std::int64_t>& counts :
         {std::vector<std::int64_t>{1, 2}, {2, 1}, {3, 0}, {0, 3}, {1, 2, 0}}) {
      parts.counts = counts;
      operations.push_back(parts);
    }
  }
  std::set<std::uint64_t> signatures;
  for (const Operation& operation : operations) signatures.insert(operation.Signature());
  EXPECT_EQ(signatures.size(), operations.size());
}

TEST(Operation, SignatureIgnoresWhatMayDiffer) {
  const Operation one = AllReduceOf(1024);
  Operation other = one;
  float memory[1] = {};
  other.output.data = memory;
  other.label = "bucket 3";
  other.deadline = Deadline::After(std::chrono::seconds(1));
  other.peer = Rank(3);  // an all-reduce has no root
  EXPECT_EQ(one.Signature(), other.Signature());
}

TEST(Operation, ASendAndItsReceiveAgree) {
  Operation send;
  send.kind = OperationKind::kSend;
  send.input = {nullptr, 5, DType::kFloat32};
  send.peer = Rank(1);
  Operation receive;
  receive.kind = OperationKind::kReceive;
  receive.output = {nullptr, 5, DType::kFloat32};
  receive.peer = Rank(0);
  EXPECT_EQ(send.Signature(), receive.Signature());
  receive.output.count = 6;
  EXPECT_NE(send.Signature(), receive.Signature());
  EXPECT_EQ(send.Describe(), "send of 5 float32 to rank 1, tag 0");
  EXPECT_EQ(receive.Describe(), "receive of 6 float32 from rank 0, tag 0");
}

TEST(Operation, DescribesItselfForPeople) {
  Operation operation = AllReduceOf(1024);
  operation.label = "bucket 3";
  EXPECT_EQ(operation.Describe(), "all-reduce (sum) of 1024 float32, sequence 7, bucket 3");
  operation = {};
  EXPECT_EQ(operation.Describe(), "barrier, sequence 0");
  operation.kind = OperationKind::kGather;
  operation.counts = {3, 0, 4};
  operation.dtype = DType::kBFloat16;
  operation.peer = Rank(2);
  EXPECT_EQ(operation.Describe(), "gather of [3, 0, 4] bfloat16, root 2, sequence 0");
  operation.counts = {3, 3};
  EXPECT_EQ(operation.Describe(), "gather of 2 x 3 bfloat16, root 2, sequence 0");
  operation.counts.assign(100, 1);
  operation.counts[0] = 0;
  EXPECT_LT(operation.Describe().size(), 120u) << operation.Describe();
}

TEST(Operation, EveryKindAndReductionHasAName) {
  std::set<std::string_view> names;
  for (int kind = 1; kind <= 10; ++kind) names.insert(Name(static_cast<OperationKind>(kind)));
  for (int reduce = 0; reduce < 5; ++reduce) names.insert(Name(static_cast<ReduceOp>(reduce)));
  EXPECT_EQ(names.size(), 15u);
}

}  // namespace
}  // namespace ait
