// SPDX-License-Identifier: Apache-2.0
// ait's communicator as a backend of c10d, against libtorch's own Gloo and against arithmetic.
#include "ait/tensor/c10d.h"

#include "tensor/c10d_support.h"
// Keep the order: libtorch's macros come before those of GoogleTest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <atomic>
#include <numeric>

#include <torch/csrc/distributed/c10d/Functional.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "ait/comm/flight_recorder.h"
#include "support/document.h"

namespace ait {
namespace {

using ::ait::testing::GroupWith;
using ::ait::testing::OnThreads;
using ::ait::testing::RealGloo;
using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;
using Calls = std::function<Tensors(c10d::Backend& backend)>;

/// Small whole numbers: sums of them are exact in any order.
at::Tensor Given(at::IntArrayRef sizes, int rank, at::ScalarType type = at::kFloat) {
  const at::Tensor x = at::arange(c10::multiply_integers(sizes), at::kLong);
  return x.mul(7).add(5 * rank).remainder(13).view(sizes).to(type);
}

Tensors Empty(int count, at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  Tensors tensors;
  for (int i = 0; i < count; ++i) tensors.push_back(at::full(sizes, -1, type));
  return tensors;
}

/// What every rank gets of `calls`, over ait's threads.
std::vector<Tensors> OverThreads(int ranks, const Calls& calls) {
  const auto group = MakeThreadGroup(WorldSize(ranks), {.timeout = std::chrono::seconds(30)});
  std::vector<Tensors> results(static_cast<std::size_t>(ranks));
  EXPECT_EQ(OnThreads(ranks,
                      [&](int rank) {
                        const auto r = static_cast<std::size_t>(rank);
                        const C10dBackendPtr backend = ToBackend(group[r]);
                        results[r] = calls(*backend);
                      }),
            "");
  return results;
}

std::vector<Tensors> OverGloo(int ranks, const Calls& calls) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<Tensors> results(static_cast<std::size_t>(ranks));
  EXPECT_EQ(OnThreads(ranks,
                      [&](int rank) {
                        const C10dBackendPtr backend = RealGloo(store, rank, ranks);
                        results[static_cast<std::size_t>(rank)] = calls(*backend);
                        backend->barrier()->wait();
                      }),
            "");
  return results;
}

void ExpectSame(const std::vector<Tensors>& seen, const std::vector<Tensors>& expected) {
  ASSERT_EQ(seen.size(), expected.size());
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    ASSERT_EQ(seen[rank].size(), expected[rank].size()) << "rank " << rank;
    for (std::size_t i = 0; i < seen[rank].size(); ++i) {
      EXPECT_TRUE(seen[rank][i].equal(expected[rank][i]))
          << "rank " << rank << ", tensor " << i << ":\n"
          << seen[rank][i] << "\nand not\n"
          << expected[rank][i];
    }
  }
}

struct Case {
  const char* name;
  Calls calls;
};

class LikeGloo : public ::testing::TestWithParam<Case> {};

TEST_P(LikeGloo, EveryRankGetsTheSame) {
  for (const int ranks : {2, 3}) {
    ExpectSame(OverThreads(ranks, GetParam().calls), OverGloo(ranks, GetParam().calls));
  }
}

Tensors AllReduces(c10d::Backend& b) {
  Tensors all;
  for (const auto op :
       {c10d::ReduceOp::SUM, c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MIN, c10d::ReduceOp::MAX}) {
    for (const auto type : {at::kFloat, at::kDouble, at::kInt, at::kLong, at::kByte}) {
      c10d::AllreduceOptions options;
      options.reduceOp = op;
      Tensors x = {Given({5, 7}, b.getRank(), type)};
      b.allreduce(x, options)->wait();
      all.push_back(x[0]);
    }
  }
  for (const auto op : {c10d::ReduceOp::BAND, c10d::ReduceOp::BOR, c10d::ReduceOp::BXOR}) {
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    Tensors x = {Given({5, 7}, b.getRank(), at::kInt)};
    b.allreduce(x, options)->wait();
    all.push_back(x[0]);
  }
  return all;
}

