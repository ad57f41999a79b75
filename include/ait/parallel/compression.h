// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_COMPRESSION_H_
#define AIT_PARALLEL_COMPRESSION_H_

// Gradient compression: fewer bytes between ranks, for links that are slower than the processor.
//
// A `GradientCompression` takes the place of the all-reduce of a bucket in `DataParallel`:
//
//   auto engine = DataParallel::Create(world->communicator(), NamedParameters(*model),
//       {.compression = Int8Compression({.scope = {.exact = {"head.*"}}})});
//
//   method                what travels                            bytes of fp32, N ranks
//   Bf16Compression       every element as bf16, summed in fp32   1/2
//   Int8Compression       blocks of int8 with an fp32 scale       about 1/4
//   TopKCompression       index and value of the largest          ratio · N
//   PowerSgdCompression   two thin factors of each matrix         rank · (rows + columns) / elements
//
// What all of them promise: every rank gets the same bits, since what is decoded came from one
// owner or is computed from the same bytes in a fixed order; parameters outside of the scope get
// the bits of an engine without compression; a gradient that is not finite is seen by all ranks.
// What they do not: the exactness of an engine without compression (two ranks are no longer one
// rank that accumulates). Use it between hosts over slow links; inside a host it costs time.
// docs/compression.md has measured ratios, errors and times.
//
// **Error feedback.** What a step did not send is kept as a residual and added to the gradient of
// the next: over time nothing is lost, (sum of what the ranks got) + (sum of residuals) = (sum of
// the gradients). It costs 8 bytes an element in scope: a step that ends with Discard, such as one
// with an infinite gradient, leaves the residual as it was. Residuals are state: save them with
// `DataParallel::SaveCompression`, see ait/parallel/compression_state.h.
//
// **Threads.** The engine runs compression on one thread of its own, bucket after bucket, beside
// backward; every method cuts its work so that the wire and the arithmetic overlap.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/buffer.h"
#include "ait/parallel/compression_state.h"
#include "ait/parallel/flat_layout.h"
#include "ait/parallel/step_counters.h"

namespace ait::inline v0 {

class Communicator;
struct OperationOptions;

/// A bucket that is due. Between parameters lie zeros, which stay zeros.
struct GradientBucket {
  int index = 0;             // in layout.buckets()
  std::int64_t begin = 0;    // of the bucket in its flat buffer; slots count from that buffer's
  Buffer values;             // in: this rank's sums; out: the sums over ranks
  const FlatLayout* layout;  // names, shapes, offsets
};

/// Implement it to replace the reduction of gradients. **Thread-safety.** `Reduce` is called by the
/// engine's compression thread, the rest by the engine's caller; never two at once.
class GradientCompression {
 public:
  GradientCompression() = default;
  virtual ~GradientCompression() = default;
  GradientCompression(const GradientCompression&) = delete;
  GradientCompression& operator=(const GradientCompression&) = delete;

  /// Method, options, and what else must be equal on all ranks, such as the step, as text: ranks
  /// compare it at Create and after a load.
  virtual std::string Describe() const = 0;

  /// Begins anew for an engine of this layout. **Errors.** InvalidArgument: wrong options.
  virtual Status Bind(const FlatLayout& layout, Rank rank, WorldSize size) = 0;

  /// **Collective. Blocks.** Makes `bucket.values` the sum over ranks, the same bits on all, and
  /// adds what it did to `counters`. Which collectives it calls may depend on the layout, the
  /// options and the number of steps, never on values. When it returns nothing is in flight.
  virtual Status Reduce(const GradientBucket& bucket, Communicator& communicator,
                        const OperationOptions& options, CompressionCounters& counters) = 0;

  /// A step in which all buckets were reduced is over: it counts, or it was discarded and leaves
  /// the state as it was before.
  enum class StepEnd { kUpdated, kDiscarded };
  virtual void EndStep(StepEnd) {}

  /// The state of this rank; by default there is none.
  virtual CompressionState Save() const { return {}; }
  /// Takes the state up again from that of all ranks, or of some; see `LoadCompression`. Returns
  /// what could not be kept, as text for a log; empty if everything was.
  virtual StatusOr<std::string> Load(std::span<const CompressionState> states);

  /// An object serves one engine at a time: false if it is taken. For engines.
  bool Take() { return !taken_.exchange(true); }
  void Return() { taken_ = false; }

