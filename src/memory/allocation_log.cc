// SPDX-License-Identifier: Apache-2.0
// The formats of the events of "ait/memory/logging.h", and their replay.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ait/memory/logging.h"

namespace ait::inline v0 {
namespace {

constexpr std::string_view kHeader = "time_ns,thread,event,address,bytes,alignment,result";
constexpr std::size_t kColumns = 7;

std::string_view NameOf(AllocationEventKind kind) {
  return kind == AllocationEventKind::kAllocate ? "allocate" : "deallocate";
}

std::string Hexadecimal(std::uint64_t value) {
  char digits[16];
  return "0x" + std::string(digits, std::to_chars(digits, digits + sizeof(digits), value, 16).ptr);
}

template <typename T>
bool ReadNumber(std::string_view text, T& value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

std::optional<StatusCode> ReadCode(std::string_view text) {
  for (int code = 0; code <= static_cast<int>(StatusCode::kUnauthenticated); ++code) {
    if (CodeName(static_cast<StatusCode>(code)) == text) return static_cast<StatusCode>(code);
  }
  return std::nullopt;
}

std::optional<AllocationEvent> ReadLine(std::string_view line) {
  std::array<std::string_view, kColumns> columns;
  for (std::size_t i = 0; i < kColumns; ++i) {
    const std::size_t comma = line.find(',');
    if ((comma == std::string_view::npos) != (i + 1 == kColumns)) return std::nullopt;
    columns[i] = line.substr(0, comma);
    line.remove_prefix(comma == std::string_view::npos ? line.size() : comma + 1);
  }
  AllocationEvent event;
  std::int64_t nanoseconds = 0;
  const std::optional<StatusCode> code = ReadCode(columns[6]);
  if (!ReadNumber(columns[0], nanoseconds) || !ReadNumber(columns[1], event.thread) ||
      !columns[3].starts_with("0x") || !ReadNumber(columns[3].substr(2), event.address, 16) ||
      !ReadNumber(columns[4], event.bytes) || !ReadNumber(columns[5], event.alignment) || !code) {
    return std::nullopt;
  }
  if (columns[2] == NameOf(AllocationEventKind::kDeallocate)) {
    event.kind = AllocationEventKind::kDeallocate;
  } else if (columns[2] != NameOf(AllocationEventKind::kAllocate)) {
    return std::nullopt;
  }
  event.time = std::chrono::nanoseconds(nanoseconds);
  event.result = *code;
  return event;
}

}  // namespace

std::string AllocationCsvHeader() { return StrCat(kHeader, "\n"); }

std::string ToCsv(const AllocationEvent& event) {
  return StrCat(event.time.count(), ",", event.thread, ",", NameOf(event.kind), ",",
                Hexadecimal(event.address), ",", event.bytes, ",", event.alignment, ",",
                CodeName(event.result), "\n");
}

std::string ToJson(const AllocationEvent& event) {
  return StrCat("{\"time_ns\":", event.time.count(), ",\"thread\":", event.thread, ",\"event\":\"",
                NameOf(event.kind), "\",\"address\":\"", Hexadecimal(event.address),
                "\",\"bytes\":", event.bytes, ",\"alignment\":", event.alignment, ",\"result\":\"",
                CodeName(event.result), "\"}\n");
}

StatusOr<std::vector<AllocationEvent>> ParseAllocationCsv(std::string_view text) {
  std::vector<AllocationEvent> events;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty() || line == kHeader) continue;
    const std::optional<AllocationEvent> event = ReadLine(line);
    if (!event) {
      return InvalidArgumentError("line ", number, " of a log of allocations is \"",
                                  line.substr(0, 80), "\"; expected ", kHeader);
    }
    events.push_back(*event);
  }
  return events;
}

StatusOr<ReplayResult> ReplayAllocations(std::span<const AllocationEvent> events,
                                         const MemoryHandle& memory) {
  struct Block {
    void* block;  // nullptr: it failed now
    std::size_t bytes;
    std::size_t alignment;
  };
  struct Out {
    const MemoryHandle& memory;
    std::unordered_map<std::uint64_t, Block> blocks;

    explicit Out(const MemoryHandle& from) : memory(from) {}
    Out(const Out&) = delete;
    Out& operator=(const Out&) = delete;
    ~Out() {
      for (const auto& [address, out] : blocks) {
        if (out.block != nullptr) memory.Deallocate(out.block, out.bytes, out.alignment);
      }
    }
  };
  ReplayResult result;
  Out out(memory);
  std::int64_t held = 0;
  for (const AllocationEvent& event : events) {
    if (event.result != StatusCode::kOk || event.address == 0) continue;
    if (event.kind == AllocationEventKind::kAllocate) {
      const StatusOr<void*> block = memory.Allocate(event.bytes, event.alignment);
      ++(block.ok() ? result.allocations : result.failures);
      if (block.ok()) held += static_cast<std::int64_t>(event.bytes);
      const Block made = {block.ok() ? *block : nullptr, event.bytes, event.alignment};
      if (!out.blocks.emplace(event.address, made).second) {
        if (made.block != nullptr) memory.Deallocate(made.block, made.bytes, made.alignment);
        return InvalidArgumentError("the log allocates ", Hexadecimal(event.address),
                                    " while it is out; was it cut or put together?");
      }
      result.peak_bytes = std::max(result.peak_bytes, held);
      continue;
    }
    const auto found = out.blocks.find(event.address);
    if (found == out.blocks.end() || found->second.bytes != event.bytes) {
      return InvalidArgumentError(
          "the log gives back ", event.bytes, " bytes at ", Hexadecimal(event.address),
          found == out.blocks.end() ? ", which are not out"
                                    : StrCat(", where ", found->second.bytes, " are out"));
    }
    if (found->second.block != nullptr) {
      memory.Deallocate(found->second.block, event.bytes, event.alignment);
      held -= static_cast<std::int64_t>(event.bytes);
      ++result.deallocations;
    }
    out.blocks.erase(found);
  }
  for (const auto& [address, block] : out.blocks) result.left_count += block.block != nullptr;
  return result;
}

}  // namespace ait::inline v0
