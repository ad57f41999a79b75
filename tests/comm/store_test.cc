// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/store.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

Deadline Soon() { return Deadline::After(std::chrono::milliseconds(5)); }
Deadline Late() { return Deadline::After(std::chrono::seconds(30)); }

TEST(ProcessStore, GivesWhatWasSetLast) {
  const std::shared_ptr<Store> store = MakeProcessStore();
  ASSERT_OK(store->Set("key", "old"));
  ASSERT_OK(store->Set("key", std::string_view("new\0bytes", 9)));
  ASSERT_OK_AND_ASSIGN(const std::string value, store->Get("key", Soon()));
  EXPECT_EQ(value, std::string_view("new\0bytes", 9));
}

TEST(ProcessStore, AnEmptyValueIsSet) {
  const std::shared_ptr<Store> store = MakeProcessStore();
  ASSERT_OK_AND_ASSIGN(const bool before, store->Contains("key"));
  EXPECT_FALSE(before);
  ASSERT_OK(store->Set("key", ""));
  ASSERT_OK_AND_ASSIGN(const bool after, store->Contains("key"));
  EXPECT_TRUE(after);
  ASSERT_OK_AND_ASSIGN(const std::string value, store->Get("key", Soon()));
  EXPECT_EQ(value, "");
}

TEST(ProcessStore, GetWaitsForAnotherThread) {
  const std::shared_ptr<Store> store = MakeProcessStore();
  std::thread other([&] { EXPECT_OK(store->Set("id", "42")); });
  ASSERT_OK_AND_ASSIGN(const std::string value, store->Get("id", Late()));
  EXPECT_EQ(value, "42");
  other.join();
}

TEST(ProcessStore, GetNamesTheKeyThatNobodySet) {
  EXPECT_THAT(MakeProcessStore()->Get("address of rank 3", Soon()),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("address of rank 3")));
}

TEST(ProcessStore, AddCountsEveryThread) {
  const std::shared_ptr<Store> store = MakeProcessStore();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) EXPECT_OK(store->Add("arrived", 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_OK_AND_ASSIGN(const std::int64_t sum, store->Add("arrived", -1));
  EXPECT_EQ(sum, 399);
  ASSERT_OK_AND_ASSIGN(const std::string text, store->Get("arrived", Soon()));
  EXPECT_EQ(text, "399");
}

TEST(ProcessStore, AddRefusesTextAndOverflow) {
  const std::shared_ptr<Store> store = MakeProcessStore();
  ASSERT_OK(store->Set("text", "12 apples"));
  EXPECT_THAT(store->Add("text", 1),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("12 apples")));
  ASSERT_OK(store->Add("big", std::numeric_limits<std::int64_t>::max()));
  EXPECT_THAT(store->Add("big", 1), StatusIs(StatusCode::kOutOfRange, HasSubstr("big")));
}

TEST(ProcessStore, TwoStoresAreApart) {
  ASSERT_OK(MakeProcessStore()->Set("key", "value"));
  ASSERT_OK_AND_ASSIGN(const bool found, MakeProcessStore()->Contains("key"));
  EXPECT_FALSE(found);
}

}  // namespace
}  // namespace ait
