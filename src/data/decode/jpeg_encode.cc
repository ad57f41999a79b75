// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "data/decode/jpeg_internal.h"

namespace ait::inline v0 {
namespace {

struct Encoder {
  internal::JpegErrors errors = {};
  jpeg_compress_struct info = {};
  unsigned char* file = nullptr;
  unsigned long size = 0;

  Encoder() {
    errors.Install(false);
    info.err = &errors.base;
  }
  Encoder(const Encoder&) = delete;
  ~Encoder() {
    jpeg_destroy_compress(&info);
    std::free(file);
  }
};

}  // namespace

StatusOr<std::vector<std::byte>> EncodeJpeg(const ImageView& image,
                                            const JpegEncodeOptions& options) {
  if (image.channels != 1 && image.channels != 3) {
    return InvalidArgumentError("a JPEG of ", image.channels,
                                " channels was asked for; written are 1 and 3");
  }
  AIT_RETURN_IF_ERROR(CheckImageSize(image.height, image.width, {}));
  if (options.quality < 1 || options.quality > 100) {
    return InvalidArgumentError("the quality of a JPEG is ", options.quality,
                                "; allowed are 1 to 100");
  }
  Encoder encoder;
  const bool is_ok = internal::Guarded(encoder.errors, [&] {
    jpeg_compress_struct& info = encoder.info;
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &encoder.file, &encoder.size);
    info.image_height = static_cast<JDIMENSION>(image.height);
    info.image_width = static_cast<JDIMENSION>(image.width);
    info.input_components = image.channels;
    info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, options.quality, TRUE);
    if (image.channels == 3) {
      info.comp_info[0].h_samp_factor = options.subsampling == JpegSubsampling::k444 ? 1 : 2;
      info.comp_info[0].v_samp_factor = options.subsampling == JpegSubsampling::k420 ? 2 : 1;
    }
    if (options.is_progressive) jpeg_simple_progression(&info);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
      auto* row = const_cast<std::uint8_t*>(image.Row(static_cast<int>(info.next_scanline)));
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
  });
  if (!is_ok) return InternalError("no JPEG was written: ", encoder.errors.text);
  std::vector<std::byte> bytes(encoder.size);
  std::memcpy(bytes.data(), encoder.file, bytes.size());
  return bytes;
}

}  // namespace ait::inline v0