Tensors Coalesced(c10d::Backend& b) {
  Tensors reduced = {Given({5}, b.getRank()), Given({2, 3}, b.getRank() + 1)};
  b.allreduce_coalesced(reduced)->wait();
  Tensors inputs = {Given({4}, b.getRank()), Given({2, 3}, b.getRank() + 1)};
  Tensors outputs = {Empty(1, {4 * b.getSize()})[0], Empty(1, {2 * b.getSize(), 3})[0]};
  b.allgather_into_tensor_coalesced(outputs, inputs)->wait();
  Tensors parts = {Empty(1, {4})[0], Empty(1, {2, 3})[0]};
  Tensors wholes = {Given({4 * b.getSize()}, b.getRank()), Given({2 * b.getSize(), 3}, 1)};
  b.reduce_scatter_tensor_coalesced(parts, wholes)->wait();
  reduced.insert(reduced.end(), outputs.begin(), outputs.end());
  reduced.insert(reduced.end(), parts.begin(), parts.end());
  return reduced;
}

Tensors Rooted(c10d::Backend& b) {
  const int size = b.getSize(), rank = b.getRank();
  Tensors all;
  for (int root = 0; root < size; ++root) {
    Tensors sent = {Given({3, 3}, rank)};
    c10d::BroadcastOptions broadcast;
    broadcast.rootRank = root;
    b.broadcast(sent, broadcast)->wait();
    all.push_back(sent[0]);

    for (const std::int64_t count : {1, 7, 4097}) {
      Tensors reduced = {Given({count}, rank)};
      c10d::ReduceOptions reduce;
      reduce.rootRank = root;
      b.reduce(reduced, reduce)->wait();
      if (rank == root) all.push_back(reduced[0]);  // of the others, Gloo's is left open
    }

    Tensors own = {Given({4}, rank)};
    std::vector<Tensors> gathered;
    if (rank == root) gathered.push_back(Empty(size, {4}));
    c10d::GatherOptions gather;
    gather.rootRank = root;
    b.gather(gathered, own, gather)->wait();
    if (rank == root) all.insert(all.end(), gathered[0].begin(), gathered[0].end());

    Tensors got = Empty(1, {2, 2});
    std::vector<Tensors> parts(rank == root ? 1 : 0);
    for (int r = 0; rank == root && r < size; ++r) parts[0].push_back(Given({2, 2}, r + root));
    c10d::ScatterOptions scatter;
    scatter.rootRank = root;
    b.scatter(got, parts, scatter)->wait();
    all.push_back(got[0]);
  }
  return all;
}

