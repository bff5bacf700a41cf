#include "cpu/norm/norm_rows.hpp"

namespace millrace::cpu::batch_norm {
namespace {

using Lanes = float[ChannelGrid::max_width];

ChannelGrid grid_of(const Tensor& t) { return {t.count() / t.shape[-1], t.shape[-1]}; }

// The bits of a block. Where they are does not depend on the number of rows behind it.
template <class Word>
Word* bits_of(Word* bits, const ChannelGrid& grid, const Block& b) {
  return bits ? bits + (b.index % grid.slab_blocks * grid.slabs + b.slab) * grid.width : nullptr;
}

// Calls body(block) for each block of a slab.
template <class Body>
void each_block(const ChannelGrid& grid, std::int64_t slab, const Body& body) {
  for (std::int64_t i = 0; i < grid.slab_blocks; ++i) body(grid.block(slab * grid.slab_blocks + i));
}

// Adds up what sum_block(block, a, b) writes to its two sums of each lane: in double over the blocks of the slab, then
// over the lanes of each channel.
template <class SumBlock>
void sum_slab(const ChannelGrid& grid, std::int64_t slab, double* first, double* second, const SumBlock& sum_block) {
  double total[2][ChannelGrid::max_width] = {};
  each_block(grid, slab, [&](const Block& b) {
    Lanes of_first, of_second;
    sum_block(b, of_first, of_second);
    for (std::int64_t l = 0; l < b.width; ++l) {
      total[0][l] += double(of_first[l]);
      total[1][l] += double(of_second[l]);
    }
  });
  const std::int64_t n = grid.channels_in(slab), c0 = grid.channel_of(slab);
  for (std::int64_t c = 0; c < n; ++c) {
    first[c0 + c] = second[c0 + c] = 0;
    for (std::int64_t r = 0; r < grid.repeat; ++r) {
      first[c0 + c] += total[0][r * n + c];
      second[c0 + c] += total[1][r * n + c];
    }
  }
}

// The mean of the first rows, one value per channel of the slab.
void find_shift(const Tensor& x, const ChannelGrid& grid, std::int64_t slab, float* shift) {
  const std::int64_t n = grid.channels_in(slab), rows = std::min<std::int64_t>(8, grid.rows);
  std::fill_n(shift, n, 0.0f);
  for (std::int64_t r = 0; r < rows; ++r) {
    Lanes tile;
    const float* row = read_floats(x, r * grid.channels + grid.channel_of(slab), n, tile);
    for (std::int64_t c = 0; c < n; ++c) shift[c] += row[c] / float(rows);
  }
}

}  // namespace

Tensor rows_of(const Tensor& t, std::int64_t row, std::int64_t rows) {
  return t ? Tensor{element(t, row * t.shape[-1]), t.dtype, {rows, t.shape[-1]}} : Tensor{};
}

void add_rows(const Tensor& to, const Tensor& more) {
  for (std::int64_t begin = 0; begin < to.count(); begin += tile_count) {
    const std::int64_t n = std::min(tile_count, to.count() - begin);
    Tile to_tile, more_tile;
    const float *a = read_floats(to, begin, n, to_tile), *b = read_floats(more, begin, n, more_tile);
    float* sum = float_target(to, begin, to_tile);
    add(sum, a, b, n);
    write_floats(to, begin, n, sum);
  }
}

std::size_t bits_bytes(std::int64_t rows, std::int64_t channels) {
  const ChannelGrid grid(rows, channels);
  return std::size_t(grid.block_count() * grid.width) * sizeof(std::uint32_t);
}

void normalise_rows(const Tensor& y, const Tensor& x, const ChannelNorm& norm, std::uint32_t* bits) {
  const ChannelGrid grid = grid_of(x);
  for (std::int64_t slab = 0; slab < grid.slabs; ++slab) {
    Lanes mean, factor, inverse, beta;
    grid.spread(mean, norm.mean, slab);
    grid.spread(factor, norm.gamma, slab);
    grid.spread(inverse, norm.inverse, slab);
    grid.spread(beta, norm.beta, slab);
    for (std::int64_t i = 0; i < grid.repeat * grid.channels_in(slab); ++i) factor[i] *= inverse[i];
    each_block(grid, slab, [&](const Block& b) {
      normalise_block(b, y, x, {}, bits_of(bits, grid, b), norm.activation, {mean, factor, beta});
    });
  }
}

void sum_rows(const Tensor& x, double* sum, double* square) {
  const ChannelGrid grid = grid_of(x);
  for (std::int64_t slab = 0; slab < grid.slabs; ++slab) {
    const std::int64_t n = grid.channels_in(slab), c0 = grid.channel_of(slab);
    Lanes shift;
    find_shift(x, grid, slab, shift);
    for (std::int64_t r = 1; r < grid.repeat; ++r) std::copy_n(shift, n, shift + r * n);
    sum_slab(grid, slab, sum, square,
             [&](const Block& b, float* of_sum, float* of_square) { block_sums(b, x, shift, of_sum, of_square); });
    for (std::int64_t c = 0; c < n; ++c) {
      double &s = sum[c0 + c], &q = square[c0 + c];
      const double by = double(shift[c]), rows = double(grid.rows);
      q += by * (2 * s + rows * by);
      s += rows * by;
    }
  }
}

void pass_gradient_rows(const Tensor& g, const Tensor& x, const std::uint32_t* bits, const float* mean, double* sum,
                        double* product) {
  const ChannelGrid grid = grid_of(x);
  for (std::int64_t slab = 0; slab < grid.slabs; ++slab) {
    Lanes of_mean;
    grid.spread(of_mean, mean, slab);
    sum_slab(grid, slab, sum, product, [&](const Block& b, float* of_sum, float* of_product) {
      block_passed_gradient(b, g, x, bits_of(bits, grid, b), of_mean, of_sum, of_product);
    });
  }
}

void gradient_rows(const Tensor& dx, const Tensor& g, const Tensor& x, const ChannelGradient& of) {
  const ChannelGrid grid = grid_of(x);
  for (std::int64_t slab = 0; slab < grid.slabs; ++slab) {
    Lanes mean, factor, mean_g, slope;
    grid.spread(mean, of.mean, slab);
    grid.spread(factor, of.factor, slab);
    grid.spread(mean_g, of.mean_g, slab);
    grid.spread(slope, of.slope, slab);
    each_block(grid, slab, [&](const Block& b) {
      block_gradient(b, {dx, {}, g, x}, nullptr, {mean, factor, mean_g, slope});
    });
  }
}

}  // namespace millrace::cpu::batch_norm
