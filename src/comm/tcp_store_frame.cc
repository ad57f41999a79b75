// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp_store_frame.h"

namespace ait::inline v0::internal {
namespace {

template <typename T>
void AppendNumber(T value, std::string& out) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
}

template <typename T>
T ReadNumber(std::string_view in, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(in[at + i])) << (8 * i);
  }
  return static_cast<T>(value);
}

}  // namespace

void AppendFrame(const Frame& frame, std::string& out) {
  AppendNumber(static_cast<std::uint32_t>(kFrameOverhead + frame.key.size() + frame.value.size()),
               out);
  AppendNumber(static_cast<std::uint8_t>(frame.type), out);
  AppendNumber(frame.id, out);
  AppendNumber(frame.number, out);
  AppendNumber(static_cast<std::uint32_t>(frame.key.size()), out);
  out += frame.key;
  out += frame.value;
}

StatusOr<Parsed> ParseFrame(std::string_view in, std::size_t* position, std::size_t cap,
                            Frame* frame) {
  in.remove_prefix(*position);
  if (in.size() < 4) return Parsed::kIncomplete;
  const auto length = ReadNumber<std::uint32_t>(in, 0);
  if (length < kFrameOverhead || length > cap) {
    return DataLossError("a frame of ", length, " bytes; allowed are ", kFrameOverhead, " to ",
                         cap);
  }
  if (in.size() < 4 + length) return Parsed::kIncomplete;
  const auto type = ReadNumber<std::uint8_t>(in, 4);
  const auto key_length = ReadNumber<std::uint32_t>(in, 21);
  if (type < static_cast<std::uint8_t>(FrameType::kHello) ||
      type > static_cast<std::uint8_t>(FrameType::kDeparted)) {
    return DataLossError("a frame of the unknown type ", static_cast<int>(type));
  }
  if (key_length > length - kFrameOverhead) {
    return DataLossError("a key of ", key_length, " bytes in a frame of ", length);
  }
  frame->type = static_cast<FrameType>(type);
  frame->id = ReadNumber<std::uint64_t>(in, 5);
  frame->number = ReadNumber<std::int64_t>(in, 13);
  frame->key = in.substr(4 + kFrameOverhead, key_length);
  frame->value = in.substr(4 + kFrameOverhead + key_length, length - kFrameOverhead - key_length);
  *position += 4 + length;
  return Parsed::kFrame;
}

}  // namespace ait::inline v0::internal
