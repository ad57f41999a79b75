// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_INSIDE_INTERNAL_H_
#define AIT_MEMORY_INSIDE_INTERNAL_H_

// Whether this thread is inside a function that it was called from: for callbacks of a resource
// that may use the resource.

namespace ait::inline v0::internal {

/// While it lives, `Is(object)` is true on this thread. Nothing but a local variable.
class Inside {
 public:
  explicit Inside(const void* object) : object_(object), outer_(innermost_) { innermost_ = this; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { innermost_ = outer_; }

  static bool Is(const void* object) {
    for (const Inside* at = innermost_; at != nullptr; at = at->outer_) {
      if (at->object_ == object) return true;
    }
    return false;
  }

 private:
  inline static constinit thread_local const Inside* innermost_ = nullptr;

  const void* object_;
  const Inside* outer_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_MEMORY_INSIDE_INTERNAL_H_
