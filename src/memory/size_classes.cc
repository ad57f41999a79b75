// SPDX-License-Identifier: Apache-2.0
#include "memory/size_classes_internal.h"

#include <bit>

namespace ait::inline v0::internal {
namespace {

std::size_t ObjectsOf(std::size_t size_class) {
  return SlabPages(size_class) * kPage / BytesOfClass(size_class);
}

}  // namespace

void SlabLists::Link(List& list, Span* slab) {
  slab->previous = nullptr;
  slab->next = list.first;
  if (list.first != nullptr) list.first->previous = slab;
  list.first = slab;
}

void SlabLists::Unlink(List& list, Span* slab) {
  (slab->previous != nullptr ? slab->previous->next : list.first) = slab->next;
  if (slab->next != nullptr) slab->next->previous = slab->previous;
}

std::size_t SlabLists::Take(std::size_t size_class, void** objects, std::size_t count) {
  List& list = lists_[size_class];
  const std::size_t size = BytesOfClass(size_class);
  std::size_t taken = 0;
  while (taken < count && list.first != nullptr) {
    Span* const slab = list.first;
    if (list.empty == slab) list.empty = nullptr;
    for (std::size_t i = 0; i < slab->free.size() && taken < count; ++i) {
      std::uint64_t& word = slab->free[i];
      for (; word != 0 && taken < count; word &= word - 1) {
        const std::size_t index = i * 64 + static_cast<std::size_t>(std::countr_zero(word));
        objects[taken++] = slab->data() + index * size;
        --slab->free_objects;
      }
    }
    if (slab->free_objects == 0) Unlink(list, slab);
  }
  return taken;
}

void SlabLists::Add(Span* span, std::size_t size_class) {
  const std::size_t objects = ObjectsOf(size_class);
  span->size_class = static_cast<std::uint8_t>(size_class);
  span->free_objects = static_cast<std::uint16_t>(objects);
  for (std::size_t i = 0; i < objects; ++i) span->free[i / 64] |= std::uint64_t{1} << i % 64;
  Link(lists_[size_class], span);
}

void SlabLists::Give(void* object) {
  Span* const slab = heap_.SpanAt(object);
  List& list = lists_[slab->size_class];
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(object) - slab->data());
  const std::size_t index = offset / BytesOfClass(slab->size_class);
  slab->free[index / 64] |= std::uint64_t{1} << index % 64;
  if (slab->free_objects++ == 0) Link(list, slab);
  if (slab->free_objects < ObjectsOf(slab->size_class)) return;
  if (list.empty == nullptr) {
    list.empty = slab;
    return;
  }
  Unlink(list, slab);
  heap_.Free(slab);
}

void SlabLists::FreeEmpty() {
  for (List& list : lists_) {
    if (list.empty == nullptr) continue;
    Unlink(list, list.empty);
    heap_.Free(list.empty);
    list.empty = nullptr;
  }
}

}  // namespace ait::inline v0::internal
