// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "launch/host_group_internal.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlice{100};
constexpr int kLauncherDied = 125;  // as `ait run` says that the launch failed

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name[0] == '\0' ? "unnamed" : name;
}

/// The value, which another launcher sets as long as it lives.
StatusOr<std::string> Await(TcpStore& store, const std::string& key, Deadline deadline) {
  while (true) {
    auto value = store.Get(key, Deadline::After(kSlice));
    if (value.status().code() != StatusCode::kDeadlineExceeded || deadline.expired()) return value;
    if (const auto dead = store.departed(); !dead.empty()) {
      return UnavailableError("the launcher of host ", dead.front(), " died");
    }
  }
}

void Poke(int wake, unsigned char byte) {
  [[maybe_unused]] const ssize_t n = write(wake, &byte, 1);
}

}  // namespace

StatusOr<std::unique_ptr<HostGroup>> HostGroup::Join(const LaunchHosts& hosts, int local_ranks) {
  const Deadline deadline = Deadline::After(hosts.join_timeout);
  auto store = TcpStore::Create({.rank = Rank(hosts.index),
                                 .size = WorldSize(hosts.count),
                                 .host = hosts.address,
                                 .port = hosts.port,
                                 .run_id = "launchers",
                                 .timeout = std::chrono::ceil<milliseconds>(hosts.join_timeout)});
  if (!store.ok()) {
    return Annotate(store.status(),
                    StrCat("the launchers of ", hosts.count, " hosts do not meet at ",
                           hosts.address, " port ", hosts.port, " (ranks are hosts here)"));
  }
  std::unique_ptr<HostGroup> group(new HostGroup(*std::move(store), hosts));
  AIT_RETURN_IF_ERROR(
      group->store_->Set(StrCat("host/", hosts.index), StrCat(local_ranks, " ", HostName())));
  for (int host = 0; host < hosts.count; ++host) {
    AIT_ASSIGN_OR_RETURN(const std::string text,
                         Await(*group->store_, StrCat("host/", host), deadline));
    std::istringstream fields(text);
    int ranks = 0;
    std::string name;
    fields >> ranks >> name;
    group->names_.push_back(name);
    if (host < hosts.index) group->first_rank_ += ranks;
    group->world_size_ += ranks;
  }
  return group;
}

HostGroup::~HostGroup() {
  if (ended_ || names_.size() < static_cast<std::size_t>(hosts_.count)) return;
  Fail({.host = hosts_.index, .code = kLauncherDied, .rank = {}, .text = "the launcher gave up"});
  CountEnd();
}

void HostGroup::CountEnd() {
  ended_ = true;
  const auto ended = store_->Add("ended", 1);
  if (ended.ok() && *ended == hosts_.count) store_->Set("all-ended", "").IgnoreError();
}

Status HostGroup::Share(std::string& run_id, int& port) {
  if (hosts_.index == 0) return store_->Set("plan", StrCat(run_id, " ", port));
  AIT_ASSIGN_OR_RETURN(const std::string text,
                       Await(*store_, "plan", Deadline::After(hosts_.join_timeout)));
  std::istringstream(text) >> run_id >> port;
  return OkStatus();
}

void HostGroup::Wake(const FileDescriptor& wake) {
  const int fd = wake.get(), own = hosts_.index;
  store_->Watch("failure", [fd, own](const std::string& text) {
    if (std::atoi(text.c_str()) != own) Poke(fd, 0);
  });
  store_->Watch("stop", [fd, own](const std::string& text) {
    int host = 0, signal = 0;
    std::istringstream(text) >> host >> signal;
    if (host != own) Poke(fd, static_cast<unsigned char>(kOtherHost | signal));
  });
  store_->OnDeparture([fd](Rank) { Poke(fd, 0); });
}

void HostGroup::Fail(const Failure& failure) {
  // A store that is gone is seen as a launcher that died.
  const auto count = store_->Add("failures", 1);
  if (!count.ok() || *count != 1) return;
  store_
      ->Set("failure",
            StrCat(hosts_.index, " ", failure.code, " ", failure.rank ? failure.rank->value() : -1,
                   " ", failure.text, " on ", "host ", hosts_.index, " (",
                   names_[static_cast<std::size_t>(hosts_.index)], ")"))
      .IgnoreError();
}

void HostGroup::Stop(int signal) {
  const auto count = store_->Add("stops", 1);
  if (count.ok() && *count == 1)
    store_->Set("stop", StrCat(hosts_.index, " ", signal)).IgnoreError();
}

void HostGroup::AwaitEnd(const FileDescriptor& wake) {
  CountEnd();
  int signals = 0;
  while (signals < 2 && store_->departed().empty()) {
    const auto all = store_->Get("all-ended", Deadline::After(kSlice));
    if (all.ok() || all.status().code() != StatusCode::kDeadlineExceeded) return;
    unsigned char byte = 0;
    while (read(wake.get(), &byte, 1) == 1) {
      if (byte == 0 || (byte & kOtherHost) != 0) continue;
      ++signals;
      Stop(byte);
    }
  }
}

std::optional<HostGroup::Failure> HostGroup::first_failure() {
  if (store_->Contains("failure").value_or(false)) {
    const auto text = store_->Get("failure", Deadline::After(std::chrono::seconds(1)));
    if (text.ok()) {
      Failure failure;
      int rank = -1;
      std::istringstream fields(*text);
      fields >> failure.host >> failure.code >> rank;
      if (rank >= 0) failure.rank = Rank(rank);
      std::getline(fields >> std::ws, failure.text, '\0');
      return failure;
    }
  }
  const std::vector<Rank> dead = store_->departed();
  if (dead.empty()) return std::nullopt;
  const int host = dead.front().value();
  return Failure{
      .host = host,
      .code = kLauncherDied,
      .text = StrCat("the launcher of host ", host, " (", names_[static_cast<std::size_t>(host)],
                     ") died or lost its network")};
}

}  // namespace ait::inline v0::internal
