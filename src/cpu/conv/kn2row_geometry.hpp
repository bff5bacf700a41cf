// A convolution taken apart by the taps of its kernel: for each, the outputs that it has an input for, and these
// inputs. What lies in the padding is in none of them, a third of all at 4x4 pixels. Private to the cpu room.
#pragma once
#include <array>
#include <vector>

#include "millrace/ops/conv.hpp"

namespace millrace::cpu {

struct Kn2rowGeometry {
  // Along an axis: outputs [first, first + count) read inputs from `input` on, `stride` apart.
  struct OutputRange {
    std::int64_t first = 0, count = 0, input = 0;
  };
  struct Tap {
    std::array<OutputRange, 3> range;
    std::int64_t rows = 0;  // pixels of an image
  };
  enum class Side { src, dst };

  explicit Kn2rowGeometry(const ConvSpec&);

  Shape src, dst;  // (N, depth, height, width, channels); axes that the convolution has not are of one pixel, in front
  std::array<std::int64_t, 3> stride{1, 1, 1};
  std::vector<Tap> all;       // in the order of the kernel
  std::int64_t chunk = 0;     // images at a time, at most: what is gathered of them stays in the cache of a core
  std::int64_t max_rows = 0;  // of a tap and image

  const Shape& shape(Side side) const { return side == Side::src ? src : dst; }
  std::int64_t pixels(Side side) const { return shape(side)[1] * shape(side)[2] * shape(side)[3]; }
  std::vector<std::int64_t> row_counts() const;  // of products: of each tap and number of images, once each
  // The pixels of a tap are all there are, in order: nothing has to be gathered.
  bool covers_image(const Tap&, Side) const;

  // The pixels of a tap in images [image, image + images), `from` and `to` being all images and rows side by side.
  void gather(Side, const Tap&, std::int64_t image, std::int64_t images, const char* from, std::size_t element,
              char* to) const;
  // Adds rows to those pixels of `to`, which begins with the first of these images.
  void scatter_add(Side, const Tap&, std::int64_t images, const float* rows, float* to) const;
};

}  // namespace millrace::cpu