Tensors Gathers(c10d::Backend& b) {
  const int size = b.getSize(), rank = b.getRank();
  std::vector<Tensors> outputs = {Empty(size, {2, 3})};
  Tensors inputs = {Given({2, 3}, rank)};
  b.allgather(outputs, inputs)->wait();
  at::Tensor base = Empty(1, {size * 5})[0];
  at::Tensor own = Given({5}, rank);
  b._allgather_base(base, own)->wait();
  std::vector<Tensors> lists;
  for (int r = 0; r < size; ++r) lists.push_back({Empty(1, {2})[0], Empty(1, {3, 1})[0]});
  Tensors two = {Given({2}, rank), Given({3, 1}, rank)};
  b.allgather_coalesced(lists, two)->wait();
  Tensors all = outputs[0];
  all.push_back(base);
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

Tensors ScattersAndAllToAll(c10d::Backend& b) {
  const int size = b.getSize(), rank = b.getRank();
  Tensors scattered = Empty(1, {2, 3});
  std::vector<Tensors> parts(1);
  for (int r = 0; r < size; ++r) parts[0].push_back(Given({2, 3}, rank + r));
  b.reduce_scatter(scattered, parts)->wait();
  at::Tensor base = Empty(1, {3})[0];
  at::Tensor whole = Given({3 * size}, rank);
  b._reduce_scatter_base(base, whole)->wait();
  at::Tensor equal = Empty(1, {2 * size, 2})[0];
  at::Tensor from = Given({2 * size, 2}, rank);
  std::vector<std::int64_t> none_out, none_in;
  b.alltoall_base(equal, from, none_out, none_in)->wait();
  std::vector<std::int64_t> sent, received;  // rank a sends a + b + 1 rows to rank b
  for (int peer = 0; peer < size; ++peer) {
    sent.push_back(rank + peer + 1);
    received.push_back(rank + peer + 1);
  }
  const std::int64_t rows = std::accumulate(sent.begin(), sent.end(), std::int64_t{0});
  at::Tensor uneven = Empty(1, {rows, 2})[0];
  at::Tensor uneven_from = Given({rows, 2}, rank);
  b.alltoall_base(uneven, uneven_from, received, sent)->wait();
  return {scattered[0], base, equal, uneven};
}

Tensors Messages(c10d::Backend& b) {
  const int size = b.getSize(), rank = b.getRank();
  Tensors out = {Given({3, 2}, rank)}, in = Empty(1, {3, 2});
  const auto sent = b.send(out, (rank + 1) % size, 4);
  const auto received = b.recv(in, (rank + size - 1) % size, 4);
  received->wait();
  sent->wait();
  b.barrier()->wait();
  return in;
}

INSTANTIATE_TEST_SUITE_P(Backend, LikeGloo,
                         ::testing::Values(Case{"AllReduces", AllReduces},
                                           Case{"Coalesced", Coalesced}, Case{"Rooted", Rooted},
                                           Case{"Gathers", Gathers},
                                           Case{"ScattersAndAllToAll", ScattersAndAllToAll},
                                           Case{"Messages", Messages}),
                         [](const auto& one) { return std::string(one.param.name); });

// What Gloo does not have.

TEST(Backend, SumsAreInRankOrderAndHalvesAreRoundedOnce) {
  OverThreads(3, [](c10d::Backend& b) {
    const float values[] = {1e8f, 1.0f, -1e8f};
    Tensors x = {at::full({100}, values[b.getRank()])};
    b.allreduce(x)->wait();
    EXPECT_TRUE(x[0].equal(at::full({100}, (1e8f + 1.0f) + -1e8f)));
    Tensors h = {at::full({100}, b.getRank() == 0 ? 256 : 1, at::kBFloat16)};
    b.allreduce(h)->wait();
    EXPECT_TRUE(h[0].equal(at::full({100}, 258, at::kBFloat16)));  // 256 + 1 is no bfloat16
    return x;
  });
}

TEST(Backend, AveragesAndScalesFirst) {
  OverThreads(3, [](c10d::Backend& b) {
    c10d::AllreduceOptions average;
    average.reduceOp = c10d::ReduceOp::AVG;
    Tensors x = {Given({9}, b.getRank())};
    b.allreduce(x, average)->wait();
    const at::Tensor sum = Given({9}, 0).add(Given({9}, 1)).add(Given({9}, 2));
    EXPECT_TRUE(x[0].equal(sum.div(3)));
    c10d::ReduceScatterOptions scaled;
    scaled.reduceOp = c10d::makeNCCLPreMulSum(0.5);
    at::Tensor out = Empty(1, {3})[0], in = Given({9}, b.getRank());
    b._reduce_scatter_base(out, in, scaled)->wait();
    EXPECT_TRUE(out.equal(sum.mul(0.5).narrow(0, 3 * b.getRank(), 3)));
    EXPECT_TRUE(in.equal(Given({9}, b.getRank()))) << "the input keeps its values";
    c10d::ReduceOptions to_one;
    to_one.reduceOp = c10d::makeNCCLPreMulSum(at::full({1}, 2.0));
    to_one.rootRank = 1;
    Tensors y = {Given({9}, b.getRank())};
    b.reduce(y, to_one)->wait();
    EXPECT_TRUE(y[0].equal(b.getRank() == 1 ? sum.mul(2) : Given({9}, b.getRank())));
    return x;
  });
}

TEST(Backend, TakesTensorsThatAreNotContiguousComplexOrOfOtherTypes) {
  OverThreads(2, [](c10d::Backend& b) {
    const int rank = b.getRank();
    at::Tensor matrix = Given({4, 6}, rank);
    Tensors columns = {matrix.t()};
    b.allreduce(columns)->wait();
    EXPECT_TRUE(matrix.equal(Given({4, 6}, 0).add(Given({4, 6}, 1))));
    at::Tensor wide = Given({4, 6}, rank);
    Tensors every_second = {wide.slice(1, 0, 6, 2)};
    b.broadcast(every_second)->wait();
    EXPECT_TRUE(wide.slice(1, 0, 6, 2).equal(Given({4, 6}, 0).slice(1, 0, 6, 2)));
    EXPECT_TRUE(wide.slice(1, 1, 6, 2).equal(Given({4, 6}, rank).slice(1, 1, 6, 2)));
    Tensors complex = {at::complex(Given({5}, rank), Given({5}, rank + 3))};
    b.allreduce(complex)->wait();
    EXPECT_TRUE(at::real(complex[0]).equal(Given({5}, 0).add(Given({5}, 1))));
    Tensors other = {Given({5}, rank).to(at::kFloat8_e4m3fn)};
    b.broadcast(other)->wait();
    EXPECT_TRUE(other[0].to(at::kFloat).equal(Given({5}, 0)));
    Tensors leaf = {Given({5}, rank).requires_grad_(true)};
    b.broadcast(leaf)->wait();
    EXPECT_TRUE(leaf[0].detach().equal(Given({5}, 0)));
    std::vector<Tensors> uneven = {{Empty(1, {1})[0], Empty(1, {2})[0]}};
    Tensors own = {Given({rank + 1}, rank)};
    b.allgather(uneven, own)->wait();
    EXPECT_TRUE(uneven[0][1].equal(Given({2}, 1)));
    Tensors to = {Empty(1, {1})[0], Empty(1, {1})[0]}, from = {Given({1}, rank), Given({1}, 9)};
    b.alltoall(to, from)->wait();
    EXPECT_TRUE(to[0].equal(rank == 0 ? Given({1}, 0) : Given({1}, 9)));
    return to;
  });
}

TEST(Backend, CallsReturnBeforeTheyEndAndTheFutureTellsTheEnd) {
  OverThreads(2, [](c10d::Backend& b) {
    Tensors x = {Given({1000}, b.getRank())};
    if (b.getRank() == 1) {
      Tensors word = Empty(1, {1});
      b.recv(word, 0, 0)->wait();
    }
    const auto work = b.allreduce(x);
    std::atomic<int> told = 0;
    work->getFuture()->addCallback([&](c10::ivalue::Future& future) {
      if (future.value().toTensorVector()[0].is_same(x[0])) ++told;
    });
    if (b.getRank() == 0) {
      EXPECT_FALSE(work->isCompleted());
      EXPECT_THROW(work->wait(std::chrono::milliseconds(5)), c10::DistBackendError);
      Tensors word = {Given({1}, 0)};
      b.send(word, 1, 0)->wait();
    }
    work->getFuture()->wait();
    EXPECT_TRUE(work->wait());
    EXPECT_TRUE(work->isSuccess());
    EXPECT_EQ(told, 1);
    EXPECT_TRUE(work->result()[0].is_same(x[0]));
    return x;
  });
}

TEST(Backend, CoalescesWhatIsBetweenStartAndEnd) {
  OverThreads(2, [](c10d::Backend& b) {
    Tensors x = {Given({10}, b.getRank())}, y = {Given({10}, b.getRank() + 2)};
    b.startCoalescing();
    b.allreduce(x);
    b.broadcast(y);
    b.endCoalescing()->wait();
    EXPECT_TRUE(x[0].equal(Given({10}, 0).add(Given({10}, 1))));
    EXPECT_TRUE(y[0].equal(Given({10}, 2)));
    return x;
  });
}

TEST(Backend, SplitsAndShutsDown) {
  OverThreads(3, [](c10d::Backend& b) {
    const auto child = b.split(nullptr, {0, 2}, nullptr);
    EXPECT_EQ(child == nullptr, b.getRank() == 1);
    if (child == nullptr) return Tensors{};
    EXPECT_EQ(child->getSize(), 2);
    EXPECT_EQ(child->getRank(), b.getRank() / 2);
    Tensors x = {Given({4}, child->getRank())};
    child->allreduce(x)->wait();
    EXPECT_TRUE(x[0].equal(Given({4}, 0).add(Given({4}, 1))));
    child->shutdown();
    EXPECT_THAT([&] { child->barrier(); },
                ::testing::ThrowsMessage<c10::Error>(HasSubstr("shut down")));
    return x;
  });
}

TEST(Backend, ErrorsCarryTheTextOfAit) {
  const auto group = MakeThreadGroup(WorldSize(2), {.timeout = std::chrono::milliseconds(200)});
  EXPECT_EQ(OnThreads(2,
                      [&](int rank) {
                        const auto backend = ToBackend(group[static_cast<std::size_t>(rank)]);
                        Tensors two = {at::zeros({3}), at::zeros({3})};
                        EXPECT_THROW(backend->allreduce(two), c10::ValueError);
                        Tensors x = {at::zeros({3 + rank})};
                        EXPECT_THAT([&] { backend->allreduce(x)->wait(); },
                                    ::testing::ThrowsMessage<c10::ValueError>(HasSubstr("rank 1")));
                        EXPECT_THAT(
                            [&] { backend->barrier()->wait(); },
                            ::testing::ThrowsMessage<c10::DistBackendError>(HasSubstr("ABORTED")));
                        EXPECT_THAT([&] { backend->recvAnysource(x, 0); },
                                    ::testing::ThrowsMessage<c10::Error>(HasSubstr("named")));
                        c10d::AllreduceOptions average;
                        average.reduceOp = c10d::ReduceOp::AVG;
                        Tensors whole = {at::zeros({3}, at::kLong)};
                        EXPECT_THAT([&] { backend->allreduce(whole, average); },
                                    ::testing::ThrowsMessage<c10::Error>(HasSubstr("average")));
                      }),
            "");
}

TEST(Backend, AListThatIsRefusedStartsNothing) {
  OverThreads(2, [](c10d::Backend& b) {
    const at::Tensor dense = Given({4}, b.getRank());
    const at::Tensor sparse = at::eye(3).to_sparse();
    Tensors reduced = {dense, sparse}, wide = {at::zeros({8}), at::zeros({6, 3})};
    const auto refuses = [](const std::function<void()>& call) {
      EXPECT_THAT(call, ::testing::ThrowsMessage<c10::ValueError>(HasSubstr("dense")));
    };
    refuses([&] { b.allreduce_coalesced(reduced); });
    refuses([&] { b.allgather_into_tensor_coalesced(wide, reduced); });
    refuses([&] { b.reduce_scatter_tensor_coalesced(reduced, wide); });
    std::vector<Tensors> lists = {{at::zeros({4}), at::zeros({3, 3})},
                                  {at::zeros({4}), at::zeros({3, 3})}};
    refuses([&] { b.allgather_coalesced(lists, reduced); });
    EXPECT_TRUE(dense.equal(Given({4}, b.getRank()))) << "nothing was started";
    Tensors x = {Given({4}, b.getRank())};
    b.allreduce(x)->wait();
    return x;
  });
}

TEST(Backend, AThrowInTheMiddleOfAListWaitsForWhatWasStarted) {
  const auto group = MakeThreadGroup(WorldSize(2), {.timeout = std::chrono::seconds(30)});
  const auto backend = ToBackend(group[0]);
  Tensors inputs = {at::zeros({4}), at::zeros({4})};
  std::vector<Tensors> outputs = {{at::zeros({4}), at::zeros({5})},
                                  {at::zeros({4}), at::zeros({4})}};
  EXPECT_THAT([&] { backend->allgather_coalesced(outputs, inputs); },
              ::testing::ThrowsMessage<c10::ValueError>(HasSubstr("5 elements")));
  EXPECT_TRUE(group[0]->recorder().Outstanding().empty());
}

TEST(Backend, ADeadlineNamesWhoIsMissing) {
  const auto group = MakeThreadGroup(WorldSize(2), {.timeout = std::chrono::seconds(30)});
  const auto backend = ToBackend(group[0]);
  c10d::BarrierOptions options;
  options.timeout = std::chrono::milliseconds(20);
  EXPECT_THAT([&] { backend->monitoredBarrier(options, true); },
              ::testing::ThrowsMessage<c10::DistBackendError>(HasSubstr("rank 1")));
}

// clang-format off: as the page shows it
c10::intrusive_ptr<c10d::ProcessGroup> GroupOver(const std::shared_ptr<Communicator>& communicator,
                                                 const c10::intrusive_ptr<c10d::Store>& store) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, communicator->rank().value(),
                                                       communicator->size().value());
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, ait::ToBackend(communicator));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  return group;
}

