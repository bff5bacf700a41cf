#include "cpu/norm/batch_norm_tiles.hpp"

#include "cpu/norm/batch_norm_bf16.hpp"

namespace millrace::cpu::batch_norm {
namespace {

struct alignas(64) BlockTile {
  float v[ChannelGrid::max_block];
};

bool in_place(const Tensor& t) { return t.dtype == DType::bf16 && has_bf16_kernels(); }
HalfLines lines(const Tensor& t, const Block& b) {
  return t ? HalfLines{t.as<bf16>() + b.begin, b.stride} : HalfLines{};
}
HalfTarget half_target(const Tensor& t, const Block& b) {
  return t ? HalfTarget{t.as<bf16>() + b.begin, b.stride} : HalfTarget{};
}

Lines read(const Tensor& t, const Block& b, BlockTile& tile) {
  if (!t) return {};
  if (t.dtype == DType::f32) return {t.as<float>() + b.begin, b.stride};
  if (b.contiguous())
    to_float(tile.v, element(t, b.begin), t.dtype, b.count());
  else
    for (std::int64_t r = 0; r < b.rows; ++r)
      to_float(tile.v + r * b.width, element(t, b.begin + r * b.stride), t.dtype, b.width);
  return {tile.v, b.width};
}

// Where to compute a result. If it is not requested, or has 16 bits, it is computed in the tile, which write() stores.
Target target(const Tensor& t, const Block& b, BlockTile& tile) {
  return t && t.dtype == DType::f32 ? Target{t.as<float>() + b.begin, b.stride} : Target{tile.v, b.width};
}

void write(const Tensor& t, const Block& b, Target from) {
  if (!t || t.dtype == DType::f32) return;
  if (b.contiguous())
    from_float(element(t, b.begin), t.dtype, from.data, b.count());
  else
    for (std::int64_t r = 0; r < b.rows; ++r)
      from_float(element(t, b.begin + r * b.stride), t.dtype, from.data + r * b.width, b.width);
}

}  // namespace

void block_sums(const Block& b, const Tensor& x, const float* shift, float* sum, float* square) {
  if (in_place(x)) return sums(b, lines(x, b), shift, sum, square);
  BlockTile tile;
  sums(b, read(x, b, tile), shift, sum, square);
}

void block_gradient_sums(const Block& b, const Tensor& dy, const Tensor& x, const std::uint32_t* bits,
                         const float* mean, float* sum, float* product) {
  if (in_place(x)) return gradient_sums(b, lines(dy, b), lines(x, b), bits, mean, sum, product);
  BlockTile x_tile, dy_tile;
  gradient_sums(b, read(dy, b, dy_tile), read(x, b, x_tile), bits, mean, sum, product);
}

void block_passed_gradient(const Block& b, const Tensor& g, const Tensor& x, const std::uint32_t* bits,
                           const float* mean, float* sum, float* product) {
  if (in_place(x)) return passed_gradient(b, half_target(g, b), lines(x, b), bits, mean, sum, product);
  BlockTile x_tile, g_tile;
  read(g, b, g_tile);
  const Target to = target(g, b, g_tile);
  passed_gradient(b, to, read(x, b, x_tile), bits, mean, sum, product);
  write(g, b, to);
}

void normalise_block(const Block& b, const Tensor& y, const Tensor& x, const Tensor& residual, std::uint32_t* bits,
                     Activation act, const NormParameters& parameters) {
  if (in_place(x))
    return normalise(b, HalfNorm{half_target(y, b), lines(x, b), lines(residual, b)}, bits, act, parameters);
  BlockTile x_tile, r_tile, y_tile;
  const Target to = target(y, b, y_tile);
  normalise(b, to, read(x, b, x_tile), read(residual, b, r_tile), bits, act, parameters);
  write(y, b, to);
}

void block_gradient(const Block& b, const GradientTensors& t, const std::uint32_t* bits, const GradientParameters& p) {
  if (in_place(t.x))
    return gradient(b, HalfGradient{half_target(t.dx, b), half_target(t.residual, b), lines(t.dy, b), lines(t.x, b)},
                    bits, p);
  BlockTile x_tile, dy_tile, dx_tile, dr_tile;
  const Target dx = target(t.dx, b, dx_tile), dr = target(t.residual, b, dr_tile);
  gradient(b, {dx, t.residual ? dr : Target{}, read(t.dy, b, dy_tile), read(t.x, b, x_tile)}, bits, p.mean, p.factor,
           p.mean_g, p.slope);
  write(t.dx, b, dx);
  write(t.residual, b, dr);
}

}  // namespace millrace::cpu::batch_norm
