// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "data/decode/bpe_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kLongPiece = 64;  // from here on a heap finds the least rank

std::uint64_t Mix(std::uint64_t a, std::uint64_t b) {
  const auto product =
      static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15) * (b ^ 0xD1B54A32D192ED03);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t HashOf(std::string_view piece) {
  std::uint64_t words[3] = {};
  std::memcpy(words, piece.data(), piece.size());
  return Mix(Mix(words[0], words[1]), words[2] ^ piece.size() << 56);
}

}  // namespace

PieceCache::Slot& PieceCache::Find(std::string_view piece, bool& is_there) {
  Slot& slot = slots_[HashOf(piece) & (kSlots - 1)];
  is_there = slot.size == piece.size() && std::memcmp(slot.bytes, piece.data(), piece.size()) == 0;
  return slot;
}

Status Bpe::SetTokens(std::vector<std::string> tokens, bool takes_whole_pieces) {
  tokens_ = std::move(tokens);
  takes_whole_pieces_ = takes_whole_pieces;
  ids_.reserve(tokens_.size());
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (!tokens_[i].empty()) ids_.emplace(tokens_[i], static_cast<std::int32_t>(i));
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const std::int32_t* id = Find({&c, 1});
    if (id == nullptr) {
      return InvalidArgumentError("the vocabulary has no token of the single byte ", byte,
                                  "; it is not one of bytes");
    }
    byte_ids_[static_cast<std::size_t>(byte)] = *id;
  }
  return OkStatus();
}

void Bpe::AddPair(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t joined) {
  added_.push_back({KeyOf(left, right), rank, joined});
}

void Bpe::AddPairsOfRanks() {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view token = tokens_[i];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const std::int32_t* left = Find(token.substr(0, cut));
      if (left == nullptr) continue;
      const std::int32_t* right = Find(token.substr(cut));
      if (right == nullptr) continue;
      AddPair(*left, *right, static_cast<std::uint32_t>(i), static_cast<std::int32_t>(i));
    }
  }
}

void Bpe::Finish() {
  table_.assign(std::bit_ceil(std::max<std::size_t>(16, added_.size() * 2)), none_);
  mask_ = table_.size() - 1;
  for (const Pair& pair : added_) {  // the last of equal ones stays
    std::size_t at = Mix(pair.key, 0) & mask_;
    while (table_[at].joined >= 0 && table_[at].key != pair.key) at = (at + 1) & mask_;
    table_[at] = pair;
  }
  added_ = {};
}

const Bpe::Pair& Bpe::FindPair(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = KeyOf(left, right);
  for (std::size_t at = Mix(key, 0) & mask_;; at = (at + 1) & mask_) {
    if (table_[at].joined < 0) return none_;
    if (table_[at].key == key) return table_[at];
  }
}

void Bpe::Encode(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (piece.empty()) return;
  const bool may_be_cached = piece.size() <= PieceCache::kMaxBytes;
  PieceCache::Slot* slot = nullptr;
  if (may_be_cached) {
    bool is_there = false;
    slot = &scratch.cache.Find(piece, is_there);
    if (is_there) {
      ids.insert(ids.end(), slot->ids, slot->ids + slot->count);
      return;
    }
  }
  const std::size_t before = ids.size();
  const std::int32_t* whole = takes_whole_pieces_ ? Find(piece) : nullptr;
  if (whole != nullptr) {
    ids.push_back(*whole);
  } else if (piece.size() < kLongPiece) {
    Merge(piece, scratch, ids);
  } else {
    MergeLong(piece, scratch, ids);
  }
  const std::size_t count = ids.size() - before;
  if (slot != nullptr && count <= PieceCache::kMaxIds) {
    slot->size = static_cast<std::uint8_t>(piece.size());
    slot->count = static_cast<std::uint8_t>(count);
    std::memcpy(slot->bytes, piece.data(), piece.size());
    std::copy(ids.end() - static_cast<std::ptrdiff_t>(count), ids.end(), slot->ids);
  }
}

void Bpe::Merge(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  auto& parts = scratch.parts;
  parts.resize(piece.size());
  for (std::size_t i = 0; i < piece.size(); ++i) {
    parts[i].id = byte_ids_[static_cast<std::uint8_t>(piece[i])];
  }
  std::size_t count = parts.size();
  const auto rate = [&](std::size_t i) {
    const Pair& pair = i + 1 < count ? FindPair(parts[i].id, parts[i + 1].id) : none_;
    parts[i].rank = pair.rank;
    parts[i].joined = pair.joined;
  };
  for (std::size_t i = 0; i < count; ++i) rate(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (parts[i].rank < parts[best].rank) best = i;
    }
    if (parts[best].rank == kNoRank) break;
    parts[best].id = parts[best].joined;
    std::copy(parts.begin() + static_cast<std::ptrdiff_t>(best) + 2,
              parts.begin() + static_cast<std::ptrdiff_t>(count),
              parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    --count;
    rate(best);
    if (best > 0) rate(best - 1);
  }
  for (std::size_t i = 0; i < count; ++i) ids.push_back(parts[i].id);
}

void Bpe::MergeLong(std::string_view piece, Scratch& scratch,
                    std::vector<std::int32_t>& ids) const {
  using Candidate = Scratch::Candidate;
  auto& parts = scratch.parts;
  auto& heap = scratch.heap;
  const auto size = static_cast<std::int32_t>(piece.size());
  parts.resize(piece.size());
  heap.clear();
  const auto at = [&](std::int32_t i) -> Scratch::Part& {
    return parts[static_cast<std::size_t>(i)];
  };
  // The least rank first, and of equal ones the leftmost.
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  const auto add = [&](std::int32_t i) {
    const std::int32_t next = at(i).next;
    if (next == size) return;
    const Pair& pair = FindPair(at(i).id, at(next).id);
    if (pair.joined < 0) return;
    heap.push_back({pair.rank, i, at(i).id, at(next).id});
    std::push_heap(heap.begin(), heap.end(), later);
  };
  for (std::int32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<std::uint8_t>(piece[static_cast<std::size_t>(i)]);
    at(i) = {byte_ids_[byte], 0, 0, i - 1, i + 1};
  }
  for (std::int32_t i = 0; i < size; ++i) add(i);
  while (!heap.empty()) {
    const Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    Scratch::Part& left = at(best.at);
    if (left.id != best.left || left.next == size || at(left.next).id != best.right) continue;
    Scratch::Part& right = at(left.next);
    left.id = FindPair(best.left, best.right).joined;
    right.id = -1;  // gone: no candidate is of it any more
    left.next = right.next;
    if (left.next != size) at(left.next).previous = best.at;
    add(best.at);
    if (left.previous >= 0) add(left.previous);
  }
  for (std::int32_t i = 0; i != size; i = at(i).next) ids.push_back(at(i).id);
}

}  // namespace ait::inline v0::internal
