#include "cpu/winograd/tiles.hpp"

#include <type_traits>

#include "cpu/onednn/onednn.hpp"

namespace millrace::cpu::winograd {
namespace {

// edge x edge pixels, of which the first is at (y0, x0) for the first tile of an image.
struct Square {
  std::int64_t edge, y0, x0;
};

// Void: void or const void.
template <class Void>
void fill(Void** pixels, Void* tensor, Void* outside, std::int64_t number, const Tiles& tiles, const Shape& of,
          const Square& w) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  const std::int64_t height = of[1], width = of[2], pixel = of[3] * std::int64_t(size_of(tiles.dtype));
  const std::int64_t y = number / tiles.columns % tiles.rows * tiles.m + w.y0,
                     x = number % tiles.columns * tiles.m + w.x0;
  Byte* const first = static_cast<Byte*>(tensor) + number / (tiles.rows * tiles.columns) * height * width * pixel;
  const std::int64_t left = std::min(std::max<std::int64_t>(0, -x), w.edge),
                     right = std::max(left, std::min(w.edge, width - x));
  for (std::int64_t i = 0; i < w.edge; ++i, pixels += w.edge) {
    const bool inside = y + i >= 0 && y + i < height;
    Byte* const row = inside ? first + ((y + i) * width + x) * pixel : nullptr;
    const std::int64_t begin = inside ? left : w.edge, end = inside ? right : w.edge;
    for (std::int64_t c = 0; c < begin; ++c) pixels[c] = outside;
    for (std::int64_t c = begin; c < end; ++c) pixels[c] = row + c * pixel;
    for (std::int64_t c = end; c < w.edge; ++c) pixels[c] = outside;
  }
}

}  // namespace

bool supports(const ConvSpec& s) {
  using Three = std::array<std::int64_t, 3>;
  const Window& w = s.window;
  return w.rank == 2 && w.kernel == Three{3, 3, 1} && w.stride == Three{1, 1, 1} && w.dilation == Three{1, 1, 1} &&
         w.pad[0] <= 2 && w.pad[1] <= 2 && s.groups == 1 && (s.dtype == DType::f32 || s.dtype == DType::bf16) &&
         s.src[-1] % 16 == 0 && s.out_channels % 16 == 0 && onednn::tile_kernels() != nullptr;
}

Tiles::Tiles(const ConvSpec& s, ConvPart::Of of, std::int64_t m) : m(m), tile(m + 2) {
  const bool forward = of == ConvPart::Of::forward;
  from = forward ? s.src : s.dst();
  to = forward ? s.dst() : s.src;
  dtype = s.dtype;
  pad_y = forward ? s.window.pad[0] : 2 - s.window.pad[0];
  pad_x = forward ? s.window.pad[1] : 2 - s.window.pad[1];
  rows = (to[1] + m - 1) / m;
  columns = (to[2] + m - 1) / m;
}

double Tiles::work_share() const {
  const double share = double(tile * tile * count()) / double(9 * to[0] * to[1] * to[2]);
  return dtype == DType::bf16 && onednn::has_pairs() ? 2 * share : share;
}

void Tiles::source_pixels(const void** pixels, const void* source, const void* outside, std::int64_t number) const {
  fill(pixels, source, outside, number, *this, from, {tile, -pad_y, -pad_x});
}

void Tiles::output_pixels(void** pixels, void* output, std::int64_t channel, void* outside, std::int64_t number) const {
  fill<void>(pixels, static_cast<std::byte*>(output) + channel * std::int64_t(size_of(dtype)), outside, number, *this,
             to, {m, 0, 0});
}
void Tiles::output_pixels(const void** pixels, const void* output, const void* outside, std::int64_t number) const {
  fill(pixels, output, outside, number, *this, to, {m, 0, 0});
}

}  // namespace millrace::cpu::winograd
