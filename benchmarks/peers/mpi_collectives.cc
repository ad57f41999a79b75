// SPDX-License-Identifier: Apache-2.0
// Collectives of fp32 over MPI, in place and not: a peer of bench_comm, which starts it with mpirun:
//
//   mpirun -np 2 --bind-to core peer_mpi_collectives BUDGET_MS REPETITIONS KiB…

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <vector>

#include "support/rank_timing.h"

namespace ait::benchmarks {
namespace {

int Main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  RankTimer timer(
      RankTimerOptions(argc, argv), rank == 0, [] { MPI_Barrier(MPI_COMM_WORLD); },
      [](double x) {
        MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        return x;
      });
  for (const std::int64_t bytes : timer.options().sizes) {
    const int n = static_cast<int>(bytes / 4), part = n / size;
    std::vector<float> x(static_cast<std::size_t>(n)), mine(static_cast<std::size_t>(part));
    const auto all_reduce = [&] {
      MPI_Allreduce(MPI_IN_PLACE, x.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    };
    const auto reduce_scatter = [&] {
      MPI_Reduce_scatter_block(x.data(), mine.data(), part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    };
    const auto reduce_scatter_in_place = [&] {
      MPI_Reduce_scatter_block(MPI_IN_PLACE, x.data(), part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    };
    const auto all_gather = [&] {
      MPI_Allgather(mine.data(), part, MPI_FLOAT, x.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
    };
    const auto all_gather_in_place = [&] {
      MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, x.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
    };
    for (int i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = Given(rank, i);
    reduce_scatter();
    all_reduce();
    for (int i = 0; i < n; ++i) {
      const float seen = x[static_cast<std::size_t>(i)];
      if (seen != GivenSum(size, i)) {
        FailWrong("MPI_Allreduce", rank, i, seen, GivenSum(size, i));
      }
    }
    for (int i = 0; i < part; ++i) {
      const float seen = mine[static_cast<std::size_t>(i)];
      if (seen != GivenSum(size, rank * part + i)) {
        FailWrong("MPI_Reduce_scatter_block", rank, i, seen, GivenSum(size, rank * part + i));
      }
    }
    x.assign(x.size(), 0);
    mine.assign(mine.size(), 0);
    timer.Time("all_reduce", bytes, "foreign", all_reduce);
    timer.Alternate(
        {{"reduce_scatter", reduce_scatter}, {"reduce_scatter", reduce_scatter_in_place}}, bytes,
        "foreign");
    timer.Alternate({{"all_gather", all_gather}, {"all_gather", all_gather_in_place}}, bytes,
                    "foreign");
  }
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) { return ait::benchmarks::Main(argc, argv); }
