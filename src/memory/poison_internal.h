// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_POISON_INTERNAL_H_
#define AIT_MEMORY_POISON_INTERNAL_H_

// Tells AddressSanitizer, where it is built in, which bytes of a pool belong to nobody, so that a use
// after free and an overrun are found in pooled memory as they are in malloc's.

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define AIT_INTERNAL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AIT_INTERNAL_ASAN 1
#endif
#endif

#ifdef AIT_INTERNAL_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace ait::inline v0::internal {

#ifdef AIT_INTERNAL_ASAN
constexpr bool kPoisons = true;
inline void Poison(const void* begin, std::size_t bytes) {
  __asan_poison_memory_region(begin, bytes);
}
inline void Unpoison(const void* begin, std::size_t bytes) {
  __asan_unpoison_memory_region(begin, bytes);
}
inline bool IsPoisoned(const void* byte) { return __asan_address_is_poisoned(byte) != 0; }
#else
constexpr bool kPoisons = false;
inline bool IsPoisoned(const void*) { return false; }
inline void Poison(const void*, std::size_t) {}
inline void Unpoison(const void*, std::size_t) {}
#endif

}  // namespace ait::inline v0::internal

#endif  // AIT_MEMORY_POISON_INTERNAL_H_
