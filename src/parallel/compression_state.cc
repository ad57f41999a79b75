// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/compression_state.h"

#include <bit>
#include <cstring>

#include "parallel/hash_internal.h"

namespace ait::inline v0 {
namespace {

constexpr std::string_view kMagic = "aitcompr";

void Put(std::string& bytes, std::uint64_t value, int size) {
  for (int i = 0; i < size; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
}

void PutText(std::string& bytes, std::string_view text) {
  Put(bytes, text.size(), 4);
  bytes.append(text);
}

// Reads from the front; `ok` turns false at the first thing that is not there, and stays so.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::string_view Take(std::uint64_t size) {
    ok = ok && size <= rest_.size();
    if (!ok) return {};
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::uint64_t Number(int size) {
    std::uint64_t value = 0;
    int shift = 0;
    for (const char c : Take(static_cast<std::uint64_t>(size))) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(c)) << shift;
      shift += 8;
    }
    return value;
  }
  std::string Text() { return std::string(Take(Number(4))); }
  bool at_end() const { return rest_.empty(); }

  bool ok = true;

 private:
  std::string_view rest_;
};

std::uint64_t HashOf(std::string_view bytes) {
  return internal::HashBytes(bytes.data(), bytes.size());
}

}  // namespace

// magic, version u32, method, rank u32, world size u32, step u64, entries u32, each: parameter,
// kind, values u64, values f32; hash u64. Texts are their length u32 and their bytes.
std::string CompressionState::ToBytes() const {
  std::string bytes(kMagic);
  Put(bytes, kVersion, 4);
  PutText(bytes, method);
  Put(bytes, static_cast<std::uint64_t>(rank), 4);
  Put(bytes, static_cast<std::uint64_t>(world_size), 4);
  Put(bytes, static_cast<std::uint64_t>(step), 8);
  Put(bytes, entries.size(), 4);
  for (const CompressionEntry& entry : entries) {
    PutText(bytes, entry.parameter);
    PutText(bytes, entry.kind);
    Put(bytes, entry.values.size(), 8);
    if constexpr (std::endian::native == std::endian::little) {
      bytes.append(reinterpret_cast<const char*>(entry.values.data()), 4 * entry.values.size());
    } else {
      for (const float value : entry.values) Put(bytes, std::bit_cast<std::uint32_t>(value), 4);
    }
  }
  Put(bytes, HashOf(bytes), 8);
  return bytes;
}

StatusOr<CompressionState> CompressionState::FromBytes(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return InvalidArgumentError("these ", bytes.size(),
                                " bytes are not the state of a gradient compression: they do not "
                                "begin with \"",
                                kMagic, "\"");
  }
  const auto cut = [&] {
    return DataLossError(
        "the state of the gradient compression is damaged: its ", bytes.size(),
        " bytes are cut off or changed; go on without it, residuals begin at zero");
  };
  if (bytes.size() < kMagic.size() + 12) return cut();
  const std::string_view body = bytes.substr(0, bytes.size() - 8);
  Reader reader(body.substr(kMagic.size()));
  const std::uint64_t version = reader.Number(4);
  if (version != kVersion) {
    return InvalidArgumentError("the state of the gradient compression has version ", version,
                                "; this program reads version ", kVersion);
  }
  if (Reader(bytes.substr(body.size())).Number(8) != HashOf(body)) return cut();
  CompressionState state;
  state.method = reader.Text();
  state.rank = static_cast<int>(reader.Number(4));
  state.world_size = static_cast<int>(reader.Number(4));
  state.step = static_cast<std::int64_t>(reader.Number(8));
  const std::uint64_t count = reader.Number(4);
  for (std::uint64_t e = 0; e < count && reader.ok; ++e) {
    CompressionEntry& entry = state.entries.emplace_back();
    entry.parameter = reader.Text();
    entry.kind = reader.Text();
    const std::uint64_t values = reader.Number(8);
    if (values > body.size() / 4) return cut();
    const std::string_view data = reader.Take(4 * values);
    entry.values.resize(data.size() / 4);
    if constexpr (std::endian::native == std::endian::little) {
      if (!data.empty()) std::memcpy(entry.values.data(), data.data(), data.size());
    } else {
      Reader numbers(data);
      for (float& value : entry.values) {
        value = std::bit_cast<float>(static_cast<std::uint32_t>(numbers.Number(4)));
      }
    }
  }
  if (!reader.ok || !reader.at_end()) return cut();
  if (state.world_size < 1 || state.rank < 0 || state.rank >= state.world_size || state.step < 0) {
    return InvalidArgumentError("the state of the gradient compression says rank ", state.rank,
                                " of ", state.world_size, ", step ", state.step);
  }
  return state;
}

}  // namespace ait::inline v0
