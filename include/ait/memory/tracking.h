// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_TRACKING_H_
#define AIT_MEMORY_TRACKING_H_

// Who holds what: an adaptor that remembers each block that is out, under the label of the scope
// that took it, and the call stack if so asked.
//
//   auto tracked = TrackingResource::Create(HeapResource::Create());
//   {
//     MemoryLabel label("loader");                      // of this thread, until the scope ends
//     AIT_ASSIGN_OR_RETURN(batch, HostBuffer::Create(tracked, bytes));
//   }
//   for (const MemoryHolder& holder : tracked->Largest(5)) Print(holder.label, holder.bytes);
//   Print(tracked->Describe());   // "loader: 4096 bytes in 1 block"
//
// Labels nest: inside "forward", MemoryLabel("attention") is "forward/attention". A block keeps its
// label when the scope, the thread or the program's own string is gone. A thread starts without a
// label; give it that of another with MemoryLabel(MemoryLabel::Current()).
//
// It costs one look-up in a hash table for each call, and about 100 bytes for each block; with
// stacks, a microsecond or more. A block that is not out (freed twice, or never taken from here) is
// counted and not passed on; to find out which one it was, use a GuardResource ("guard.h").

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ait/base/log.h"
#include "ait/memory/adaptor.h"
#include "ait/memory/fork_safe_mutex.h"

namespace ait::inline v0 {

/// A name for what the calling thread allocates, from here to the end of the scope. Made and
/// destroyed on one thread, the inner one first; as a local variable it is.
class [[nodiscard]] MemoryLabel {
 public:
  /// Inside another label of this thread it goes behind it, after a slash.
  explicit MemoryLabel(std::string_view label);
  MemoryLabel(const MemoryLabel&) = delete;
  MemoryLabel& operator=(const MemoryLabel&) = delete;
  ~MemoryLabel();

  /// The label of this thread, with all outer ones; empty if there is none.
  static std::string Current();

 private:
  friend class TrackingResource;
  std::shared_ptr<const std::string> text_;
  const MemoryLabel* outer_;
};

/// All blocks of one label.
struct MemoryHolder {
  std::string label;       // "unlabelled" if they had none
  std::int64_t bytes = 0;  // as asked for
  std::int64_t count = 0;  // blocks

  friend bool operator==(const MemoryHolder&, const MemoryHolder&) = default;
};

/// A block that is out.
struct HeldBlock {
  const void* address = nullptr;
  std::size_t bytes = 0;
  std::string label;
  std::vector<std::string> stack;  // innermost call first; empty if stacks are not kept
};

struct TrackingOptions {
  int stack_depth = 0;     ///< calls kept with each block, at most 64; 0: no stack
  LogSink* log = nullptr;  ///< gets what is still held when the resource goes away
};

class TrackingResource final : public MemoryAdaptor {
 public:
  static std::shared_ptr<TrackingResource> Create(MemoryHandle upstream,
                                                  const TrackingOptions& options = {});
  ~TrackingResource() override;

  /// Everybody who holds something, the largest first; equal ones by label.
  std::vector<MemoryHolder> Holders() const;
  /// The first `n` of these.
  std::vector<MemoryHolder> Largest(int n) const;

  /// All blocks that are out, the largest first. Where all should have been given back, the leaks.
  std::vector<HeldBlock> Leaks() const;

  /// Blocks and bytes that are out, and the largest holders, a line each; for people.
  std::string Describe(int holders = 5) const;

  /// How often a block was given back that was not out.
  std::int64_t unmatched_count() const;

 private:
  struct Block {
    std::size_t bytes = 0;
    std::shared_ptr<const std::string> label;
    std::vector<void*> stack;
  };

  TrackingResource(MemoryHandle upstream, const TrackingOptions& options);
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override;
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override;

  const TrackingOptions options_;
  mutable ForkSafeMutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  std::int64_t unmatched_count_ = 0;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_TRACKING_H_
