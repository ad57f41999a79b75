// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_GUARD_H_
#define AIT_MEMORY_GUARD_H_

// A resource for finding wrong uses of memory, in a program that is not built for it: each block
// lies between pages that nothing can touch, and a freed block stays untouchable for a while.
//
//   auto memory = GuardResource::Create({.on_error = [](const Status& error) { Print(error); }});
//
// | mistake                            | what happens                                              |
// |------------------------------------|-----------------------------------------------------------|
// | access behind the end              | the process gets SIGSEGV there (see `GuardedEdge`)        |
// | access after the block was freed   | the same, while the block is in quarantine                |
// | write into the rest of the pages   | an error when the block is freed, or by `Check`           |
// | double free, pointer into a block, | an error; nothing is freed                                |
// | pointer of another resource        |                                                           |
// | freed with another size, alignment | an error; the block is freed                              |
// | not freed at all                   | an error when the resource goes away                      |
// | read before the first write        | the value is 0xcd in every byte, not zero by chance       |
//
// Errors go to the callback, the log and `errors()`, since a release has no caller to return to:
// FailedPrecondition for a double free, InvalidArgument for a wrong pointer, size or alignment,
// DataLoss for bytes that were written over. The library never ends the process; the fault does.
//
// Each block takes at least three pages of addresses, three system calls, and two of the mappings of
// which a process may have 65,530 (vm.max_map_count). It is for debugging, not for production.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ait/base/log.h"
#include "ait/base/types.h"
#include "ait/memory/fork_safe_mutex.h"
#include "ait/memory/resource.h"

namespace ait::inline v0 {

/// At which end of a block the first byte outside of it is untouchable. At the other end, up to a
/// page lies between the block and the guard page; writes there are found when it is freed.
enum class GuardedEdge {
  kEnd,  ///< but for what rounds its size up to its alignment: up to 127 bytes, and if it was asked
         ///< for with more than 128, up to 1 byte less than that (4,095 of 4,096)
  kBegin,  ///< where indices below zero are what is looked for
};

struct GuardOptions {
  GuardedEdge edge = GuardedEdge::kEnd;
  /// Addresses of freed blocks that stay untouchable, at most; they take no memory.
  Bytes quarantine = GiB(1);
  std::function<void(const Status&)> on_error = {};  ///< on the thread at fault, without a lock
  LogSink* log = nullptr;
};

class GuardResource final : public MemoryResource {
 public:
  static std::shared_ptr<GuardResource> Create(const GuardOptions& options = {});
  /// Blocks that are still out are errors, and become untouchable.
  ~GuardResource() override;

  MemoryProperties properties() const override { return {.name = "guard"}; }

  /// The first 100 errors so far, and how many there were.
  std::vector<Status> errors() const;
  std::int64_t error_count() const;

  /// Looks at what lies around all blocks that are out. **Errors.** DataLoss: the first block beside
  /// which something was written; it is not counted among the errors.
  Status Check() const;

 private:
  struct Block {
    std::byte* map = nullptr;  // all of it, with the guard pages
    std::size_t map_bytes = 0;
    std::byte* pages = nullptr;  // what can be touched
    std::size_t page_bytes = 0;
    std::size_t bytes = 0;
    std::size_t alignment = 0;
    std::string label;  // of the scope that took it
    bool is_freed = false;
  };
  using Blocks = std::map<std::uintptr_t, Block>;

  explicit GuardResource(const GuardOptions& options) : options_(options) {}
  StatusOr<void*> DoAllocate(std::size_t bytes, std::size_t alignment) override;
  void DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  static Status CheckAround(std::uintptr_t begin, const Block& block);
  Status WrongPointer(std::uintptr_t address) const;
  std::vector<Block> TakeQuarantineAbove(std::size_t bytes);
  void Report(const Status& error);

  const GuardOptions options_;
  mutable ForkSafeMutex mutex_;
  Blocks blocks_;                           // by address; also those in quarantine
  std::deque<std::uintptr_t> quarantined_;  // the oldest first
  std::size_t quarantined_bytes_ = 0;
  std::vector<Status> errors_;
  std::int64_t error_count_ = 0;
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_GUARD_H_
