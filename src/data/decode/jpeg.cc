// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/jpeg.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "ait/data/decode/image_ops.h"
#include "data/decode/jpeg_internal.h"
#include "jerror.h"

namespace ait::inline v0 {
namespace {

using internal::Guarded;
using internal::JpegErrors;

constexpr int kMaxScans = 500;  // a progressive file of few bytes may have very many

/// One file on its way through libjpeg. Everything that a jump may skip the end of lives here.
class Decoder {
 public:
  Decoder(std::span<const std::byte> file, JpegWarnings warnings) : file_(file) {
    errors_.Install(warnings == JpegWarnings::kAccept);
    info_.err = &errors_.base;
    progress_.progress_monitor = CheckScans;
  }
  Decoder(const Decoder&) = delete;
  ~Decoder() { jpeg_destroy_decompress(&info_); }

  Status ReadHeader() {
    const bool is_ok = Guarded(errors_, [this] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file_.data()),
                   static_cast<unsigned long>(file_.size()));
      jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
      jpeg_read_header(&info_, TRUE);
    });
    if (!is_ok) return Failure();
    header_ = {.height = static_cast<int>(info_.image_height),
               .width = static_cast<int>(info_.image_width),
               .components = info_.num_components,
               .is_progressive = info_.progressive_mode != 0};
    for (jpeg_saved_marker_ptr m = info_.marker_list; m != nullptr; m = m->next) {
      header_.orientation = internal::ExifOrientation({m->data, m->data_length});
      if (header_.orientation != 1) break;
    }
    return OkStatus();
  }

  const JpegHeader& header() const { return header_; }

  /// `region` of the image as stored, at that scale.
  StatusOr<Image> Read(const Rect& region, int scale_eighths, ColorMode mode) {
    AIT_RETURN_IF_ERROR(SetColors(mode));
    info_.scale_num = static_cast<unsigned>(scale_eighths);
    info_.scale_denom = 8;
    info_.dct_method = JDCT_ISLOW;
    AIT_ASSIGN_OR_RETURN(Image image, Image::Create(region.height, region.width, channels_));
    if (!Guarded(errors_, [this] { jpeg_start_decompress(&info_); })) return Failure();
    if (region.top + region.height > static_cast<int>(info_.output_height) ||
        region.left + region.width > static_cast<int>(info_.output_width)) {
      return InternalError("a region of ", region.height, " x ", region.width,
                           " does not lie in the scaled JPEG of ", info_.output_height, " x ",
                           info_.output_width);
    }
    const bool has_all_columns = region.width == static_cast<int>(info_.output_width);
    JDIMENSION left = 0;
    JDIMENSION width = info_.output_width;
    if (!has_all_columns) {
      // Whole blocks, and one more on each side: chroma is smoothed over the border of a block.
      const int block = info_.max_h_samp_factor * info_.min_DCT_scaled_size;
      left = static_cast<JDIMENSION>(std::max(0, region.left - block));
      width = std::min(static_cast<JDIMENSION>(region.left + region.width + block),
                       info_.output_width) -
              left;
      if (!Guarded(errors_, [&] { jpeg_crop_scanline(&info_, &left, &width); })) return Failure();
    }
    const bool is_direct = has_all_columns && info_.out_color_space != JCS_CMYK;
    row_ = std::make_unique<std::uint8_t[]>(static_cast<std::size_t>(info_.output_width) *
                                            static_cast<std::size_t>(info_.output_components));
    const int skip = static_cast<int>(left);
    if (!Guarded(errors_, [&] { ReadRows(region, skip, is_direct, image); })) return Failure();
    if (info_.output_scanline == info_.output_height) {
      if (!Guarded(errors_, [this] { jpeg_finish_decompress(&info_); })) return Failure();
    } else if (jpeg_input_complete(&info_) == 0 && !errors_.accepts_warnings && !HasEnd()) {
      return DataLossError("the JPEG is damaged: it is cut off");
    }
    return image;
  }

 private:
  static void CheckScans(j_common_ptr common) {
    auto* info = reinterpret_cast<j_decompress_ptr>(common);
    if (info->input_scan_number > kMaxScans) ERREXIT(info, JERR_BAD_PROGRESSION);
  }

  Status Failure() const {
    switch (errors_.base.msg_code) {
      case JERR_BAD_PRECISION:
      case JERR_SOF_UNSUPPORTED:
      case JERR_ARITH_NOTIMPL:
      case JERR_CONVERSION_NOTIMPL:
      case JERR_CCIR601_NOTIMPL:
      case JERR_NOTIMPL:
        return InvalidArgumentError("the JPEG is of a kind that is not decoded: ", errors_.text);
      case JERR_OUT_OF_MEMORY:
        return ResourceExhaustedError("no memory to decode the JPEG: ", errors_.text);
      default:
        return DataLossError("the JPEG is damaged: ", errors_.text);
    }
  }

  Status SetColors(ColorMode mode) {
    const int components = info_.num_components;
    if (components != 1 && components != 3 && components != 4) {
      return InvalidArgumentError("the JPEG has ", components,
                                  " components; decoded are those of 1, 3 and 4");
    }
    channels_ = mode == ColorMode::kUnchanged ? (components == 1 ? 1 : 3) : static_cast<int>(mode);
    if (components == 4) {
      info_.out_color_space = JCS_CMYK;
    } else if (channels_ == 1) {
      info_.out_color_space = JCS_GRAYSCALE;
    } else {
      info_.out_color_space = channels_ == 3 ? JCS_RGB : JCS_EXT_RGBA;
    }
    return OkStatus();
  }

  void ReadRows(const Rect& region, int left, bool is_direct, Image& image) {
    JSAMPROW scratch = row_.get();
    // Skipped up to two rows of blocks above, which are read for the same reason.
    const int block = info_.max_v_samp_factor * info_.min_DCT_scaled_size;
    const int skipped = std::max(0, region.top / block - 2) * block;
    if (skipped > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(skipped));
    while (static_cast<int>(info_.output_scanline) < region.top) {
      jpeg_read_scanlines(&info_, &scratch, 1);
    }
    const std::size_t offset = static_cast<std::size_t>(region.left - left) *
                               static_cast<std::size_t>(info_.output_components);
    for (int y = 0; y < region.height; ++y) {
      JSAMPROW to = image.Row(y);
      if (is_direct) {
        jpeg_read_scanlines(&info_, &to, 1);
        continue;
      }
      jpeg_read_scanlines(&info_, &scratch, 1);
      if (info_.out_color_space == JCS_CMYK) {
        ConvertCmyk(scratch + offset, region.width, to);
      } else {
        std::memcpy(to, scratch + offset, image.row_bytes());
      }
    }
  }

  /// Stored inverted, as Photoshop began and all others follow.
  void ConvertCmyk(const std::uint8_t* from, int width, std::uint8_t* to) const {
    for (int x = 0; x < width; ++x, from += 4, to += channels_) {
      std::uint8_t rgb[3];
      for (int c = 0; c < 3; ++c) {
        const unsigned product = (255U - from[c]) * from[3] + 128U;
        rgb[c] = static_cast<std::uint8_t>(from[3] - (((product >> 8) + product) >> 8));
      }
      if (channels_ == 1) {
        to[0] = static_cast<std::uint8_t>(
            (19595U * rgb[0] + 38470U * rgb[1] + 7471U * rgb[2] + 0x8000U) >> 16);
        continue;
      }
      std::memcpy(to, rgb, 3);
      if (channels_ == 4) to[3] = 255;
    }
  }

  /// Whether the mark of the end lies in what was not decoded; within pixels there is none.
  bool HasEnd() const {
    if (info_.unread_marker == JPEG_EOI) return true;
    const std::uint8_t* next = info_.src->next_input_byte;
    for (std::size_t i = info_.src->bytes_in_buffer; i >= 2; --i) {
      if (next[i - 2] == 0xFF && next[i - 1] == JPEG_EOI) return true;
    }
    return false;
  }

  std::span<const std::byte> file_;
  JpegErrors errors_ = {};
  jpeg_progress_mgr progress_ = {};
  jpeg_decompress_struct info_ = {};
  JpegHeader header_;
  int channels_ = 0;
  std::unique_ptr<std::uint8_t[]> row_;
};

