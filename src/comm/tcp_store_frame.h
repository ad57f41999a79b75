// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_TCP_STORE_FRAME_H_
#define AIT_COMM_TCP_STORE_FRAME_H_

// The frames of TcpStore's wire: one layout for all kinds, little-endian.
//
//   u32 length of what follows | u8 type | u64 id | i64 number | u32 key length | key | value
//
// `id` numbers a request and its reply; a hello carries kHelloMagic there. What the other fields
// mean is told beside each type. A reader gives a cap: a longer frame is refused before it is
// stored, so a peer that speaks another language cannot take memory.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ait/base/status.h"

namespace ait::inline v0::internal {

enum class FrameType : std::uint8_t {
  // From a rank to the server.
  kHello = 1,  // number: rank << 32 | world size; key: run id; value: "pid 7 on host h"
  kSet,        // key, value
  kGet,        // key; the reply comes when the key is set
  kForget,     // key; takes back the get of this id
  kAdd,        // key, number
  kContains,   // key
  kMissing,    // asks which ranks have not joined; the reply's value is text
  kGoodbye,    // no more will come; also from the server, which then leaves the run
  // From the server to a rank.
  kWelcome,     // the hello was accepted
  kRefused,     // value: why
  kJoined,      // all ranks are there
  kJoinFailed,  // number: status code; value: why
  kReply,       // number, value
  kError,       // instead of a reply; number: status code; value: why
  kDeparted,    // number: a rank that died
};

inline constexpr std::uint64_t kHelloMagic = 0x31524f5453544941;  // "AITSTOR1"
inline constexpr std::size_t kFrameOverhead = 1 + 8 + 8 + 4;      // after the length
inline constexpr std::size_t kMaxHelloFrame = 1024;
inline constexpr std::size_t kMaxFrame = std::size_t{1} << 20;

struct Frame {
  FrameType type = FrameType::kReply;
  std::uint64_t id = 0;
  std::int64_t number = 0;
  std::string key;
  std::string value;
};

/// Appends `frame` to `out` as it travels.
void AppendFrame(const Frame& frame, std::string& out);

enum class Parsed { kFrame, kIncomplete };

/// Takes one frame from the front of `in`, starting at `*position`, which then moves behind it.
/// **Errors.** DataLoss: the bytes are no frame, or it is longer than `cap`.
StatusOr<Parsed> ParseFrame(std::string_view in, std::size_t* position, std::size_t cap,
                            Frame* frame);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_TCP_STORE_FRAME_H_
