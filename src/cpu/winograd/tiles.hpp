// The tiles of the images of a 3x3 convolution: m x m output pixels and the (m + 2) x (m + 2) source pixels that they
// need. Tiles are numbered along the rows, then along the columns, then along the images.
#pragma once
#include <algorithm>

#include "cpu/common/conv_part.hpp"
#include "cpu/matmul/tile_product.hpp"
#include "cpu/winograd/transforms.hpp"
#include "millrace/ops/conv.hpp"

namespace millrace::cpu::winograd {

// Elements from one position to the next, which has this many (a multiple of 16): an odd number of cache lines, so that
// the positions of a tile map to different sets of the caches.
inline std::int64_t odd_lines(std::int64_t floats) {
  constexpr std::int64_t line = 16;
  return (floats / line | 1) * line;
}

// Two spatial dimensions, 3x3 taps, stride 1, no dilation, no groups, channels that are multiples of 16, float32, and a
// processor with AVX2 or AVX-512.
bool supports(const ConvSpec&);

struct Tiles {
  // data: from diff_dst to diff_src, a convolution with turned weights.
  Tiles(const ConvSpec&, ConvPart::Of, std::int64_t m);

  Shape from, to;        // (N, height, width, channels)
  std::int64_t m, tile;  // tile = m + 2
  std::int64_t pad_y, pad_x;
  std::int64_t rows, columns;  // of tiles in an image

  std::int64_t count() const { return to[0] * rows * columns; }
  // Of the multiplications of a direct convolution, the share that is left.
  double work_share() const { return double(tile * tile * count()) / double(9 * to[0] * to[1] * to[2]); }
  // Pointers to the tile x tile pixels of `source`, a tensor like `from`. Pixels outside of the image: `outside`.
  void source_pixels(const float** pixels, const float* source, const float* outside, std::int64_t number) const;
  // Pointers to the m x m pixels of `output`, a tensor like `to`. Pixels outside of the image: `outside`.
  template <class Float>
  void output_pixels(Float** pixels, Float* output, Float* outside, std::int64_t number) const {
    fill(pixels, output, outside, number, to, m, {0, 0});
  }

 private:
  struct Shift {
    std::int64_t y, x;
  };
  template <class Float>
  void fill(Float** pixels, Float* image, Float* outside, std::int64_t number, const Shape& of, std::int64_t edge,
            Shift) const;
};

template <class Float>
void Tiles::fill(Float** pixels, Float* image, Float* outside, std::int64_t number, const Shape& of, std::int64_t edge,
                 Shift shift) const {
  const std::int64_t height = of[1], width = of[2], channels = of[3];
  const std::int64_t y = number / columns % rows * m + shift.y, x = number % columns * m + shift.x;
  Float* const first = image + number / (rows * columns) * height * width * channels;
  const std::int64_t left = std::min(std::max<std::int64_t>(0, -x), edge),
                     right = std::max(left, std::min(edge, width - x));
  for (std::int64_t i = 0; i < edge; ++i, pixels += edge) {
    const bool inside = y + i >= 0 && y + i < height;
    Float* const row = inside ? first + ((y + i) * width + x) * channels : nullptr;
    const std::int64_t begin = inside ? left : edge, end = inside ? right : edge;
    for (std::int64_t c = 0; c < begin; ++c) pixels[c] = outside;
    for (std::int64_t c = begin; c < end; ++c) pixels[c] = row + c * channels;
    for (std::int64_t c = end; c < edge; ++c) pixels[c] = outside;
  }
}

}  // namespace millrace::cpu::winograd
