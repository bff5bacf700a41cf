#include "cpu/winograd/tiles.hpp"

#include "cpu/onednn/onednn.hpp"

namespace millrace::cpu::winograd {

bool supports(const ConvSpec& s) {
  using Three = std::array<std::int64_t, 3>;
  const Window& w = s.window;
  return w.rank == 2 && w.kernel == Three{3, 3, 1} && w.stride == Three{1, 1, 1} && w.dilation == Three{1, 1, 1} &&
         w.pad[0] <= 2 && w.pad[1] <= 2 && s.groups == 1 && s.dtype == DType::f32 && s.src[-1] % 16 == 0 &&
         s.out_channels % 16 == 0 && onednn::tile_kernels() != nullptr;
}

Tiles::Tiles(const ConvSpec& s, ConvPart::Of of, std::int64_t m) : m(m), tile(m + 2) {
  const bool forward = of == ConvPart::Of::forward;
  from = forward ? s.src : s.dst();
  to = forward ? s.dst() : s.src;
  pad_y = forward ? s.window.pad[0] : 2 - s.window.pad[0];
  pad_x = forward ? s.window.pad[1] : 2 - s.window.pad[1];
  rows = (to[1] + m - 1) / m;
  columns = (to[2] + m - 1) / m;
}

void Tiles::source_pixels(const float** pixels, const float* source, const float* outside, std::int64_t number) const {
  fill(pixels, source, outside, number, from, tile, {-pad_y, -pad_x});
}

}  // namespace millrace::cpu::winograd
