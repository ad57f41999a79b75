// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/png.h"

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <memory>
#include <utility>

#include "ait/data/decode/image_ops.h"
#include "png.h"

namespace ait::inline v0 {
namespace {

/// State of one file in libpng; what a jump skips the end of lives here.
struct Codec {
  std::jmp_buf jump;
  char text[200] = "";
  png_structp png = nullptr;
  png_infop info = nullptr;
  bool is_reader = true;
  // Of a reader.
  std::span<const std::byte> file;
  std::size_t position = 0;
  // Of a writer.
  std::vector<std::byte>* written = nullptr;

  Codec() = default;
  Codec(const Codec&) = delete;
  ~Codec() {
    if (is_reader) {
      png_destroy_read_struct(&png, &info, nullptr);
    } else {
      png_destroy_write_struct(&png, &info);
    }
  }
};

[[noreturn]] void OnError(png_structp png, png_const_charp text) {
  auto* codec = static_cast<Codec*>(png_get_error_ptr(png));
  std::strncpy(codec->text, text, sizeof(codec->text) - 1);
  std::longjmp(codec->jump, 1);
}

// Of oddities that change no pixel, such as a wrong color profile; damage is an error.
void OnWarning(png_structp, png_const_charp) {}

void OnRead(png_structp png, png_bytep to, std::size_t size) {
  auto* codec = static_cast<Codec*>(png_get_io_ptr(png));
  if (size > codec->file.size() - codec->position) png_error(png, "it is cut off");
  std::memcpy(to, codec->file.data() + codec->position, size);
  codec->position += size;
}

void OnWrite(png_structp png, png_bytep from, std::size_t size) {
  auto* codec = static_cast<Codec*>(png_get_io_ptr(png));
  try {
    const auto* bytes = reinterpret_cast<const std::byte*>(from);
    codec->written->insert(codec->written->end(), bytes, bytes + size);
    return;
  } catch (const std::bad_alloc&) {
  }
  png_error(png, "there is no memory");  // outside the handler: a jump out of one leaks
}

void OnFlush(png_structp) {}

template <typename Function>
bool Guarded(Codec& codec, const Function& function) {
  if (setjmp(codec.jump) != 0) return false;
  function();
  return true;
}

Status Damaged(const Codec& codec) { return DataLossError("the PNG is damaged: ", codec.text); }

Status ReadHeader(std::span<const std::byte> file, Codec& codec, PngHeader& header) {
  if (file.size() < 8 || png_sig_cmp(reinterpret_cast<png_const_bytep>(file.data()), 0, 8) != 0) {
    return DataLossError("this is no PNG: it does not begin with the signature of one");
  }
  codec.file = file;
  const bool is_ok = Guarded(codec, [&] {
    codec.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &codec, OnError, OnWarning);
    if (codec.png == nullptr) return;
    codec.info = png_create_info_struct(codec.png);
    if (codec.info == nullptr) return;
    png_set_read_fn(codec.png, &codec, OnRead);
    png_set_crc_action(codec.png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_user_limits(codec.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // ours come with a text
    png_set_chunk_malloc_max(codec.png, 8'000'000);
    // Chunks that change no pixel (texts, profiles, times) are read over: each may unpack to that.
    png_set_keep_unknown_chunks(codec.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(codec.png, codec.info);
  });
  if (codec.info == nullptr) return ResourceExhaustedError("no memory to read a PNG");
  if (!is_ok) return Damaged(codec);
  constexpr png_uint_32 kMaxSide = 1U << 30;
  header = {
      .height = static_cast<int>(std::min(png_get_image_height(codec.png, codec.info), kMaxSide)),
      .width = static_cast<int>(std::min(png_get_image_width(codec.png, codec.info), kMaxSide)),
      .bits = png_get_bit_depth(codec.png, codec.info),
      .channels = png_get_channels(codec.png, codec.info)};
  if (png_get_color_type(codec.png, codec.info) == PNG_COLOR_TYPE_PALETTE) header.channels = 3;
  return OkStatus();
}

}  // namespace

StatusOr<PngHeader> ReadPngHeader(std::span<const std::byte> file) {
  Codec codec;
  PngHeader header;
  AIT_RETURN_IF_ERROR(ReadHeader(file, codec, header));
  return header;
}

StatusOr<Image> DecodePng(std::span<const std::byte> file, const PngOptions& options) {
  Codec codec;
  PngHeader header;
  AIT_RETURN_IF_ERROR(ReadHeader(file, codec, header));
  AIT_RETURN_IF_ERROR(CheckImageSize(header.height, header.width, options.limits));
  const int type = png_get_color_type(codec.png, codec.info);
  const bool has_transparency = (type & PNG_COLOR_MASK_ALPHA) != 0 ||
                                png_get_valid(codec.png, codec.info, PNG_INFO_tRNS) != 0;
  const bool is_gray = (type & PNG_COLOR_MASK_COLOR) == 0;
  const ColorMode mode = options.mode;
  const bool wants_alpha =
      mode == ColorMode::kRgba || (mode == ColorMode::kUnchanged && has_transparency);
  // Color to gray is our own, afterwards: libpng's has other coefficients.
  const bool makes_gray = mode == ColorMode::kGray && !is_gray;
  const bool keeps_gray = is_gray && !wants_alpha && mode != ColorMode::kRgb;
  const int channels = keeps_gray ? 1 : wants_alpha ? 4 : 3;
  AIT_ASSIGN_OR_RETURN(Image image, Image::Create(header.height, header.width, channels));
  auto rows = std::make_unique<png_bytep[]>(static_cast<std::size_t>(header.height));
  for (int y = 0; y < header.height; ++y) rows[static_cast<std::size_t>(y)] = image.Row(y);
  std::size_t row_bytes = 0;
  const bool is_ok = Guarded(codec, [&] {
    png_set_scale_16(codec.png);
    png_set_expand(codec.png);  // palettes, 1 to 4 bits, transparent colors
    if (!keeps_gray) png_set_gray_to_rgb(codec.png);
    if (wants_alpha) {
      png_set_add_alpha(codec.png, 255, PNG_FILLER_AFTER);
    } else {
      png_set_strip_alpha(codec.png);
    }
    png_set_interlace_handling(codec.png);
    png_read_update_info(codec.png, codec.info);
    row_bytes = png_get_rowbytes(codec.png, codec.info);
    if (row_bytes != image.row_bytes()) png_error(codec.png, "its rows have an unexpected size");
    png_read_image(codec.png, rows.get());
    png_read_end(codec.png, nullptr);
  });
  if (!is_ok) return Damaged(codec);
  if (makes_gray) return ConvertColor(image, ColorMode::kGray);
  return image;
}

StatusOr<std::vector<std::byte>> EncodePng(const ImageView& image,
                                           const PngEncodeOptions& options) {
  AIT_RETURN_IF_ERROR(CheckImageSize(image.height, image.width, {}));
  if (options.compression < 0 || options.compression > 9) {
    return InvalidArgumentError("the compression of a PNG is ", options.compression,
                                "; allowed are 0 to 9");
  }
  if (image.channels != 1 && image.channels != 3 && image.channels != 4) {
    return InvalidArgumentError("a PNG of ", image.channels,
                                " channels was asked for; written are 1, 3 and 4");
  }
  std::vector<std::byte> file;
  Codec codec;
  codec.is_reader = false;
  codec.written = &file;
  const int type = image.channels == 1   ? PNG_COLOR_TYPE_GRAY
                   : image.channels == 3 ? PNG_COLOR_TYPE_RGB
                                         : PNG_COLOR_TYPE_RGB_ALPHA;
  const bool is_ok = Guarded(codec, [&] {
    codec.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &codec, OnError, OnWarning);
    if (codec.png == nullptr) return;
    codec.info = png_create_info_struct(codec.png);
    if (codec.info == nullptr) return;
    png_set_write_fn(codec.png, &codec, OnWrite, OnFlush);
    png_set_compression_level(codec.png, options.compression);
    png_set_IHDR(codec.png, codec.info, static_cast<png_uint_32>(image.width),
                 static_cast<png_uint_32>(image.height), 8, type, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(codec.png, codec.info);
    for (int y = 0; y < image.height; ++y) png_write_row(codec.png, image.Row(y));
    png_write_end(codec.png, nullptr);
  });
  if (codec.info == nullptr) return ResourceExhaustedError("no memory to write a PNG");
  if (!is_ok) return InternalError("no PNG was written: ", codec.text);
  return file;
}

}  // namespace ait::inline v0
