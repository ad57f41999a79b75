// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_EXAMPLES_01_ONE_PROCESS_FASHION_MNIST_H_
#define AIT_EXAMPLES_01_ONE_PROCESS_FASHION_MNIST_H_

// Reads Fashion-MNIST as Debian's package dataset-fashion-mnist installs it: gzip-compressed idx
// files, big endian: magic 0x0803 (images) or 0x0801 (labels), count, for images rows and columns,
// then bytes.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <zlib.h>

#include <cstdint>
#include <string>

#include "ait/base/status.h"

/// Images as floats from 0 to 1, [count, 784], and labels 0 to 9, [count].
struct FashionMnist {
  at::Tensor images;
  at::Tensor labels;

  /// `split` is "train" (60,000 images) or "t10k" (10,000).
  static ait::StatusOr<FashionMnist> Read(const std::string& folder, const std::string& split) {
    FashionMnist data;
    AIT_ASSIGN_OR_RETURN(at::Tensor pixels,
                         ReadIdx(folder + "/" + split + "-images-idx3-ubyte.gz", 0x0803, 784));
    AIT_ASSIGN_OR_RETURN(at::Tensor labels,
                         ReadIdx(folder + "/" + split + "-labels-idx1-ubyte.gz", 0x0801, 1));
    if (pixels.size(0) != labels.size(0)) {
      return ait::DataLossError(folder, ": ", pixels.size(0), " images and ", labels.size(0),
                                " labels");
    }
    data.images = pixels.to(at::kFloat).div_(255);
    data.labels = labels.to(at::kLong).flatten();
    return data;
  }

 private:
  static ait::StatusOr<at::Tensor> ReadIdx(const std::string& path, std::uint32_t magic,
                                           int item_bytes) {
    gzFile file = gzopen(path.c_str(), "rb");
    if (file == nullptr)
      return ait::NotFoundError(path, " is missing; install the package dataset-fashion-mnist");
    const auto number = [&] {
      unsigned char b[4] = {};
      if (gzread(file, b, 4) != 4) return std::uint32_t{0};
      return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 |
             std::uint32_t{b[3]};
    };
    const std::uint32_t seen = number(), count = number();
    const bool shape_fits = magic == 0x0801 || (number() == 28 && number() == 28);
    at::Tensor items;
    bool whole = seen == magic && shape_fits && count > 0 && count <= 1'000'000;
    if (whole) {
      items = at::empty({count, item_bytes}, at::kByte);
      const auto bytes = static_cast<unsigned>(items.numel());
      whole = gzread(file, items.data_ptr(), bytes) == static_cast<int>(bytes);
    }
    gzclose(file);
    if (!whole)
      return ait::DataLossError(path, " is not an idx file of Fashion-MNIST, or is cut short");
    return items;
  }
};

#endif  // AIT_EXAMPLES_01_ONE_PROCESS_FASHION_MNIST_H_
