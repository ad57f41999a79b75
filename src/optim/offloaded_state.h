// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_OFFLOADED_STATE_H_
#define AIT_OPTIM_OFFLOADED_STATE_H_

// State arrays in a StateFile: chunk by chunk in the order of elements, all arrays of the elements
// of a chunk beside each other, so that a chunk of elements is one read and one write.
//
// Pieces are cut at the ends of chunks. Their state pointers are set while their chunk is used.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ait/base/status.h"
#include "ait/optim/offload.h"
#include "ait/optim/optimizer.h"
#include "optim/owned_piece.h"
#include "optim/state_file.h"

namespace ait::inline v0::internal {

/// Where the pieces of a chunk lie in it.
struct ChunkPlan {
  std::vector<OwnedPiece> pieces;         // cut; their state pointers are null
  std::vector<std::size_t> chunk_begins;  // the first piece of each chunk, and pieces.size()
  std::vector<std::int64_t> offsets;      // in its chunk, of piece p and array a: [p · arrays + a]
};

/// Cuts pieces, which have as many state pointers as there are arrays, for chunks of `chunk_bytes`.
/// Cuts inside a parameter are at multiples of 64 elements and of every block, counted from its
/// first. **Errors.** InvalidArgument: a chunk does not hold the state of that many elements.
StatusOr<ChunkPlan> PlanChunks(const std::vector<OwnedPiece>& pieces,
                               const std::vector<StateArray>& arrays,
                               const std::vector<ParameterSegment>& parameters,
                               std::int64_t chunk_bytes);

/// **Thread-safety.** All calls from any thread; chunks are used one at a time.
class OffloadedState {
 public:
  /// Cuts `pieces`, which outlive it. All state is zeros.
  static StatusOr<std::unique_ptr<OffloadedState>> Create(
      const StateOffload& offload, const std::vector<StateArray>& arrays,
      const std::vector<ParameterSegment>& parameters, std::vector<OwnedPiece>& pieces);

  /// **Blocks.** Calls `body` for each chunk that has elements of `range`, in ascending order, with
  /// those elements; the state pointers of their pieces are valid during the call. Stops at the
  /// first error.
  Status ForEachChunk(ElementRange range, StateAccess access,
                      const std::function<Status(ElementRange)>& body);

  std::int64_t file_bytes() const { return file_->file_bytes(); }
  std::int64_t memory_bytes() const { return file_->memory_bytes(); }
  const std::string& description() const { return file_->description(); }

 private:
  OffloadedState(ChunkPlan plan, std::size_t arrays, std::vector<OwnedPiece>& pieces)
      : plan_(std::move(plan)), arrays_(arrays), pieces_(pieces) {}
  // Sets the state pointers of the pieces of a chunk that lies at `data`; null: nowhere.
  void Point(std::size_t chunk, std::byte* data);

  ChunkPlan plan_;
  std::size_t arrays_;
  std::vector<OwnedPiece>& pieces_;
  std::unique_ptr<StateFile> file_;
  std::mutex mutex_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_OFFLOADED_STATE_H_
