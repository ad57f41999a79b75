// SPDX-License-Identifier: Apache-2.0
#include "tensor/catch.h"

#include <ATen/core/ivalue.h>
// Keep the order.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>
#include <tuple>

#include "ait/base/throw_on_error.h"
#include "base/memory_refusal.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CatchAsStatus, PassesOnWhatTheFunctionReturns) {
  EXPECT_OK(internal::CatchAsStatus([] {}));
  EXPECT_THAT(internal::CatchAsStatus([] { return NotFoundError("x"); }),
              StatusIs(StatusCode::kNotFound));
  EXPECT_EQ(*internal::CatchAsStatus([] { return 3; }), 3);
  EXPECT_EQ(*internal::CatchAsStatus([] { return StatusOr<int>(4); }), 4);
}

TEST(CatchAsStatus, TurnsUserExceptionsIntoUnknown) {
  EXPECT_THAT(internal::CatchAsStatus([] { throw std::runtime_error("the reason"); }),
              StatusIs(StatusCode::kUnknown, HasSubstr("the reason")));
  EXPECT_THAT(internal::CatchAsStatus([]() -> int { throw 7; }), StatusIs(StatusCode::kUnknown));
}

TEST(CatchAsStatus, AStatusExceptionIsTheStatusThatItWasMadeOf) {
  EXPECT_THAT(internal::CatchAsStatus([] { ThrowOnError(DataLossError("shard 3")); }),
              StatusIs(StatusCode::kDataLoss, HasSubstr("shard 3")));
}

TEST(CatchAsStatus, TellsShapeErrorsWithoutTheStackTrace) {
  const Status status = internal::CatchAsStatus([] { at::ones({2}).view({3}); });
  EXPECT_THAT(status, StatusIs(StatusCode::kUnknown,
                               AllOf(HasSubstr("shape"), Not(HasSubstr("frame #0")))));
}

TEST(CatchAsStatus, MapsTheKindsOfLibtorchErrors) {
  EXPECT_THAT(internal::CatchAsStatus([] { TORCH_CHECK_VALUE(false, "v"); }),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(internal::CatchAsStatus([] { TORCH_CHECK_NOT_IMPLEMENTED(false, "n"); }),
              StatusIs(StatusCode::kUnimplemented));
}

TEST(CatchAsStatus, OutOfMemoryTellsWhatWasAskedForAndWhere) {
  const auto refusal = [](const auto& function) {
    return internal::RefusalOf(Status(internal::CatchAsStatus(function)));
  };
  const auto host = refusal([] { std::ignore = at::empty({std::int64_t{1} << 50}); });
  ASSERT_TRUE(host.has_value());
  EXPECT_FALSE(host->on_device);
  EXPECT_EQ(host->asked, Bytes(std::int64_t{1} << 52));  // floats

  const auto device = refusal([] {
    TORCH_CHECK_WITH(OutOfMemoryError, false,
                     "CUDA out of memory. Tried to allocate 2.50 GiB. GPU");
  });
  ASSERT_TRUE(device.has_value());
  EXPECT_TRUE(device->on_device);
  EXPECT_EQ(device->asked, MiB(2560));

  const auto resource = refusal([] {
    TORCH_CHECK_WITH(OutOfMemoryError, false,
                     "libtorch asked for 4096 bytes: cannot map 2 MiB: no room");
  });
  ASSERT_TRUE(resource.has_value());
  EXPECT_FALSE(resource->on_device);
  EXPECT_EQ(resource->asked, Bytes(4096));

  const auto unknown = refusal([] { throw std::bad_alloc(); });
  ASSERT_TRUE(unknown.has_value());
  EXPECT_FALSE(unknown->asked.has_value());
  EXPECT_FALSE(refusal([] { ThrowOnError(ResourceExhaustedError("the disk is full")); }));
}

TEST(CatchAsStatus, OutOfMemoryIsResourceExhausted) {
  EXPECT_THAT(internal::CatchAsStatus([] { throw std::bad_alloc(); }),
              StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(internal::CatchAsStatus([] { return at::empty({std::int64_t{1} << 60}); }),
              StatusIs(StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace ait
