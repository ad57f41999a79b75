// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_OPTIMIZER_H_
#define AIT_OPTIM_OPTIMIZER_H_

// The two faces of an optimizer.
//
// `Optimizer` is a description: an algorithm, its options and its parameter groups, cheap to copy.
// Users write one and hand it over. `BoundOptimizer` is that description bound to a flat buffer: it
// owns the state (such as "exp_avg") for the elements that this rank owns, and updates any slice of
// them in one pass over parameters, gradients and state: scale of the gradient, weight decay,
// update, and zeroing of the gradient. The engine makes one per flat buffer; it holds no pointer to
// parameters or gradients, so that these may live in a shared arena, in a bucket, or in a buffer
// that moves.
//
//   AIT_ASSIGN_OR_RETURN(auto bound, ait::AdamW{{.learning_rate = 3e-4}}.Bind(layout));
//   AIT_RETURN_IF_ERROR(bound->BeginStep({.gradient_scale = clip_factor / tokens}));
//   AIT_RETURN_IF_ERROR(bound->Update({0, View(parameters), View(gradients)}));
//
// Parameters may be fp32, bf16 or fp16; what those below fp32 need beside them, such as an fp32
// master, is state of the bound optimizer too (ait/optim/precision.h). The same pass reads
// gradients of any of these dtypes and writes the new parameters to as many places as asked for:
// with ZeRO, into the buffers of all ranks.
//
// Some algorithms need whole parameters (`Ownership::kWholeParameters`): Muon, Adafactor, LAMB. The
// slices of an engine must end between parameters then, `DataParallelOptions::slices`.
//
// Results do not depend on how the owned elements are cut into slices, on the threads or on the
// SIMD level: bit for bit the same.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/base/simd.h"
#include "ait/base/status.h"
#include "ait/comm/buffer.h"
#include "ait/memory/resource.h"
#include "ait/optim/executor.h"
#include "ait/optim/offload.h"
#include "ait/optim/parameter_groups.h"
#include "ait/optim/parameter_layout.h"
#include "ait/optim/precision.h"

namespace ait::inline v0 {

/// What the update leaves in the gradients it has read.
enum class GradientsAfter { kKept, kZero };

/// The numbers of one step, equal on every rank.
struct StepOptions {
  double learning_rate_factor = 1;  // of the schedule; multiplies the rate of every group; finite
  double gradient_scale = 1;  // multiplies gradients: 1 / count, unscale and clip factor in one
  GradientsAfter gradients_after = GradientsAfter::kKept;
  /// Multiply gradients too, one for each parameter group and a last one for parameters in none:
  /// clip factors by group. Empty: all 1. Finite.
  std::vector<double> group_scales = {};
  /// Clipping by value: gradients, after all scales, are cut to ± this. > 0.
  double clip_value = std::numeric_limits<double>::infinity();
};

/// A part of the owned elements: element `begin + i` of the flat buffer is element i of
/// `parameters`, of `gradients` and of each of `copies`. All have the same count and do not
/// overlap; the range lies inside one owned range.
struct UpdateSlice {
  std::int64_t begin = 0;
  Buffer parameters;  // of BindOptions::parameter_dtype; read and written
  Buffer gradients;   // fp32, bf16 or fp16; written only to become zero
  /// Where else the new parameters go, in their dtype: the same elements of other ranks' buffers.
  std::span<void* const> copies;
};

/// One named state array of one parameter, as far as this rank owns it: a view that stays valid as
/// long as the optimizer. Entries are of `dtype`, one for `block` elements of the parameter, which
/// are counted from its first; `begin` is the first entry. Writable, for loading.
struct StateSlice {
  std::string_view parameter;
  std::string_view state;
  std::int64_t begin = 0;
  DType dtype = DType::kFloat32;
  std::span<std::byte> bytes;
  std::int64_t block = 1;
  /// Of the whole array, if its entries are row-major elements of a shape of its own, whatever the
  /// parameter's; `block` is 1 then. Valid as `bytes` is. Empty: entries are in the order of the
  /// flat buffer.
  std::span<const std::int64_t> shape = {};

  /// The elements; only for dtype kFloat32.
  std::span<float> floats() const {
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
  }
};

enum class StateAccess : std::uint8_t { kRead, kReadWrite };

/// State and update of one flat buffer.
/// **Thread-safety.** After `BeginStep`, `Update` may be called from several threads at once for
/// slices that do not overlap; everything else needs exclusive access.
class BoundOptimizer {
 public:
  virtual ~BoundOptimizer() = default;

  /// Starts a step: counts it and computes the factors of every group. A step that is skipped,
  /// because a gradient is not finite, is one for which this is not called.
  /// **Errors.** InvalidArgument if a number is not finite in fp32.
  virtual Status BeginStep(const StepOptions& options) = 0;

