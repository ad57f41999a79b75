// SPDX-License-Identifier: Apache-2.0
// LaunchInfo: what the environment says about the run, with every conflict in one message.
#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/comm/world.h"
#include "comm/tcp_store_socket.h"

namespace ait::inline v0 {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();

class Reader {
 public:
  /// The number of a variable; nullopt if it is unset or wrong, which is noted.
  std::optional<int> Number(const char* name, const Env::Value& value, int least, int most) {
    if (!value) return std::nullopt;
    int number = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, number);
    if (error != std::errc() || stop != end) {
      Problem(name, " is not a whole number");
    } else if (number < least || number > most) {
      if (most == kMaxInt) {
        Problem(name, " is below ", least);
      } else {
        Problem(name, " is not in ", least, " to ", most);
      }
    } else {
      return number;
    }
    return std::nullopt;
  }

  template <typename... Parts>
  void Problem(const Parts&... parts) {
    problems_.push_back(StrCat(parts...));
  }

  /// OK, or all problems with all values.
  Status Result(const Env& env) const {
    if (problems_.empty()) return OkStatus();
    std::string text;
    for (const std::string& problem : problems_) text += StrCat(text.empty() ? "" : "; ", problem);
    std::string seen;
    env.ForEach([&](const char* name, const Env::Value& value) {
      if (value) seen += StrCat(seen.empty() ? "" : " ", name, "=", *value);
    });
    return InvalidArgumentError("the environment does not describe a run: ", text,
                                ". Seen: ", seen);
  }

 private:
  std::vector<std::string> problems_;
};

LaunchedBy LauncherOf(const Env& env) {
  if (env.ait_run_id || env.ait_listen_fd || env.ait_parent_pid) return LaunchedBy::kAitRun;
  if (env.torchelastic_run_id) return LaunchedBy::kTorchrun;
  if (env.rank || env.world_size || env.local_rank || env.local_world_size || env.master_addr ||
      env.master_port) {
    return LaunchedBy::kHand;
  }
  return LaunchedBy::kNobody;
}

void ReadPlace(const Env& env, Reader& reader, LaunchInfo& info) {
  std::string unset;
  const auto require = [&](const char* name, const Env::Value& value) {
    if (!value) unset += StrCat(unset.empty() ? "" : ", ", name);
  };
  require("RANK", env.rank);
  require("WORLD_SIZE", env.world_size);
  require("MASTER_ADDR", env.master_addr);
  require("MASTER_PORT", env.master_port);
  if (!unset.empty()) {
    reader.Problem(unset, " not set: set all of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or ",
                   "none of them for one process alone");
  }
  const auto rank = reader.Number("RANK", env.rank, 0, kMaxInt);
  const auto size = reader.Number("WORLD_SIZE", env.world_size, 1, kMaxInt);
  const auto local_rank = reader.Number("LOCAL_RANK", env.local_rank, 0, kMaxInt);
  const auto local_size = reader.Number("LOCAL_WORLD_SIZE", env.local_world_size, 1, kMaxInt);
  const auto port = reader.Number("MASTER_PORT", env.master_port, 1, 65535);
  if (rank && size && *rank >= *size) {
    reader.Problem("RANK ", *rank, " is not below WORLD_SIZE ", *size);
  }
  info.rank = Rank(rank.value_or(0));
  info.size = WorldSize(size.value_or(1));
  info.master_port = static_cast<std::uint16_t>(port.value_or(0));
  info.master_address = env.master_addr.value_or("");
  info.local_size = WorldSize(local_size.value_or(info.size.value()));
  info.local_rank = Rank(local_rank.value_or(info.rank.value()));
  if (!size) return;
  if (info.local_size.value() > info.size.value()) {
    reader.Problem("LOCAL_WORLD_SIZE ", info.local_size, " is above WORLD_SIZE ", info.size);
  } else if (info.local_size.value() < info.size.value()) {
    if (!env.local_rank) {
      reader.Problem("LOCAL_RANK is not set, but LOCAL_WORLD_SIZE ", info.local_size,
                     " says that ranks are on other hosts");
    }
    if (internal::SaysLoopback(info.master_address)) {
      const int others = info.size.value() - info.local_size.value();
      reader.Problem("MASTER_ADDR ", info.master_address, " is the loopback interface, which the ",
                     others == 1 ? std::string("rank of another host")
                                 : StrCat(others, " ranks of other hosts"),
                     " cannot reach; use an address of rank 0's host");
    }
  }
  if (local_rank && *local_rank >= info.local_size.value()) {
    reader.Problem("LOCAL_RANK ", *local_rank, " is not below LOCAL_WORLD_SIZE ", info.local_size);
  }
}

void ReadTorchrun(const Env& env, Reader& reader, LaunchInfo& info) {
  info.restart_count =
      reader.Number("TORCHELASTIC_RESTART_COUNT", env.torchelastic_restart_count, 0, kMaxInt)
          .value_or(0);
  const std::string agent = env.torchelastic_use_agent_store.value_or("False");
  if (agent != "True" && agent != "False") {
    reader.Problem("TORCHELASTIC_USE_AGENT_STORE is neither True nor False");
  }
  info.agent_store = agent == "True";
  info.run_id = env.torchelastic_run_id.value_or("");
}

void ReadAitRun(const Env& env, Reader& reader, LaunchInfo& info) {
  if (!env.ait_run_id)
    reader.Problem("AIT_RUN_ID is not set, but other variables of `ait run` are");
  info.run_id = env.ait_run_id.value_or("");
  if (const auto fd = reader.Number("AIT_LISTEN_FD", env.ait_listen_fd, 0, kMaxInt)) {
    info.listen_fd = *fd;
    if (info.rank != Rank(0)) {
      reader.Problem("AIT_LISTEN_FD is set, but only rank 0 serves and this is rank ", info.rank);
    }
  }
  // Its value is checked by World: here only that it is a number.
  reader.Number("AIT_PARENT_PID", env.ait_parent_pid, 1, kMaxInt);
}

}  // namespace

std::string_view Name(LaunchedBy launched_by) {
  switch (launched_by) {
    case LaunchedBy::kNobody:
      return "nobody";
    case LaunchedBy::kHand:
      return "hand";
    case LaunchedBy::kAitRun:
      return "ait run";
    case LaunchedBy::kTorchrun:
      return "torchrun";
  }
  return "unknown";
}

StatusOr<LaunchInfo> LaunchInfo::FromEnv(const Env& env) {
  Reader reader;
  LaunchInfo info;
  info.launched_by = LauncherOf(env);
  info.interface_name = env.gloo_socket_ifname.value_or("");
  if (info.launched_by != LaunchedBy::kNobody) ReadPlace(env, reader, info);
  switch (info.launched_by) {
    case LaunchedBy::kTorchrun:
      ReadTorchrun(env, reader, info);
      break;
    case LaunchedBy::kAitRun:
      ReadAitRun(env, reader, info);
      break;
    default:
      if (env.torchelastic_use_agent_store == "True") {
        reader.Problem(
            "TORCHELASTIC_USE_AGENT_STORE is True, but TORCHELASTIC_RUN_ID is not set: left over "
            "from another job? unset it");
      }
  }
  if (info.run_id.size() > 255) {
    reader.Problem("the run id has ", info.run_id.size(), " bytes; allowed are 255");
  }
  AIT_RETURN_IF_ERROR(reader.Result(env));
  return info;
}

}  // namespace ait::inline v0
