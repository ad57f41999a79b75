// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CHECKPOINT_OPTIMIZER_PIECES_INTERNAL_H_
#define AIT_CHECKPOINT_OPTIMIZER_PIECES_INTERNAL_H_

// Which parts of the optimizer's state the ranks own, and the parts put together.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "ait/parallel/data_parallel.h"

namespace ait::inline v0::internal {

/// A part of one state array: entries [begin, begin + bytes / size of the dtype).
struct StatePiece {
  std::string parameter;
  std::string state;
  std::int64_t begin = 0;
  DType dtype = DType::kFloat32;
  std::int64_t block = 1;
  std::vector<std::int64_t> shape;  // as in StateSlice
  std::int64_t bytes = 0;
};

StatePiece PieceOf(const StateSlice& slice);

/// The parts that this rank owns, in the order of `BoundOptimizer::VisitState`.
StatusOr<std::vector<StatePiece>> PiecesOf(DataParallel& engine);

/// One state array, whole.
struct WholeState {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;  // in the file
  std::vector<std::byte> bytes;
};

/// "state.<parameter>.<state>".
std::string KeyOf(std::string_view parameter, std::string_view state);

/// Shape in the file of the array that a piece belongs to.
std::vector<std::int64_t> FileShape(const StatePiece& piece, const ParameterInfo& info);

/// True if the entries of the array lie in the order of the flat buffer and that is not row-major:
/// they change places on their way to the file, unless each stands for a block.
bool IsPermuted(const StatePiece& piece, const ParameterInfo& info);

/// Row-major number of each element of the parameter, by its place in memory.
std::vector<std::int64_t> RowMajorPlaces(const ParameterInfo& info);

/// **Collective. Blocks.** All state, by key, at rank 0; nothing on other ranks. What several ranks
/// have, because it is not sharded, is taken from the first.
StatusOr<std::map<std::string, WholeState>> GatherState(DataParallel& engine, const Status& local);

/// **Collective. Blocks.** Ok if `local` is ok on all ranks and `fact`, any text, the same; else one
/// error on all ranks, which names the first rank that has it.
Status OneOutcome(DataParallel& engine, const Status& local, const std::string& fact);

/// The trainable parameters that have memory of their own and elements, by name.
std::map<std::string, const ParameterInfo*> StatefulParameters(const FlatLayout& layout);

}  // namespace ait::inline v0::internal

#endif  // AIT_CHECKPOINT_OPTIMIZER_PIECES_INTERNAL_H_
