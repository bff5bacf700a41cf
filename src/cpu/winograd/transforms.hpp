// The transforms of Winograd's filtering (filtering.hpp) in two dimensions, for many channels. Element p of a
// transformed tile, 0 <= p < tile^2, is stored at a distance of p * step: the products of all tiles with the same p are
// one matrix product. Pixels are float32 or bf16; all else is float32.
#pragma once
#include <cstdint>

#include "millrace/base/types.hpp"

namespace millrace::cpu::winograd {

// Channel vector v (16 channels) of element p is at p * step + v / panel * panel_step + v % panel * 16.
struct TransformedTile {
  float* data;
  std::int64_t step, panel, panel_step;
};

// From pixels, one pointer each, to a transformed tile.
using Gather = void (*)(const void* const* pixels, std::int64_t vectors, const TransformedTile& to);
// From a transformed tile to pixels. bias: (16 * vectors), or null.
using Scatter = void (*)(const float* from, std::int64_t step, const float* bias, std::int64_t vectors,
                         void* const* pixels);

struct Transforms {
  std::int64_t m, tile;  // a tile has tile x tile pixels of the source, and m x m results
  const char* name;
  Gather input, diff_output;
  Scatter output;
  Gather filter;  // of float32
  // The same from a transformed tile to 3 x 3 pointers; adds to what is there if `add`.
  void (*diff_filter)(const float* from, std::int64_t step, std::int64_t vectors, bool add, float* const* taps);

  std::int64_t positions() const { return tile * tile; }
};
// m: 2 or 4. dtype: of the pixels, f32 or bf16. Needs onednn::tile_kernels(), whose instructions these use.
const Transforms& transforms(std::int64_t m, DType dtype);

}  // namespace millrace::cpu::winograd
