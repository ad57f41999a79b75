// SPDX-License-Identifier: Apache-2.0
// What drives nvJPEG, with a fake one and a fake GPU; nothing about the real one.
#include <gtest/gtest.h>

#include <string_view>

#include "ait/data/decode/nvjpeg.h"
#include "ait/device/buffer.h"
#include "support/fake_gpu.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

std::span<const std::byte> AsFile(std::string_view text) { return std::as_bytes(std::span(text)); }

class NvJpegFakeTest : public ::testing::Test {
 protected:
  std::shared_ptr<DeviceRuntime> gpus_ =
      DeviceRuntime::Open({.library = testing::FakeGpuLibrary()});
};

TEST_F(NvJpegFakeTest, DecodesIntoDeviceMemory) {
  ASSERT_OK_AND_ASSIGN(auto decoder, NvJpeg::Open(gpus_, Device(1), {.library = AIT_FAKE_NVJPEG}));
  EXPECT_THAT(decoder->description(), HasSubstr("nvJPEG 13.7 ("));
  const auto file = AsFile("FAKE\x02\x05z\xff\xd9");
  ASSERT_OK_AND_ASSIGN(const JpegHeader header, decoder->ReadHeader(file));
  EXPECT_EQ(header.height, 2);
  EXPECT_EQ(header.width, 5);
  ASSERT_OK_AND_ASSIGN(Stream stream, Stream::Create(gpus_, Device(1)));
  ASSERT_OK_AND_ASSIGN(DeviceBuffer to, DeviceBuffer::Create(gpus_, Device(1), Bytes(30)));
  ASSERT_OK_AND_ASSIGN(DeviceBuffer host,
                       DeviceBuffer::Create(gpus_, Device(1), Bytes(30), MemoryPlace::kPinned));
  ASSERT_OK(decoder->Decode(file, ColorMode::kRgb, to.data(), Bytes(30), stream));
  ASSERT_OK(stream.Copy(host.data(), to.data(), Bytes(30)));
  ASSERT_OK(stream.Wait());
  EXPECT_EQ(std::string(static_cast<const char*>(host.data()), 30), std::string(30, 'z'));
  ASSERT_OK_AND_ASSIGN(const Device current, gpus_->current());
  EXPECT_EQ(current, Device(0));  // as before
}

TEST_F(NvJpegFakeTest, WhatGoesWrongIsSaid) {
  ASSERT_OK_AND_ASSIGN(
      auto decoder,
      NvJpeg::Open(gpus_, Device(0), {.library = AIT_FAKE_NVJPEG, .limits = {.max_side = 9}}));
  ASSERT_OK_AND_ASSIGN(Stream stream, Stream::Create(gpus_, Device(0)));
  const auto decode = [&](std::string_view file, Bytes size, ColorMode mode = ColorMode::kGray) {
    return decoder->Decode(AsFile(file), mode, nullptr, size, stream);
  };
  EXPECT_THAT(decode("xAKE\x02\x05z\xff\xd9", Bytes(10)), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(decode("FxKE\x02\x05z\xff\xd9", Bytes(10)), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(decode("FAKE\x02\x05z\xff", Bytes(10)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("cut off")));
  EXPECT_THAT(decode("FAKE\x02\x05z\xff\xd9", Bytes(9)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("needs 10 bytes")));
  EXPECT_THAT(decode("FAKE\x02\x0bz\xff\xd9", Bytes(99)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_side")));
  EXPECT_THAT(decode("FAKE\x02\x05z\xff\xd9", Bytes(99), ColorMode::kRgba),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(NvJpegFakeTest, ALibraryThatIsNoneIsSaid) {
  EXPECT_THAT(NvJpeg::Open(gpus_, Device(0), {.library = "/nowhere/libnvjpeg.so"}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("/nowhere/libnvjpeg.so")));
  EXPECT_THAT(NvJpeg::Open(gpus_, Device(0), {.library = testing::FakeGpuLibrary()}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("has no function nvjpeg")));
}

}  // namespace
}  // namespace ait
