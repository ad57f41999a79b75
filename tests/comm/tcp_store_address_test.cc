// SPDX-License-Identifier: Apache-2.0
// Where a TcpStore is served: a socket with a name instead of a port, and one of several ports.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "ait/comm/tcp_store.h"
#include "comm/tcp_store_socket.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using internal::SocketFd;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Joined = StatusOr<std::unique_ptr<TcpStore>>;

std::future<Joined> Join(TcpStoreOptions options) {
  return std::async(std::launch::async, [options] { return TcpStore::Create(options); });
}

TcpStoreOptions Named(int rank, const std::string& run_id = "run") {
  return {.rank = Rank(rank),
          .size = WorldSize(2),
          .host = StrCat("unix:ait-test-", getpid()),
          .run_id = run_id,
          .timeout = seconds(20)};
}

TEST(TcpStoreAddress, ANameServesTheRanksOfOneHost) {
  auto one = Join(Named(1)), zero = Join(Named(0));
  Joined first = zero.get(), second = one.get();
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_OK((*second)->Set("k", "v"));
  EXPECT_EQ(*(*first)->Get("k", Deadline::After(seconds(5))), "v");
  EXPECT_EQ((*second)->port(), 0);
  EXPECT_EQ((*second)->local_address(), "");
  second->reset();
  first->reset();
  // Nothing of it is left: the name is free again.
  EXPECT_OK(internal::Listen(Named(0).host, 0));
}

TEST(TcpStoreAddress, ARankOfAnEarlierAttemptIsRefused) {
  TcpStoreOptions rank_zero = Named(0, "attempt 2");
  rank_zero.timeout = milliseconds(1500);
  auto zero = Join(rank_zero);
  EXPECT_THAT(Join(Named(1, "attempt 1")).get(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("belongs to run \"attempt 1\"")));
  EXPECT_THAT(zero.get(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("attempt 1")));
}

TEST(TcpStoreAddress, TellsThatNobodyServesTheName) {
  TcpStoreOptions options = Named(1);
  options.timeout = milliseconds(50);
  EXPECT_THAT(TcpStore::Create(options),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr(options.host), HasSubstr("network namespace"))));
}

TEST(TcpStoreAddress, RefusesANameTheKernelDoesNotTake) {
  TcpStoreOptions options = Named(0);
  options.host = "unix:";
  EXPECT_THAT(TcpStore::Create(options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("0 bytes; allowed are 1 to 107")));
  options.host = "unix:" + std::string(108, 'x');
  EXPECT_THAT(TcpStore::Create(options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("108 bytes")));
}

TEST(TcpStoreAddress, ANameThatAnotherUserHoldsIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const std::string name = Named(0).host;
  const pid_t child = fork();
  if (child == 0) {  // takes the name as another user, and waits to be killed
    if (setuid(65534) != 0) ::_exit(1);
    const auto squatter = internal::Listen(name, 0);
    char byte = squatter.ok() ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) ::_exit(1);
    while (true) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_THAT(Join(Named(1)).get(),
              StatusIs(StatusCode::kPermissionDenied, HasSubstr("of user 65534")));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(TcpStoreAddress, RankZeroTakesTheFirstPortThatIsFreeAndTheOthersFindIt) {
  // The first is another job's, the second a program's that accepts and says nothing.
  const SocketFd other = *internal::Listen("127.0.0.1", 0);
  const SocketFd silent = *internal::Listen("127.0.0.1", 0);
  const std::uint16_t free = *internal::LocalPort(internal::Listen("127.0.0.1", 0)->get());
  auto options = [&](int rank, int size, int listen_fd, std::string run_id) {
    return TcpStoreOptions{.rank = Rank(rank),
                           .size = WorldSize(size),
                           .host = "127.0.0.1",
                           .port = *internal::LocalPort(other.get()),
                           .other_ports = {*internal::LocalPort(silent.get()), free},
                           .listen_fd = listen_fd,
                           .run_id = std::move(run_id),
                           .timeout = seconds(30)};
  };
  ASSERT_OK_AND_ASSIGN(const auto other_job,
                       TcpStore::Create(options(0, 1, dup(other.get()), "other")));
  auto zero = Join(options(0, 2, -1, "ours")), one = Join(options(1, 2, -1, "ours"));
  Joined first = zero.get(), second = one.get();
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_EQ((*first)->port(), free);
  EXPECT_EQ((*second)->port(), free);
  second->reset();
}

}  // namespace
}  // namespace ait