  /// Updates the parameters of a slice. Within a step each owned element is updated at most once.
  /// **Errors.** FailedPrecondition before the first `BeginStep`; InvalidArgument for a slice whose
  /// buffers differ in size, have a wrong dtype, or that is not inside one owned range (for
  /// Ownership::kWholeParameters: that cuts a parameter); an empty slice is inside of any. Nothing
  /// is changed then. Those of the file where state is offloaded to one: after these the
  /// parameters and the state are those of a step half done, and all later calls fail.
  virtual Status Update(const UpdateSlice& slice) = 0;

  /// Makes `values` the parameters of a slice, as exactly as they are kept: writes them, rounded,
  /// to `parameters` and `copies`, and what is lost thereby into the state (master, remainder,
  /// compensation). `gradients` is not used. For the begin of training and for loading.
  virtual Status SetParameters(const UpdateSlice& slice, std::span<const float> values) = 0;

  /// The parameters of a slice as exactly as they are kept: masters where there are some.
  virtual Status GetParameters(const UpdateSlice& slice, std::span<float> values) = 0;

  /// Steps begun, or as set.
  virtual std::int64_t step() const = 0;
  /// Continues from a saved step. **Errors.** InvalidArgument if `step` is negative.
  virtual Status set_step(std::int64_t step) = 0;

  /// Views of all state, by parameter and then by state name; empty parameters have none. Nothing
  /// for state that is not in memory: use `VisitState`.
  virtual std::vector<StateSlice> State() = 0;

  /// Calls `visit` with each of these slices, valid during the call alone; after
  /// StateAccess::kReadWrite what was written is kept, wherever state lives. State in a file comes
  /// in the order of elements, an array of a parameter in as many slices as it lies in chunks.
  /// Stops at the first error of `visit`, and returns it.
  virtual Status VisitState(StateAccess access,
                            const std::function<Status(const StateSlice&)>& visit);

  /// Bytes of memory that the state takes on this rank, and the part of them that are masters (also
  /// remainders and compensations). Of state in a file that is what is in memory at once.
  virtual std::int64_t state_bytes() const = 0;
  virtual std::int64_t master_bytes() const { return 0; }
  /// Bytes of the file that the state is in; 0 if it is in memory.
  virtual std::int64_t offloaded_bytes() const { return 0; }
  /// Where the state is, for people: "memory", or "/nvme/state (ext4): io_uring, O_DIRECT".
  virtual std::string DescribeState() const { return "memory"; }
};

/// What binding needs beside the layout.
struct BindOptions {
  Executor executor;  // of `Update`, and of the first touch of the state
  SimdLevel max_simd_level = SimdLevel::kAvx512;  // a cap: the best of the processor up to it
  MemoryHandle memory;                            // of the state; a HeapResource if empty
  DType parameter_dtype = DType::kFloat32;        // fp32, bf16 or fp16
  Masters masters = Masters::kFloat32;            // of parameters below fp32
  std::uint64_t seed = 0;                         // of Masters::kStochastic
  /// State in a file instead of `memory`; of optimizers with Ownership::kElements.
  StateOffload offload;
};

/// What an owner of a slice must own of each parameter.
enum class Ownership : std::uint8_t {
  kElements,         // any part: an element is updated from that element alone
  kWholeParameters,  // all of it: norms, rows, columns or products of the parameter take part
};

/// An algorithm with its options, such as AdamW. **Thread-safety.** Immutable.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Allocates state for the owned elements, all zeros, at step 0.
  /// **Errors.** InvalidArgument that names the option and its value, or the fault of the layout;
  /// those of `memory`, ResourceExhausted if it is full; those of the directory of `offload`,
  /// ResourceExhausted with the bytes needed and free; Unimplemented: `offload` for an optimizer of
  /// whole parameters.
  virtual StatusOr<std::unique_ptr<BoundOptimizer>> Bind(const ParameterLayout& layout,
                                                         BindOptions options = {}) const = 0;

  virtual Ownership ownership() const { return Ownership::kElements; }

  /// Name in checkpoints: "adamw", "adam", "sgd", "lion", "adafactor", "muon", "lamb".
  virtual std::string_view name() const = 0;
  /// Version of the meaning of the state arrays; grows when it changes.
  virtual int state_version() const = 0;
  /// Names of the state arrays, such as {"exp_avg", "exp_avg_sq"}.
  virtual std::vector<std::string> state_names() const = 0;
  /// The learning rate outside of groups, before the schedule's factor.
  virtual double learning_rate() const = 0;
  /// The rules that give some parameters other options.
  virtual const ParameterGroups& groups() const = 0;
  /// All that must be the same on every rank, as text: name, state version, every option and every
  /// group. Numbers are written so that two texts are equal only if the numbers are.
  virtual std::string Describe() const = 0;
};

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_OPTIMIZER_H_