ait::C10dBackendPtr MakeBackend(const ait::C10dStorePtr& store, int rank, int size) {
  return RealGloo(store, rank, size);
}

auto WorldOverC10d() {
  auto world = ait::World::FromEnvironment(
      {.transport = ait::C10d([](const ait::C10dGroup& group, const ait::C10dStorePtr& store) {
         return MakeBackend(store, group.rank.value(), group.size().value());
       })});
  return world;
}
// clang-format on

TEST(Backend, IsSetByTheLineOfThePage) {
  ait::testing::ExpectCodeIsCompiled(AIT_DOCS "/c10d.md", AIT_SOURCE);
  const auto ranks = MakeThreadGroup(WorldSize(2));
  EXPECT_EQ(OnThreads(2,
                      [&](int rank) {
                        const auto group = GroupOver(ranks[static_cast<std::size_t>(rank)],
                                                     c10::make_intrusive<c10d::HashStore>());
                        Tensors x = {Given({6}, rank)};
                        group->allreduce(x)->wait();
                        EXPECT_TRUE(x[0].equal(Given({6}, 0).add(Given({6}, 1))));
                      }),
            "");
}

TEST(C10d, IsATransportOfAWorld) {
  const auto world = WorldOverC10d();  // of one process
  ASSERT_TRUE(world.ok()) << world.status().ToString();
  EXPECT_EQ((*world)->size(), WorldSize(1));
}

// Functional collectives find a group by its name.
TEST(Backend, CarriesFunctionalCollectives) {
  const auto group = MakeThreadGroup(WorldSize(2));
  EXPECT_EQ(OnThreads(2,
                      [&](int rank) {
                        const std::string name = StrCat("functional of rank ", rank);
                        const auto c10d_group =
                            GroupWith(ToBackend(group[static_cast<std::size_t>(rank)]), name);
                        c10d::register_process_group(name, c10d_group);
                        const at::Tensor sum = c10d::all_reduce(Given({6}, rank), "sum", name);
                        EXPECT_TRUE(c10d::wait_tensor(sum).equal(Given({6}, 0).add(Given({6}, 1))));
                        const at::Tensor all =
                            c10d::all_gather_into_tensor(Given({2}, rank), 2, name);
                        EXPECT_TRUE(
                            c10d::wait_tensor(all).equal(at::cat({Given({2}, 0), Given({2}, 1)})));
                        c10d::unregister_process_group(name);
                      }),
            "");
}

}  // namespace
}  // namespace ait
