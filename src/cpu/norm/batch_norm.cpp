// Batch norm. The first pass computes sums of x - shift and of its square for each chunk of blocks: in float within a
// block, in double across blocks. The sums of the chunks are added in order. The second pass normalises, adds the
// residual, and saves one bit per element that says whether the activation let it pass. If it is synchronised, the
// ranks exchange mean and variance between the two passes, and the two sums of the gradient in the same way.
#include <cmath>

#include "cpu/common/ops.hpp"
#include "cpu/norm/batch_norm_tiles.hpp"
#include "millrace/ops/rank_exchange.hpp"

namespace millrace::cpu {
namespace {

class BatchNorm : public Op {
 public:
  explicit BatchNorm(const BatchNormSpec& spec) : spec_(spec), grid_(spec.src.count() / spec.src[-1], spec.src[-1]) {
    if (clips() && spec_.activation != Activation::relu && spec_.activation != Activation::relu6)
      fail(Exit::config, "batch norm: activation {} cannot be fused. use none, relu or relu6",
           name_of(spec_.activation));
    if (spec_.src.count() == 0) fail(Exit::config, "batch norm: input {} is empty", spec_.src.str());
    dispatch_dtype(spec_.dtype, [](auto) {});
    if (spec_.produces_affine && (!spec_.consumes_diff_sums || !clips() || spec_.residual))
      fail(Exit::config, "batch norm {}: the next convolution cannot apply it", spec_.src.str());
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    if (spec_.mode == Mode::infer) return needs;
    if (!spec_.consumes_diff_sums)
      needs.saved = bits_at() + (clips() ? bits_stride() * std::size_t(grid_.block_count()) : 0);
    needs.workspace = sums_at() + std::size_t(2 * grid_.chunks * grid_.channels) * sizeof(double);
    return needs;
  }

  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    float *mean = moments(args), *inverse = mean + grid_.channels;
    const bool train = spec_.mode == Mode::train;
    if (args.without_rows) return exchange_nothing(args);
    if (train) statistics(args, mean, inverse);
    if (spec_.produces_affine) return write_affine(args, mean, inverse);
    parallel_ranges(grid_.block_count(), block_grain(), [&](std::int64_t begin, std::int64_t end) {
      Lanes m, factor, beta;
      std::int64_t slab = -1;
      for (std::int64_t index = begin; index < end; ++index) {
        const Block b = grid_.block(index);
        if (b.slab != slab) {
          slab = b.slab;
          grid_.spread(m, train ? mean : args.weight[2].as<float>(), slab);
          grid_.spread(beta, args.weight[1].as<float>(), slab);
          grid_.spread(factor, args.weight[0].as<float>(), slab);
          Lanes scale;
          grid_.spread(scale, train ? inverse : args.weight[3].as<float>(), slab);
          for (std::int64_t i = 0; i < b.width; ++i)
            factor[i] *= train ? scale[i] : float(1 / std::sqrt(double(scale[i]) + spec_.epsilon));
        }
        batch_norm::normalise_block(b, args.dst, args.src[0], spec_.residual ? args.src[1] : Tensor{}, bits(args, b),
                                    spec_.activation, {m, factor, beta});
      }
    });
  }