/// Where the stored image of height x width has what is `rect` of the upright one.
Rect StoredRect(const Rect& r, int orientation, int height, int width) {
  const int bottom_up = height - r.top - r.height;
  const int right_left = width - r.left - r.width;
  switch (orientation) {
    case 2:
      return {r.top, right_left, r.height, r.width};
    case 3:
      return {bottom_up, right_left, r.height, r.width};
    case 4:
      return {bottom_up, r.left, r.height, r.width};
    case 5:
      return {r.left, r.top, r.width, r.height};
    case 6:
      return {height - r.left - r.width, r.top, r.width, r.height};
    case 7:
      return {height - r.left - r.width, width - r.top - r.height, r.width, r.height};
    case 8:
      return {r.left, width - r.top - r.height, r.width, r.height};
    default:
      return r;
  }
}

}  // namespace

StatusOr<JpegHeader> ReadJpegHeader(std::span<const std::byte> file) {
  Decoder decoder(file, JpegWarnings::kAccept);
  AIT_RETURN_IF_ERROR(decoder.ReadHeader());
  return decoder.header();
}

StatusOr<Image> DecodeJpeg(std::span<const std::byte> file, const JpegOptions& options) {
  const int scale = options.scale_eighths;
  if (scale < 1 || scale > 16) {
    return InvalidArgumentError("scale_eighths is ", scale, "; allowed are 1 to 16");
  }
  Decoder decoder(file, options.warnings);
  AIT_RETURN_IF_ERROR(decoder.ReadHeader());
  const JpegHeader& header = decoder.header();
  AIT_RETURN_IF_ERROR(CheckImageSize(header.height, header.width, options.limits));
  const Rect stored = ScaledRect({0, 0, header.height, header.width}, scale);
  AIT_RETURN_IF_ERROR(CheckImageSize(stored.height, stored.width, options.limits));
  const int orientation = options.orientation == Orientation::kApply ? header.orientation : 1;
  const bool is_turned = orientation >= 5;
  const int height = is_turned ? header.width : header.height;
  const int width = is_turned ? header.height : header.width;
  const Rect region = options.region.value_or(Rect{0, 0, height, width});
  AIT_RETURN_IF_ERROR(CheckRect(region, height, width));
  AIT_ASSIGN_OR_RETURN(Image image, decoder.Read(StoredRect(ScaledRect(region, scale), orientation,
                                                            stored.height, stored.width),
                                                 scale, options.mode));
  if (orientation == 1) return image;
  return ApplyOrientation(image, orientation);
}

}  // namespace ait::inline v0
