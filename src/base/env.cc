// SPDX-License-Identifier: Apache-2.0
#include "ait/base/env.h"

#include <cstdlib>

namespace ait::inline v0 {
namespace {

struct Field {
  const char* name;
  Env::Value Env::* member;
};

constexpr Field kFields[] = {
    {"RANK", &Env::rank},
    {"WORLD_SIZE", &Env::world_size},
    {"LOCAL_RANK", &Env::local_rank},
    {"LOCAL_WORLD_SIZE", &Env::local_world_size},
    {"MASTER_ADDR", &Env::master_addr},
    {"MASTER_PORT", &Env::master_port},
    {"TORCHELASTIC_USE_AGENT_STORE", &Env::torchelastic_use_agent_store},
    {"TORCHELASTIC_RUN_ID", &Env::torchelastic_run_id},
    {"TORCHELASTIC_RESTART_COUNT", &Env::torchelastic_restart_count},
    {"AIT_LISTEN_FD", &Env::ait_listen_fd},
    {"AIT_RUN_ID", &Env::ait_run_id},
    {"AIT_PARENT_PID", &Env::ait_parent_pid},
    {"AIT_FLIGHT_DIRECTORY", &Env::ait_flight_directory},
    {"GLOO_SOCKET_IFNAME", &Env::gloo_socket_ifname},
    {"OMP_NUM_THREADS", &Env::omp_num_threads},
    {"AIT_SIMD", &Env::ait_simd},
};

}  // namespace

Env Env::FromProcess() {
  return From([](const char* name) -> Value {
    const char* value = std::getenv(name);
    return value == nullptr ? Value() : Value(value);
  });
}

Env Env::From(const std::function<Value(const char* name)>& lookup) {
  Env env;
  for (const Field& field : kFields) {
    Value value = lookup(field.name);
    if (value && !value->empty()) env.*field.member = std::move(value);
  }
  return env;
}

void Env::ForEach(const std::function<void(const char* name, const Value& value)>& visit) const {
  for (const Field& field : kFields) visit(field.name, this->*field.member);
}

}  // namespace ait::inline v0