  void backward(const OpArgs& args) override {
    if (args.without_rows) return exchange_nothing(args);
    const float *mean = moments(args), *inverse = mean + grid_.channels;
    float* mean_g = spec_.produces_diff_affine ? args.diff_affine.as<float>() + 2 * grid_.channels
                                               : static_cast<float*>(args.workspace);
    float* slope = mean_g + grid_.channels;
    gradient_statistics(args, mean, inverse, mean_g, slope);
    if (spec_.produces_diff_affine) return write_diff_affine(args, mean, inverse);
    if (!args.diff_src[0] && !args.diff_src[1]) return;
    parallel_ranges(grid_.block_count(), block_grain(), [&](std::int64_t begin, std::int64_t end) {
      Lanes m, factor, mg, s;
      std::int64_t slab = -1;
      for (std::int64_t index = begin; index < end; ++index) {
        const Block b = grid_.block(index);
        if (b.slab != slab) {
          slab = b.slab;
          grid_.spread(m, mean, slab);
          grid_.spread(mg, mean_g, slab);
          grid_.spread(s, slope, slab);
          grid_.spread(factor, args.weight[0].as<float>(), slab);
          Lanes scale;
          grid_.spread(scale, inverse, slab);
          for (std::int64_t i = 0; i < b.width; ++i) factor[i] *= scale[i];
        }
        batch_norm::block_gradient(b, {args.diff_src[0], args.diff_src[1], args.diff_dst, args.src[0]}, bits(args, b),
                                   {m, factor, mg, s});
      }
    });
  }

 private:
  using Lanes = float[ChannelGrid::max_width];

  bool clips() const { return spec_.activation != Activation::none; }
  std::int64_t block_grain() const { return std::max<std::int64_t>(1, 16384 / (grid_.block_rows * grid_.width)); }

  // The batch mean of each channel, then 1/std of each channel.
  float* moments(const OpArgs& args) const {
    return spec_.consumes_diff_sums ? args.moments.as<float>() : static_cast<float*>(args.saved);
  }
  // saved: moments, then the ReLU bits of each block; empty with consumes_diff_sums. workspace: two floats per channel,
  // then the sums of each chunk.
  std::size_t bits_at() const { return align64(2 * std::size_t(grid_.channels) * sizeof(float)); }
  std::size_t sums_at() const { return align64(2 * std::size_t(grid_.channels) * sizeof(float)); }
  std::size_t bits_stride() const { return std::size_t(grid_.width) * sizeof(std::uint32_t); }
  std::uint32_t* bits(const OpArgs& args, const Block& b) const {
    if (!clips() || spec_.mode == Mode::infer || spec_.consumes_diff_sums) return nullptr;
    return reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(args.saved) + bits_at() +
                                            bits_stride() * std::size_t(b.index));
  }
  double* chunk_sums(const OpArgs& args, std::int64_t chunk) const {
    return reinterpret_cast<double*>(static_cast<std::byte*>(args.workspace) + sums_at()) + chunk * 2 * grid_.channels;
  }

