// SPDX-License-Identifier: Apache-2.0
// The twin of png.cc for a build without libpng.
#include "ait/data/decode/png.h"

namespace ait::inline v0 {
namespace {

Status NoPng() {
  return UnimplementedError(
      "this build of ait has no PNG; install libpng (libpng-dev) and build it with "
      "-DAIT_WITH_PNG=ON");
}

}  // namespace

StatusOr<PngHeader> ReadPngHeader(std::span<const std::byte>) { return NoPng(); }
StatusOr<Image> DecodePng(std::span<const std::byte>, const PngOptions&) { return NoPng(); }
StatusOr<std::vector<std::byte>> EncodePng(const ImageView&, const PngEncodeOptions&) {
  return NoPng();
}

}  // namespace ait::inline v0
