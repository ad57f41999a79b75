// SPDX-License-Identifier: Apache-2.0
#include "tensor/catch.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ait/base/throw_on_error.h"
#include "base/memory_refusal.h"

namespace ait::inline v0::internal {
namespace {

// What libtorch's CPU allocator says when the system gives no memory: it throws a plain c10::Error.
bool SaysOutOfMemory(std::string_view text) {
  return text.find("can't allocate memory") != std::string_view::npos ||
         text.find("not enough memory") != std::string_view::npos;
}

// The text of a c10::Error, without what libtorch appends about its own source and call stack.
std::string TextOf(const c10::Error& error) {
  std::string text = error.what_without_backtrace();
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

// libtorch's devices say "CUDA out of memory. …"; a resource of ours in its place says otherwise.
bool SaysDevice(std::string_view text) {
  for (const std::string_view device : {"CUDA out", "HIP out", "XPU out", "MPS backend out"}) {
    if (text.find(device) != std::string_view::npos) return true;
  }
  return false;
}

// The number of bytes after `before`, such as "4096 bytes" or "2.00 GiB".
std::optional<Bytes> BytesAfter(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + before.size());
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {" bytes", 1}, {" KiB", 0x1p10}, {" MiB", 0x1p20}, {" GiB", 0x1p30}};
  for (const auto& [unit, size] : kUnits) {
    const double bytes = number * size;
    if (text.starts_with(unit) && bytes < 0x1p63) return Bytes(static_cast<std::int64_t>(bytes));
  }
  return std::nullopt;
}

// "libtorch asked for 4096 bytes: …" of a resource, "… you tried to allocate 4096 bytes …" of the
// CPU, "Tried to allocate 2.00 GiB. …" of a device.
std::optional<Bytes> AskedIn(std::string_view text) {
  for (const std::string_view before : {"asked for ", "ried to allocate ", "cannot allocate "}) {
    if (const auto asked = BytesAfter(text, before)) return asked;
  }
  return std::nullopt;
}

StatusCode CodeOf(const c10::Error& error) {
  if (dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr) {
    return StatusCode::kUnimplemented;
  }
  if (dynamic_cast<const c10::ValueError*>(&error) != nullptr ||
      dynamic_cast<const c10::IndexError*>(&error) != nullptr ||
      dynamic_cast<const c10::TypeError*>(&error) != nullptr) {
    return StatusCode::kInvalidArgument;
  }
  if (dynamic_cast<const c10::DistError*>(&error) != nullptr) return StatusCode::kUnavailable;
  return StatusCode::kUnknown;
}

Status StatusOf(const c10::Error& error) {
  const std::string text = TextOf(error);
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr || SaysOutOfMemory(text)) {
    return WithRefusal(ResourceExhaustedError(text),
                       {.on_device = SaysDevice(text), .asked = AskedIn(text)});
  }
  return MakeStatus(CodeOf(error), {text});
}

}  // namespace

Status StatusFromCurrentException() noexcept {
  try {
    throw;
  } catch (const StatusException& error) {
    return error.status();
  } catch (const c10::Error& error) {
    return StatusOf(error);
  } catch (const std::bad_alloc&) {
    return WithRefusal(ResourceExhaustedError("out of memory"), {});
  } catch (const std::exception& error) {
    return MakeStatus(StatusCode::kUnknown, {error.what()});
  } catch (...) {
    return MakeStatus(StatusCode::kUnknown, {"an exception that is not a std::exception"});
  }
}

}  // namespace ait::inline v0::internal