  // Calls sum_block(block, shift, a, b) for each block, adds up the two sums a and b of each lane, and writes those of
  // each chunk and channel to the workspace. prepare(shift, slab) fills `shift`, one value per lane.
  template <class Prepare, class SumBlock>
  void sum_chunks(const OpArgs& args, const Prepare& prepare, const SumBlock& sum_block) const {
    parallel_ranges(grid_.slabs * grid_.chunks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t slab = task / grid_.chunks, chunk = task % grid_.chunks;
        const std::int64_t first = chunk * grid_.chunk_blocks;
        const std::int64_t last = std::min(first + grid_.chunk_blocks, grid_.slab_blocks);
        double total[2][ChannelGrid::max_width] = {};
        Lanes shift, a, b;
        prepare(shift, slab);
        for (std::int64_t i = first; i < last; ++i) {
          const Block block = grid_.block(slab * grid_.slab_blocks + i);
          sum_block(block, shift, a, b);
          for (std::int64_t l = 0; l < block.width; ++l) {
            total[0][l] += double(a[l]);
            total[1][l] += double(b[l]);
          }
        }
        const std::int64_t n = grid_.channels_in(slab);
        double* out = chunk_sums(args, chunk) + grid_.channel_of(slab);
        for (int k = 0; k < 2; ++k)
          for (std::int64_t c = 0; c < n; ++c) {
            double sum = 0;
            for (std::int64_t r = 0; r < grid_.repeat; ++r) sum += total[k][r * n + c];
            out[k * grid_.channels + c] = sum;
          }
      }
    });
  }
  std::pair<double, double> total(const OpArgs& args, std::int64_t channel) const {
    double a = 0, b = 0;
    for (std::int64_t chunk = 0; chunk < grid_.chunks; ++chunk) {
      a += chunk_sums(args, chunk)[channel];
      b += chunk_sums(args, chunk)[grid_.channels + channel];
    }
    return {a, b};
  }

  // What synchronised norms exchange; null: nothing.
  RankExchange* exchange(const OpArgs& args) const { return spec_.synchronised ? args.ranks : nullptr; }
  std::int64_t exchanged() const { return ChannelPairs<double>::count(grid_.channels); }
  ChannelPairs<double> own(RankExchange& ranks) const { return {ranks.own(exchanged()), grid_.channels}; }
  PairsOfRanks all(RankExchange& ranks) const { return {ranks.values(), grid_.channels, ranks.ranks()}; }
  void exchange_nothing(const OpArgs& args) const {
    std::fill_n(args.ranks->own(exchanged()), exchanged(), 0.0);
    args.ranks->all_gather(exchanged(), RankExchange::Pass::without_rows);
  }
  template <class Body>
  void each_channel(const Body& body) const {
    parallel_ranges(grid_.channels, 256, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) body(c);
    });
  }

  void statistics(const OpArgs& args, float* mean, float* inverse) const {
    float* shift = static_cast<float*>(args.workspace);
    if (!spec_.consumes_sums) sum_source(args, shift);
    const double weight = double(spec_.src[0]) * double(args.state->row_weight);
    float* stats = args.stats.as<float>();
    const auto store = [&](std::int64_t c, const ChannelMoments& m) {
      mean[c] = float(m.mean);
      inverse[c] = float(1 / std::sqrt(m.squares / m.count + double(spec_.epsilon)));
      if (!stats) return;
      const float values[2] = {float(weight * m.mean), float(weight * m.squares / (m.count > 1 ? m.count - 1 : 1))};
      for (int k = 0; k < 2; ++k) {
        float& to = stats[k * grid_.channels + c];
        to = args.stats_mode == GradMode::add ? to + values[k] : values[k];
      }
    };
    RankExchange* const ranks = exchange(args);
    each_channel([&](std::int64_t c) {
      const ChannelMoments m = moments_of_rank(args, shift, c);
      ranks ? own(*ranks).put(c, m.count, m.mean, m.squares) : store(c, m);
    });
    if (!ranks) return;
    ranks->all_gather(exchanged(), RankExchange::Pass::forward);
    each_channel([&](std::int64_t c) { store(c, all(*ranks).moments(c)); });
  }

  // Computes the variance from the sums of x - shift and of its square, which is accurate if the shift is near the
  // mean. The shift is the mean of a few rows spread over the tensor. With consumes_sums, the shift is 0.
  ChannelMoments moments_of_rank(const OpArgs& args, const float* shift, std::int64_t c) const {
    const double n = double(grid_.rows);
    const float* given = args.sums.as<float>();
    const auto sum_of = [&](std::int64_t i) {
      return double(given[i]) + (args.sums.shape[0] == 4 ? double(given[2 * grid_.channels + i]) : 0);
    };
    const auto [sum, square] = spec_.consumes_sums ? std::pair(sum_of(c), sum_of(grid_.channels + c)) : total(args, c);
    const double spread = square - sum * sum / n, squares = spread < 0 ? 0 : spread;  // keeps a NaN
    return {n, (spec_.consumes_sums ? 0 : double(shift[c])) + sum / n, squares};
  }

  // mean_g and slope are there already.
  void write_diff_affine(const OpArgs& args, const float* mean, const float* inverse) const {
    float *to = args.diff_affine.as<float>(), *factor = to + grid_.channels;
    const float* gamma = args.weight[0].as<float>();
    for (std::int64_t c = 0; c < grid_.channels; ++c) {
      to[c] = mean[c];
      factor[c] = gamma[c] * inverse[c];
    }
  }

  // The bias is computed from the rounded scale.
  void write_affine(const OpArgs& args, const float* mean, const float* inverse) const {
    const float *gamma = args.weight[0].as<float>(), *beta = args.weight[1].as<float>();
    dispatch_dtype(spec_.dtype, [&](auto zero) {
      auto *scale = args.affine.as<decltype(zero)>(), *bias = scale + grid_.channels;
      for (std::int64_t c = 0; c < grid_.channels; ++c) {
        store(scale + c, gamma[c] * inverse[c]);
        store(bias + c, float(double(beta[c]) - double(mean[c]) * double(load(scale + c))));
      }
    });
  }

  void sum_source(const OpArgs& args, float* shift) const {
    const std::int64_t picks = std::min<std::int64_t>(16, grid_.rows);
    for (std::int64_t c0 = 0; c0 < grid_.channels; c0 += ChannelGrid::max_width) {
      const std::int64_t n = std::min(ChannelGrid::max_width, grid_.channels - c0);
      double sum[ChannelGrid::max_width] = {};
      for (std::int64_t p = 0; p < picks; ++p) {
        Lanes tile;
        const float* row = read_floats(args.src[0], grid_.rows * p / picks * grid_.channels + c0, n, tile);
        for (std::int64_t c = 0; c < n; ++c) sum[c] += double(row[c]);
      }
      for (std::int64_t c = 0; c < n; ++c) shift[c0 + c] = float(sum[c] / double(picks));
    }
    sum_chunks(
        args, [&](float* lanes, std::int64_t slab) { grid_.spread(lanes, shift, slab); },
        [&](const Block& b, const float* lanes, float* sum, float* square) {
          batch_norm::block_sums(b, args.src[0], lanes, sum, square);
        });
  }

  void gradient_statistics(const OpArgs& args, const float* mean, const float* inverse, float* mean_g,
                           float* slope) const {
    if (!spec_.consumes_diff_sums)
      sum_chunks(
          args, [&](float* lanes, std::int64_t slab) { grid_.spread(lanes, mean, slab); },
          [&](const Block& b, const float* lanes, float* sum, float* product) {
            batch_norm::block_gradient_sums(b, args.diff_dst, args.src[0], bits(args, b), lanes, sum, product);
          });
    const float* given = args.diff_sums.as<float>();
    const auto store = [&](std::int64_t c, const PairsOfRanks::Sums& of) {
      mean_g[c] = float(of.first / of.count);
      slope[c] = float(of.second * double(inverse[c]) / of.count);
    };
    RankExchange* const ranks = exchange(args);
    each_channel([&](std::int64_t c) {
      const auto [sum, product] =
          spec_.consumes_diff_sums ? std::pair(double(given[grid_.channels + c]), 0.0) : total(args, c);
      const double gamma = spec_.consumes_diff_sums ? double(given[c]) : product * double(inverse[c]);
      const PairsOfRanks::Sums of_rank{double(grid_.rows), sum, gamma};
      ranks ? own(*ranks).put(c, of_rank.count, sum, gamma) : store(c, of_rank);
      for (int w = 0; w < 2; ++w) {
        if (!args.diff_weight[w]) continue;
        float& to = args.diff_weight[w].as<float>()[c];
        const float value = float(w == 0 ? gamma : sum);
        to = args.mode[w] == GradMode::add ? to + value : value;
      }
    });
    if (!ranks) return;
    ranks->all_gather(exchanged(), RankExchange::Pass::backward);
    each_channel([&](std::int64_t c) { store(c, all(*ranks).sums(c)); });
  }

  BatchNormSpec spec_;
  ChannelGrid grid_;
};

}  // namespace

std::unique_ptr<Op> make_batch_norm(const BatchNormSpec& spec) { return std::make_unique<BatchNorm>(spec); }

}  // namespace millrace::cpu
