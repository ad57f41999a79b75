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

#include "ait/base/throw_on_error.h"
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

TEST(CatchAsStatus, OutOfMemoryIsResourceExhausted) {
  EXPECT_THAT(internal::CatchAsStatus([] { throw std::bad_alloc(); }),
              StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(internal::CatchAsStatus([] { return at::empty({std::int64_t{1} << 60}); }),
              StatusIs(StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace ait
