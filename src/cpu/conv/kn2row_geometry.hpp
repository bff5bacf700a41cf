// The geometry of kn2row: for each tap of the kernel of a convolution, the output pixels for which the tap reads an
// input pixel, and those input pixels. Products with the padding are left out: 30 % of all for 3x3 taps and 4x4 pixels.
#pragma once
#include <array>
#include <vector>

#include "millrace/ops/conv.hpp"

namespace millrace::cpu {

struct Kn2rowGeometry {
  // Along one axis, outputs [first, first + count) read inputs from `input` on, in steps of the stride.
  struct OutputRange {
    std::int64_t first = 0, count = 0, input = 0;
  };
  struct Tap {
    std::array<OutputRange, 3> range;
    std::int64_t rows = 0;  // pixels of the tap per image
  };
  enum class Side { src, dst };

  explicit Kn2rowGeometry(const ConvSpec&);

  Shape src, dst;  // (N, depth, height, width, channels); missing leading axes have an extent of 1
  std::array<std::int64_t, 3> stride{1, 1, 1};
  std::vector<Tap> all;    // in the order of the kernel
  std::int64_t chunk = 0;  // most images processed at once, so that their gathered pixels stay in the cache of a core
  std::int64_t max_rows = 0;  // largest Tap::rows

  const Shape& shape(Side side) const { return side == Side::src ? src : dst; }
  std::int64_t pixels(Side side) const { return shape(side)[1] * shape(side)[2] * shape(side)[3]; }
  // The numbers of rows of all products, for each tap and number of images, without duplicates.
  std::vector<std::int64_t> row_counts() const;
  // Whether the tap uses all pixels of the image in order, so that they need not be gathered.
  bool covers_image(const Tap&, Side) const;

  // Copies the pixels of a tap in images [image, image + images) from `from`, which holds all images, to consecutive
  // rows of `to`. element: bytes of one value.
  void gather(Side, const Tap&, std::int64_t image, std::int64_t images, const char* from, std::size_t element,
              char* to) const;
  // Adds consecutive rows to the pixels of a tap in the first `images` images of `to`.
  void scatter_add(Side, const Tap&, std::int64_t images, const float* rows, float* to) const;
};

}  // namespace millrace::cpu
