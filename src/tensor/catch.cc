// SPDX-License-Identifier: Apache-2.0
#include "tensor/catch.h"

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "ait/base/throw_on_error.h"

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

StatusCode CodeOf(const c10::Error& error, std::string_view text) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr || SaysOutOfMemory(text)) {
    return StatusCode::kResourceExhausted;
  }
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

}  // namespace

Status StatusFromCurrentException() noexcept {
  try {
    throw;
  } catch (const StatusException& error) {
    return error.status();
  } catch (const c10::Error& error) {
    const std::string text = TextOf(error);
    return MakeStatus(CodeOf(error, text), {text});
  } catch (const std::bad_alloc&) {
    return ResourceExhaustedError("out of memory");
  } catch (const std::exception& error) {
    return MakeStatus(StatusCode::kUnknown, {error.what()});
  } catch (...) {
    return MakeStatus(StatusCode::kUnknown, {"an exception that is not a std::exception"});
  }
}

}  // namespace ait::inline v0::internal
