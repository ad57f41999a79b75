// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_SEGMENT_RECORDER_INTERNAL_H_
#define AIT_ACTIVATION_SEGMENT_RECORDER_INTERNAL_H_

// What a step that keeps everything tells of its segments.
//
// The step is cut into stages: segments and the gaps between them, 2 n + 1 in all; stage 2 i + 1 is
// segment i. Forward enters them in order. Backward comes to segment i when the gradient of one of
// its results is there, and leaves it when that of one of its inputs is.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "activation/live_bytes_internal.h"
#include "ait/activation/planner.h"
#include "ait/activation/saved_tensors.h"

namespace ait::inline v0::internal {

class SegmentRecorder final : public std::enable_shared_from_this<SegmentRecorder> {
 public:
  SegmentRecorder();

  // Forward, called by SegmentCall.
  int Open(std::string_view name);  // the number of the segment
  void Input(int segment, const at::Tensor& tensor);
  void Begin(int segment);
  void End(int segment);
  void Result(int segment, const at::Tensor& tensor);
  /// Watches what is saved; `segment` -1: outside of all.
  std::shared_ptr<SavedTensorPolicy> Watch(int segment);

  /// The step is over.
  StatusOr<StepProfile> Finish(const MemoryPlannerOptions& options,
                               const ActivationPlanOptions& plan);

 private:
  using Clock = std::chrono::steady_clock;
  class Watcher;

  struct Segment {
    std::string name;
    std::unordered_set<std::int64_t> inputs, saved, results;  // serials of blocks
    std::int64_t first_serial = 0, end_serial = 0;            // those that its forward has made
    Clock::time_point begin;
    double seconds = 0;  // until the last tensor was saved
  };
  struct Stage {
    std::int64_t before = 0;  // live when its forward began
    std::int64_t peak = 0;    // the most that was live in it
  };

  Segment& at(int segment) { return segments_[static_cast<std::size_t>(segment)]; }
  void Enter(std::size_t stage);     // forward
  void ComeBack(std::size_t stage);  // backward
  void TakePeak();
  void Saved(int segment, const at::Tensor& tensor);
  std::int64_t BytesOf(const std::unordered_set<std::int64_t>& serials) const;

  LiveBytes live_;
  Clock::time_point begin_ = Clock::now();
  std::vector<Segment> segments_;
  std::vector<Stage> stages_;
  std::size_t stage_ = 0;  // that runs
  bool is_back_ = false;   // backward has begun
  int depth_ = 0;          // of segments in segments; inner ones are part of the outer one
  std::string twice_;      // a segment that ran twice
  std::unordered_map<std::int64_t, std::int64_t> bytes_;  // of blocks that were saved or passed on
  std::unordered_map<std::int64_t, int> savers_;          // segments (and outside) that saved them
  std::unordered_set<std::int64_t> saved_outside_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_SEGMENT_RECORDER_INTERNAL_H_
