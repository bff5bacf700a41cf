// Group norm. Both directions read the tensor twice: for sums over the positions of each row and channel, of which the
// groups are made, and for the result. Sums of x are those of its difference to the first position of the row, so that
// a mean that is large beside the deviation costs no digits.
#include <cmath>
#include <vector>

#include "cpu/common/ops.hpp"
#include "cpu/common/row_lines.hpp"

namespace millrace::cpu {
namespace {

MR_TARGET_CLONES void add_moments(float* __restrict sum, float* __restrict square, const float* __restrict x,
                                  const float* __restrict shift, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float d = x[i] - shift[i];
    sum[i] += d;
    square[i] += d * d;
  }
}
MR_TARGET_CLONES void scale_and_shift(float* __restrict y, const float* __restrict x, const float* __restrict scale,
                                      const float* __restrict bias, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * scale[i] + bias[i];
}
struct Gradients {
  const float *dy, *x;
};
MR_TARGET_CLONES void add_gradients(float* __restrict sum, float* __restrict product, Gradients of,
                                    const float* __restrict mean, const float* __restrict inverse, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    sum[i] += of.dy[i];
    product[i] += of.dy[i] * ((of.x[i] - mean[i]) * inverse[i]);
  }
}
struct Lanes {
  const float *scale, *mean, *slope, *bias;
};
MR_TARGET_CLONES void gradient(float* __restrict dx, const float* __restrict dy, const float* __restrict x, Lanes l,
                               std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * l.scale[i] + (x[i] - l.mean[i]) * l.slope[i] + l.bias[i];
}

class GroupNorm : public Op {
 public:
  explicit GroupNorm(const GroupNormSpec& spec)
      : spec_(checked(spec)),
        lines_(spec.src[0], spec.positions(), spec.channels()),
        group_(spec.channels() / spec.groups) {
    dispatch_dtype(spec_.dtype, [](auto) {});
  }