 private:
  std::atomic<bool> taken_ = false;
};

/// Which parameters are compressed. The others are summed exactly, in one all-reduce a bucket, as
/// are those that are not fp32.
struct CompressionScope {
  /// Patterns over names (`*` any text, `?` any one character) of parameters that stay exact.
  std::vector<std::string> exact;
  /// True for a parameter that stays exact; the same on all ranks.
  std::function<bool(const ParameterInfo&)> is_exact;
  /// Parameters of fewer elements stay exact. ≥ 0.
  std::int64_t min_elements = 1024;
};

enum class ErrorFeedback { kOff, kOn };

/// Every rank rounds to bf16; sums are made in fp32 in rank order and rounded to bf16 once, which
/// is what all ranks get. No state. The same bits for any bucket size.
struct Bf16CompressionOptions {
  CompressionScope scope = {.min_elements = 0};
};
std::shared_ptr<GradientCompression> Bf16Compression(Bf16CompressionOptions options = {});

/// Blocks of one parameter are scaled by their largest magnitude to -127 … 127. Owners add the
/// decoded blocks of all ranks in fp32, in rank order, and quantise the sum once more; all ranks
/// decode the same bytes. With error feedback an owner keeps the error of the sum too. Without it,
/// the bits are the same for any bucket size.
struct Int8CompressionOptions {
  std::int64_t block = 256;  // elements; a multiple of 64, at most 65536
  ErrorFeedback error_feedback = ErrorFeedback::kOn;
  CompressionScope scope;
};
std::shared_ptr<GradientCompression> Int8Compression(Int8CompressionOptions options = {});

/// Every rank sends the `ratio` of each parameter that is largest in magnitude, with its residual
/// added (deep gradient compression, arXiv:1712.01887, without its momentum correction). Traffic
/// grows with the world size: a bucket for which that would not be less than an all-reduce, ratio
/// ≥ 1/N, is summed exactly. The same bits for any bucket size.
struct TopKCompressionOptions {
  double ratio = 0.01;  // of the elements; above 0, at most 1. At least one element a parameter
  /// The first steps send more: step s of w sends ratio^((s+1)/(w+1)), as in the paper's warm-up.
  std::int64_t warmup_steps = 0;
  CompressionScope scope;
};
std::shared_ptr<GradientCompression> TopKCompression(TopKCompressionOptions options = {});

/// A parameter of two or more dimensions is a matrix, its outermost dimension the rows; the sum M
/// over ranks becomes P·Qᵀ, P = orthonormal(M·Q₀), Q = Mᵀ·P, with Q₀ of the step before (PowerSGD,
/// arXiv:1905.13727, algorithm 1). A rank keeps its own M - P·Qᵀ as residual. Parameters of one
/// dimension, and matrices that are not made smaller by `min_ratio`, stay exact. The same bits for
/// any bucket size.
struct PowerSgdCompressionOptions {
  int rank = 4;                  // of the factors; 1 to 64
  std::int64_t start_step = 10;  // so many first steps are exact
  double min_ratio = 2;          // elements / (rank · (rows + columns)); ≥ 1
  ErrorFeedback error_feedback = ErrorFeedback::kOn;
  std::uint64_t seed = 1;  // of the first Q₀
  CompressionScope scope = {.min_elements = 0};
};
std::shared_ptr<GradientCompression> PowerSgdCompression(PowerSgdCompressionOptions options = {});

/// Compresses between hosts only: inside a host, sums are exact. Buckets go in turn to the ranks of
/// a host; one of them adds the host's gradients up, reduces the sum with its like on the other
/// hosts by `compression`, and gives the result to the rest. So a bucket leaves a host once,
/// however many ranks the host has. Every host has the same number of ranks. Order of sums: host by
/// host, and rank by rank inside. Counters are of what leaves the host, on the rank that sends it.
///
///   host = all->Split(host number, rank);   across = all->Split(number within the host, rank);
///
/// These two are the engine's from the last micro-step to FinishGradients. After a change of the
/// number of ranks a host, residuals begin at zero.
struct BetweenHostsOptions {
  std::shared_ptr<GradientCompression> compression;
  std::shared_ptr<Communicator> host;    // the ranks of this host
  std::shared_ptr<Communicator> across;  // the ranks of this number on all hosts
};
std::shared_ptr<GradientCompression> CompressionBetweenHosts(BetweenHostsOptions options);

/// For command lines: "none" (nullptr), "bf16", "int8", "topk", "powersgd", the last three also
/// with their number: "int8:128" (block), "topk:0.01" (ratio), "powersgd:8" (rank).
/// **Errors.** InvalidArgument: what is allowed.
StatusOr<std::shared_ptr<GradientCompression>> CompressionNamed(std::string_view text);

}  // namespace ait::inline v0

#endif  // AIT_PARALLEL_COMPRESSION_H_
