// SPDX-License-Identifier: Apache-2.0
// The twin of jpeg.cc and jpeg_encode.cc for a build without libjpeg.
#include "ait/data/decode/jpeg.h"

namespace ait::inline v0 {
namespace {

Status NoJpeg() {
  return UnimplementedError(
      "this build of ait has no JPEG; install libjpeg-turbo (libjpeg62-turbo-dev) and build it "
      "with -DAIT_WITH_JPEG=ON");
}

}  // namespace

StatusOr<JpegHeader> ReadJpegHeader(std::span<const std::byte>) { return NoJpeg(); }
StatusOr<Image> DecodeJpeg(std::span<const std::byte>, const JpegOptions&) { return NoJpeg(); }
StatusOr<std::vector<std::byte>> EncodeJpeg(const ImageView&, const JpegEncodeOptions&) {
  return NoJpeg();
}

}  // namespace ait::inline v0