  // Workspace: the sums of the parts, then up to four values for each lane of each row.
  MemoryRequirements memory_requirements() const override {
    const bool train = spec_.mode == Mode::train;
    MemoryRequirements needs;
    needs.workspace = std::size_t(lines_.sum_count(2) + lines_.rows * (train ? 4 : 2) * lines_.width) * sizeof(float);
    if (train) needs.saved = std::size_t(lines_.rows * spec_.groups) * sizeof(Moments);
    return needs;
  }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    float* const sums = static_cast<float*>(args.workspace);
    each_row([&](std::int64_t row) {
      Tile tile;
      for (std::int64_t c = 0; c < lines_.channels; c += tile_count) {
        const std::int64_t n = std::min(tile_count, lines_.channels - c);
        std::copy_n(read_floats(args.src[0], row * lines_.positions * lines_.channels + c, n, tile), n,
                    lanes(args, row, 0) + c);
      }
      lines_.spread(lanes(args, row, 0), [&](std::int64_t c) { return lanes(args, row, 0)[c]; });
    });
    lines_.each([&](std::int64_t part) { clear(sums, part); },
                [&](std::int64_t part, std::int64_t begin, std::int64_t lane, std::int64_t n) {
                  Tile x;
                  float* const at = sums + part * 2 * lines_.width + lane;
                  add_moments(at, at + lines_.width, read_floats(args.src[0], begin, n, x),
                              lanes(args, part / lines_.parts, 0) + lane, n);
                });
    each_row([&](std::int64_t row) { prepare_forward(args, row); });
    lines_.each([](std::int64_t) {},
                [&](std::int64_t part, std::int64_t begin, std::int64_t lane, std::int64_t n) {
                  Tile x, y;
                  const std::int64_t row = part / lines_.parts;
                  float* const to = float_target(args.dst, begin, y);
                  scale_and_shift(to, read_floats(args.src[0], begin, n, x), lanes(args, row, 0) + lane,
                                  lanes(args, row, 1) + lane, n);
                  write_floats(args.dst, begin, n, to);
                });
  }

  void backward(const OpArgs& args) override {
    float* const sums = static_cast<float*>(args.workspace);
    each_row([&](std::int64_t row) {
      lines_.spread(lanes(args, row, 0), [&](std::int64_t c) { return moments(args, row, c).inverse; });
      lines_.spread(lanes(args, row, 1), [&](std::int64_t c) { return moments(args, row, c).mean; });
    });
    lines_.each([&](std::int64_t part) { clear(sums, part); },
                [&](std::int64_t part, std::int64_t begin, std::int64_t lane, std::int64_t n) {
                  Tile dy, x;
                  const std::int64_t row = part / lines_.parts;
                  float* const at = sums + part * 2 * lines_.width + lane;
                  add_gradients(at, at + lines_.width,
                                {read_floats(args.diff_dst, begin, n, dy), read_floats(args.src[0], begin, n, x)},
                                lanes(args, row, 1) + lane, lanes(args, row, 0) + lane, n);
                });
    for (const int w : {0, 1})
      if (args.diff_weight[std::size_t(w)]) add_weight_gradient(args, w);
    if (!args.diff_src[0]) return;
    each_row([&](std::int64_t row) { prepare_backward(args, row); });
    lines_.each([](std::int64_t) {},
                [&](std::int64_t part, std::int64_t begin, std::int64_t lane, std::int64_t n) {
                  Tile dy, x, dx;
                  const float* const of = lanes(args, part / lines_.parts, 0) + lane;
                  float* const to = float_target(args.diff_src[0], begin, dx);
                  gradient(to, read_floats(args.diff_dst, begin, n, dy), read_floats(args.src[0], begin, n, x),
                           {of, of + lines_.width, of + 2 * lines_.width, of + 3 * lines_.width}, n);
                  write_floats(args.diff_src[0], begin, n, to);
                });
  }

 private:
  struct Moments {
    float mean, inverse;
  };
  static const GroupNormSpec& checked(const GroupNormSpec& spec) {
    spec.check();
    return spec;
  }
  Moments& moments(const OpArgs& args, std::int64_t row, std::int64_t channel) const {
    return static_cast<Moments*>(args.saved)[row * spec_.groups + channel / group_];
  }
  float* lanes(const OpArgs& args, std::int64_t row, int number) const {
    const std::int64_t of_row = spec_.mode == Mode::train ? 4 : 2;
    return static_cast<float*>(args.workspace) + lines_.sum_count(2) + (row * of_row + number) * lines_.width;
  }
  double gamma(const OpArgs& args, std::int64_t channel) const {
    return spec_.affine ? double(args.weight[0].as<float>()[channel]) : 1;
  }
  void clear(float* sums, std::int64_t part) const {
    std::fill_n(sums + part * 2 * lines_.width, 2 * lines_.width, 0.0f);
  }
  template <class Body>
  void each_row(const Body& body) const {
    const std::int64_t grain = std::max<std::int64_t>(1, tile_count / (lines_.width * lines_.parts));
    parallel_ranges(lines_.rows, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) body(row);
    });
  }

  // Lanes 0 and 1: from the shifts to scale and bias.
  void prepare_forward(const OpArgs& args, std::int64_t row) const {
    const float* const sums = static_cast<const float*>(args.workspace);
    const double positions = double(lines_.positions);
    float *const first = lanes(args, row, 0), *const second = lanes(args, row, 1);
    std::vector<double> mean(std::size_t(lines_.channels)), spread(mean.size());
    for (std::int64_t c = 0; c < lines_.channels; ++c) {
      const double sum = lines_.total(sums, 2, 0, row, c);
      mean[std::size_t(c)] = double(first[c]) + sum / positions;
      spread[std::size_t(c)] = lines_.total(sums, 2, 1, row, c) - sum * sum / positions;
    }
    for (std::int64_t begin = 0; begin < lines_.channels; begin += group_) {
      double center = 0, squares = 0;
      for (std::int64_t c = begin; c < begin + group_; ++c) center += mean[std::size_t(c)] / double(group_);
      for (std::int64_t c = begin; c < begin + group_; ++c) {
        const double apart = mean[std::size_t(c)] - center;
        squares += spread[std::size_t(c)] + positions * apart * apart;
      }
      const double variance = squares / (positions * double(group_)),
                   inverse = 1 / std::sqrt((variance < 0 ? 0 : variance) + double(spec_.epsilon));
      if (spec_.mode == Mode::train) moments(args, row, begin) = {float(center), float(inverse)};
      for (std::int64_t c = begin; c < begin + group_; ++c) {
        const double scale = gamma(args, c) * inverse;
        first[c] = float(scale);
        second[c] = float((spec_.affine ? double(args.weight[1].as<float>()[c]) : 0) - center * scale);
      }
    }
    for (float* const of : {first, second}) lines_.spread(of, [of](std::int64_t c) { return of[c]; });
  }

  // dx = (dy * gamma - mean_g - xhat * mean_gx) * inverse; lanes 0 to 3: scale, mean, slope and bias.
  void prepare_backward(const OpArgs& args, std::int64_t row) const {
    const float* const sums = static_cast<const float*>(args.workspace);
    const double count = double(lines_.positions * group_);
    for (std::int64_t begin = 0; begin < lines_.channels; begin += group_) {
      double g = 0, gx = 0;
      for (std::int64_t c = begin; c < begin + group_; ++c) {
        g += gamma(args, c) * lines_.total(sums, 2, 0, row, c);
        gx += gamma(args, c) * lines_.total(sums, 2, 1, row, c);
      }
      const double inverse = double(moments(args, row, begin).inverse);
      for (std::int64_t c = begin; c < begin + group_; ++c) {
        lanes(args, row, 0)[c] = float(gamma(args, c) * inverse);
        lanes(args, row, 2)[c] = float(-gx / count * inverse * inverse);
        lanes(args, row, 3)[c] = float(-g / count * inverse);
      }
    }
    for (const int number : {0, 2, 3}) {
      float* const of = lanes(args, row, number);
      lines_.spread(of, [of](std::int64_t c) { return of[c]; });
    }
  }

  // w: 0 for gamma, 1 for beta
  void add_weight_gradient(const OpArgs& args, int w) const {
    const float* const sums = static_cast<const float*>(args.workspace);
    float* const to = args.diff_weight[std::size_t(w)].as<float>();
    const bool add = args.mode[std::size_t(w)] == GradMode::add;
    parallel_ranges(lines_.channels, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        double sum = add ? double(to[c]) : 0;
        for (std::int64_t row = 0; row < lines_.rows; ++row) sum += lines_.total(sums, 2, 1 - w, row, c);
        to[c] = float(sum);
      }
    });
  }

  GroupNormSpec spec_;
  RowLines lines_;
  std::int64_t group_;
};

}  // namespace

std::unique_ptr<Op> make_group_norm(const GroupNormSpec& spec) { return std::make_unique<GroupNorm>(spec); }

}  // namespace millrace::cpu
