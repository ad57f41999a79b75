// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_FLAT_OPTIMIZER_H_
#define AIT_OPTIM_FLAT_OPTIMIZER_H_

// What all bound optimizers share: the pieces of parameters that this rank owns, state arrays over
// them, masters, the checks of a slice, and the count of steps. An algorithm adds its arithmetic:
//
//   class BoundAdafactor final : public FlatOptimizer {
//     void OnBeginStep(const StepOptions&) override;    // factors of step() for every group
//     Status UpdateOwned(const UpdateSlice&) override;  // for each piece of the slice:
//   };                                                  //   ReadValues, …, WriteValues

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/optim/optimizer.h"
#include "optim/offloaded_state.h"
#include "optim/owned_piece.h"
#include "optim/parameter_access.h"
#include "optim/partition.h"

namespace ait::inline v0::internal {

class FlatOptimizer : public BoundOptimizer {
 public:
  Status BeginStep(const StepOptions& options) final;
  Status Update(const UpdateSlice& slice) final;
  Status SetParameters(const UpdateSlice& slice, std::span<const float> values) final;
  Status GetParameters(const UpdateSlice& slice, std::span<float> values) final;
  std::int64_t step() const final { return step_; }
  Status set_step(std::int64_t step) final;
  std::vector<StateSlice> State() override;
  Status VisitState(StateAccess access,
                    const std::function<Status(const StateSlice&)>& visit) override;
  std::int64_t state_bytes() const override;
  std::int64_t master_bytes() const final;
  std::int64_t offloaded_bytes() const final;
  std::string DescribeState() const final;

 protected:
  /// Checks everything, allocates the arrays, and that of the masters as the last one. All entries
  /// are zero, first touched by the threads that update them. With BindOptions::offload they are in
  /// a file: then UpdateOwned is called for one part of a slice after the other, pieces end where
  /// these do, and have state during the call alone.
  Status Init(const ParameterLayout& layout, const ParameterGroups& groups, BindOptions options,
              std::vector<StateArray> arrays, Ownership ownership = Ownership::kElements);

  virtual void OnBeginStep(const StepOptions& options) = 0;
  /// A slice that has passed all checks and is not empty.
  virtual Status UpdateOwned(const UpdateSlice& slice) = 0;

  const std::vector<ParameterSegment>& parameters() const { return parameters_; }
  const std::vector<OwnedPiece>& pieces() const { return pieces_; }
  const ParameterAccess& access() const { return access_; }
  const Executor& executor() const { return executor_; }

  /// Calls body(piece, range) for what of each piece lies in `range`, in ascending order.
  template <typename Body>
  void ForEachPiece(ElementRange range, const Body& body) const {
    for (auto piece = FirstPiece(range.begin); piece != pieces_.end(); ++piece) {
      if (piece->range.begin >= range.end) break;
      body(*piece, Intersection(piece->range, range));
    }
  }
  /// The entry of array i for an element of the flat buffer; null if the parameter has none.
  std::byte* StateAt(const OwnedPiece& piece, std::size_t i, std::int64_t element) const {
    if (piece.state[i] == nullptr) return nullptr;
    return piece.state[i] +
           (element - piece.range.begin) / arrays_[i].block * SizeOf(arrays_[i].dtype);
  }
  /// Masters, remainders or compensations; null if there are none.
  std::byte* BesideAt(const OwnedPiece& piece, std::int64_t element) const {
    return has_beside_ ? StateAt(piece, arrays_.size() - 1, element) : nullptr;
  }
  /// Number in the model of an element of the flat buffer.
  std::int64_t ModelElement(const OwnedPiece& piece, std::int64_t element) const {
    const ParameterSegment& parameter = parameters_[piece.parameter];
    return parameter.model_element + (element - parameter.begin);
  }

  /// The exact parameters in `range`, which lies in the piece and in the slice, and back, rounded,
  /// to the slice's parameters and copies.
  void ReadValues(const UpdateSlice& slice, const OwnedPiece& piece, ElementRange range,
                  float* values) const;
  void WriteValues(const UpdateSlice& slice, const OwnedPiece& piece, ElementRange range,
                   const float* values) const;
  /// True if the gradients of this step are scaled by group or cut: `OnBeginStep` is told a scale
  /// of 1 then, and all gradients must come from `ReadGradients`, which has done it.
  bool prepares_gradients() const { return !prepared_scales_.empty(); }
  /// The gradients in `range`, which lies in one piece, as fp32; and sets them to zero.
  void ReadGradients(const UpdateSlice& slice, ElementRange range, float* values) const;
  static void ZeroGradients(const UpdateSlice& slice, ElementRange range);
  /// Copies the new parameters in `range` to the slice's copies.
  static void CopyOut(const UpdateSlice& slice, ElementRange range);

  /// Where an element of the flat buffer lies in the slice's buffers.
  static std::byte* At(const UpdateSlice& slice, const Buffer& buffer, std::int64_t element) {
    return static_cast<std::byte*>(buffer.data) + (element - slice.begin) * SizeOf(buffer.dtype);
  }
  static ElementRange RangeOf(const UpdateSlice& slice) {
    return {slice.begin, slice.begin + slice.parameters.count};
  }

 private:
  Status MakePieces(const ParameterGroups& groups);
  Status AllocateState(MemoryHandle memory);
  Status OffloadState(const StateOffload& offload);
  /// Calls body(range) with state in memory, or a part of the range after the other.
  Status WithState(ElementRange range, StateAccess access,
                   const std::function<Status(ElementRange)>& body);
  std::vector<StateSlice> SlicesOf(ElementRange range) const;
  std::vector<OwnedPiece>::const_iterator FirstPiece(std::int64_t element) const;
  Status CheckSlice(const UpdateSlice& slice) const;
  Status CheckValues(const UpdateSlice& slice, std::size_t count) const;
  Status CheckStep(const StepOptions& options) const;

  std::vector<ParameterSegment> parameters_;
  std::vector<ElementRange> owned_;
  std::vector<OwnedPiece> pieces_;
  std::vector<StateArray> arrays_;
  std::vector<HostBuffer> buffers_;  // of each array, if they are in memory
  std::unique_ptr<OffloadedState> offloaded_;
  ParameterAccess access_;
  Executor executor_;
  Ownership ownership_ = Ownership::kElements;
  bool has_beside_ = false;
  std::vector<std::string> group_names_;
  std::size_t group_count_ = 1;         // that of parameters in no group counts
  std::vector<float> prepared_scales_;  // by group; empty: gradients are left to the algorithm
  float clip_value_ = 0;
  std::int64_t step_ = 0;
  bool begun_ = false;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_FLAT_OPTIMIZER_H_
