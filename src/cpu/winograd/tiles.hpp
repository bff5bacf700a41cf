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

// Two spatial dimensions, 3x3 taps, stride 1, no dilation, no groups, channels that are multiples of 16, float32 or
// bf16, and a processor with AVX2 or AVX-512.
bool supports(const ConvSpec&);

struct Tiles {
  // data: from diff_dst to diff_src, a convolution with turned weights.
  Tiles(const ConvSpec&, ConvPart::Of, std::int64_t m);

  Shape from, to;  // (N, height, width, channels)
  DType dtype;
  std::int64_t m, tile;  // tile = m + 2
  std::int64_t pad_y, pad_x;
  std::int64_t rows, columns;  // of tiles in an image

  std::int64_t count() const { return to[0] * rows * columns; }
  // The share of the multiplications of a direct convolution that is left. They are of float32: each takes as long as
  // two of bf16 where the processor multiplies pairs of bf16.
  double work_share() const;
  // Pointers to the tile x tile pixels of `source`, a tensor like `from`. Pixels outside of the image: `outside`.
  void source_pixels(const void** pixels, const void* source, const void* outside, std::int64_t number) const;
  // Pointers to the m x m pixels of `output`, a tensor like `to`, from channel `channel` on. Pixels outside of the
  // image: `outside`.
  void output_pixels(void** pixels, void* output, std::int64_t channel, void* outside, std::int64_t number) const;
  void output_pixels(const void** pixels, const void* output, const void* outside, std::int64_t number) const;
};

}  // namespace millrace::cpu::winograd
