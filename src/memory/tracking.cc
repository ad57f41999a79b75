// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/tracking.h"

#include <cxxabi.h>
#include <execinfo.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

namespace ait::inline v0 {
namespace {

constexpr int kMaxDepth = 64;
constexpr std::string_view kUnlabelled = "unlabelled";

// A plain pointer: it needs no destruction, so labels work in threads that are ending and after
// main returns.
constinit thread_local const MemoryLabel* innermost = nullptr;

std::string LabelText(const std::shared_ptr<const std::string>& label) {
  return label != nullptr ? *label : std::string(kUnlabelled);
}

/// Not inlined: its own frame is the one that is left out.
[[gnu::noinline]] std::vector<void*> TakeStack(int depth) {
  void* frames[kMaxDepth + 2];
  // Without this function and DoAllocate.
  const int count = backtrace(frames, std::min(depth, kMaxDepth) + 2);
  return count > 2 ? std::vector<void*>(frames + 2, frames + count) : std::vector<void*>();
}

/// "file(_ZN3ait...+0x12) [0x...]" as backtrace_symbols(3) writes it, the name made readable.
std::string Readable(const std::string& line) {
  const std::size_t open = line.find('(');
  const std::size_t plus = open == std::string::npos ? open : line.find('+', open);
  if (plus == std::string::npos || plus == open + 1) return line;
  int status = 0;
  const std::string name = line.substr(open + 1, plus - open - 1);
  char* const readable = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  if (status != 0) return line;
  std::string result = StrCat(line.substr(0, open + 1), readable, line.substr(plus));
  std::free(readable);
  return result;
}

std::vector<std::string> Symbols(const std::vector<void*>& stack) {
  std::vector<std::string> lines;
  if (stack.empty()) return lines;
  char** const symbols = backtrace_symbols(stack.data(), static_cast<int>(stack.size()));
  if (symbols == nullptr) return lines;
  for (std::size_t i = 0; i < stack.size(); ++i) lines.push_back(Readable(symbols[i]));
  std::free(static_cast<void*>(symbols));
  return lines;
}

std::string InBlocks(std::int64_t bytes, std::int64_t count) {
  return StrCat(bytes, " bytes in ", count, count == 1 ? " block" : " blocks");
}

}  // namespace

MemoryLabel::MemoryLabel(std::string_view label) : outer_(innermost) {
  text_ = std::make_shared<const std::string>(outer_ != nullptr ? StrCat(*outer_->text_, "/", label)
                                                                : std::string(label));
  innermost = this;
}

MemoryLabel::~MemoryLabel() { innermost = outer_; }

std::string MemoryLabel::Current() { return innermost != nullptr ? *innermost->text_ : ""; }

std::shared_ptr<TrackingResource> TrackingResource::Create(MemoryHandle upstream,
                                                           const TrackingOptions& options) {
  return std::shared_ptr<TrackingResource>(new TrackingResource(std::move(upstream), options));
}

TrackingResource::TrackingResource(MemoryHandle upstream, const TrackingOptions& options)
    : MemoryAdaptor("tracking", std::move(upstream)), options_(options) {}

TrackingResource::~TrackingResource() {
  if (options_.log == nullptr || blocks_.empty()) return;
  for (const MemoryHolder& holder : Holders()) {
    Log(options_.log, Severity::kWarning, "memory",
        StrCat(properties().name, " goes away while ", holder.label, " holds ",
               InBlocks(holder.bytes, holder.count)));
  }
}

StatusOr<void*> TrackingResource::DoAllocate(std::size_t bytes, std::size_t alignment) {
  AIT_ASSIGN_OR_RETURN(void* const block, upstream().Allocate(bytes, alignment));
  Block held{.bytes = bytes};
  if (innermost != nullptr) held.label = innermost->text_;
  if (options_.stack_depth > 0) held.stack = TakeStack(options_.stack_depth);
  const std::lock_guard lock(mutex_);
  blocks_.insert_or_assign(block, std::move(held));
  return block;
}

void TrackingResource::DoDeallocate(void* block, std::size_t bytes, std::size_t alignment) {
  {
    // First, since another thread may get the address as soon as it is free.
    const std::lock_guard lock(mutex_);
    if (blocks_.erase(block) == 0) {
      ++unmatched_count_;
      return;
    }
  }
  upstream().Deallocate(block, bytes, alignment);
}

std::vector<MemoryHolder> TrackingResource::Holders() const {
  std::map<std::string, MemoryHolder, std::less<>> by_label;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [address, block] : blocks_) {
      const std::string_view label = block.label != nullptr ? *block.label : kUnlabelled;
      auto holder = by_label.find(label);
      if (holder == by_label.end()) holder = by_label.emplace(label, MemoryHolder()).first;
      holder->second.bytes += static_cast<std::int64_t>(block.bytes);
      ++holder->second.count;
    }
  }
  std::vector<MemoryHolder> holders;
  for (auto& [label, holder] : by_label) {
    holder.label = label;
    holders.push_back(std::move(holder));
  }
  std::ranges::stable_sort(holders, std::ranges::greater(), &MemoryHolder::bytes);
  return holders;
}

std::vector<MemoryHolder> TrackingResource::Largest(int n) const {
  std::vector<MemoryHolder> holders = Holders();
  holders.resize(std::min(holders.size(), static_cast<std::size_t>(std::max(n, 0))));
  return holders;
}

std::vector<HeldBlock> TrackingResource::Leaks() const {
  std::vector<std::pair<const void*, Block>> blocks;
  {
    const std::lock_guard lock(mutex_);
    blocks.assign(blocks_.begin(), blocks_.end());
  }
  std::ranges::sort(blocks, [](const auto& a, const auto& b) {
    return a.second.bytes != b.second.bytes ? a.second.bytes > b.second.bytes : a.first < b.first;
  });
  std::vector<HeldBlock> leaks;
  for (const auto& [address, block] : blocks) {
    leaks.push_back({.address = address,
                     .bytes = block.bytes,
                     .label = LabelText(block.label),
                     .stack = Symbols(block.stack)});
  }
  return leaks;
}

std::string TrackingResource::Describe(int holders) const {
  const std::vector<MemoryHolder> all = Holders();
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  for (const MemoryHolder& holder : all) {
    bytes += holder.bytes;
    count += holder.count;
  }
  std::string text = StrCat(properties().name, ": ", InBlocks(bytes, count), " held");
  std::size_t shown = 0;
  for (const MemoryHolder& holder : all) {
    if (shown == static_cast<std::size_t>(std::max(holders, 0))) break;
    text += StrCat("\n  ", holder.label, ": ", InBlocks(holder.bytes, holder.count));
    bytes -= holder.bytes;
    count -= holder.count;
    ++shown;
  }
  if (shown < all.size()) {
    text += StrCat("\n  ", all.size() - shown, " more: ", InBlocks(bytes, count));
  }
  return text;
}

std::int64_t TrackingResource::unmatched_count() const {
  const std::lock_guard lock(mutex_);
  return unmatched_count_;
}

}  // namespace ait::inline v0
