// SPDX-License-Identifier: Apache-2.0
#include "base/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <utility>

namespace ait {
namespace {

using internal::FileDescriptor;

int OpenOne() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(FileDescriptor, IsClosedWithItsOwner) {
  const int fd = OpenOne();
  {
    const FileDescriptor owner(fd);
    EXPECT_TRUE(owner.is_open());
    EXPECT_EQ(owner.get(), fd);
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
  EXPECT_FALSE(FileDescriptor().is_open());
  EXPECT_FALSE(FileDescriptor(-1).is_open());
}

TEST(FileDescriptor, MovingIntoAnotherClosesItsOwn) {
  const int first = OpenOne();
  const int second = OpenOne();
  FileDescriptor a(first);
  FileDescriptor b(std::move(a));
  EXPECT_FALSE(a.is_open());
  EXPECT_EQ(b.get(), first);
  FileDescriptor c(second);
  b = std::move(c);
  EXPECT_FALSE(IsOpen(first));
  EXPECT_EQ(b.get(), second);
  FileDescriptor& same = b;
  b = std::move(same);
  EXPECT_TRUE(IsOpen(second));
  b.Close();
  EXPECT_FALSE(IsOpen(second));
  EXPECT_FALSE(b.is_open());
}

TEST(FileDescriptor, MayBeReleased) {
  const int fd = OpenOne();
  {
    FileDescriptor owner(fd);
    EXPECT_EQ(owner.Release(), fd);
    EXPECT_FALSE(owner.is_open());
  }
  EXPECT_TRUE(IsOpen(fd));
  FileDescriptor(fd).Close();
}

}  // namespace
}  // namespace ait
