// Sums and products with constants, and learned values at constant places.
#include <cmath>

#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

MR_TARGET_CLONES void multiply_add(float* y, const float* x, float scale, float offset, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = scale == 0 ? offset : x[i] * scale + offset;
}
MR_TARGET_CLONES void multiply_add_each(float* y, const float* x, const float* scale, const float* offset,
                                        std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = scale[i] == 0 ? offset[i] : x[i] * scale[i] + offset[i];
}

class Affine : public Op {
 public:
  explicit Affine(const AffineSpec& spec) : spec_(spec) {
    spec.check();
    dispatch_dtype(spec.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override { apply(args.dst, args.src[0], spec_.offset); }
  void backward(const OpArgs& args) override {
    if (args.diff_src[0]) apply(args.diff_src[0], args.diff_dst, Table<float>{0.0f});
  }

 private:
  void apply(const Tensor& to, const Tensor& from, const Table<float>& offset) const {
    const std::int64_t period = spec_.period();
    parallel_tiles(from.count(), [&](std::int64_t begin, std::int64_t n) {
      Tile x, y;
      const float* const in = read_floats(from, begin, n, x);
      float* const out = float_target(to, begin, y);
      if (period == 1) {
        multiply_add(out, in, spec_.scale[0], offset[0], n);
      } else {
        Tile scales, offsets;
        fill(scales, spec_.scale, begin, n);
        fill(offsets, offset, begin, n);
        multiply_add_each(out, in, scales, offsets, n);
      }
      write_floats(to, begin, n, out);
    });
  }
  // The entries of elements [begin, begin + n).
  void fill(float* to, const Table<float>& table, std::int64_t begin, std::int64_t n) const {
    if (table.size() == 1) {
      std::fill_n(to, n, table[0]);
      return;
    }
    std::int64_t entry = begin / spec_.inner % table.size(), within = begin % spec_.inner;
    for (std::int64_t i = 0; i < n; ++i) {
      to[i] = table[entry];
      if (++within < spec_.inner) continue;
      within = 0;
      if (++entry == table.size()) entry = 0;
    }
  }

  AffineSpec spec_;
};

void power(float* y, const float* x, float exponent, std::int64_t n) {
  if (exponent == 0.5f)
    for (std::int64_t i = 0; i < n; ++i) y[i] = std::sqrt(x[i]);
  else if (exponent == -1)
    for (std::int64_t i = 0; i < n; ++i) y[i] = 1 / x[i];
  else
    for (std::int64_t i = 0; i < n; ++i) y[i] = std::pow(x[i], exponent);
}
void power_gradient(float* dx, const float* x, const float* dy, float exponent, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    dx[i] = x[i] == 0 && exponent < 1 ? 0 : dy[i] * exponent * std::pow(x[i], exponent - 1);
}

class Power : public Op {
 public:
  explicit Power(const PowerSpec& spec) : spec_(spec) {
    dispatch_dtype(spec.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    parallel_tiles(args.dst.count(), [&](std::int64_t begin, std::int64_t n) {
      Tile x, y;
      float* const out = float_target(args.dst, begin, y);
      power(out, read_floats(args.src[0], begin, n, x), spec_.exponent, n);
      write_floats(args.dst, begin, n, out);
    });
  }
  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    parallel_tiles(args.diff_dst.count(), [&](std::int64_t begin, std::int64_t n) {
      Tile x, dy, dx;
      float* const out = float_target(args.diff_src[0], begin, dx);
      power_gradient(out, read_floats(args.src[0], begin, n, x), read_floats(args.diff_dst, begin, n, dy),
                     spec_.exponent, n);
      write_floats(args.diff_src[0], begin, n, out);
    });
  }

 private:
  PowerSpec spec_;
};

class IndexedBias : public Op {
 public:
  explicit IndexedBias(const IndexedBiasSpec& spec)
      : spec_(checked(spec)), places_(spec.mode == Mode::train ? Places(spec.index, spec.entries) : Places({}, 0)) {
    dispatch_dtype(spec.dtype, [](auto) {});
  }
  // The sums over the groups, of each position.
  MemoryRequirements memory_requirements() const override {
    return {spec_.mode == Mode::train ? std::size_t(spec_.positions()) * sizeof(float) : 0, 0, 0};
  }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    const float* const bias = args.weight[0].as<float>();
    each_tile([&](std::int64_t at, std::int64_t position, std::int64_t n) {
      Tile x, y, values;
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int32_t entry = spec_.index[position + i];
        values.v[i] = entry < 0 ? 0.0f : bias[entry];
      }
      float* const out = float_target(args.dst, at, y);
      add(out, read_floats(args.src[0], at, n, x), values, n);
      write_floats(args.dst, at, n, out);
    });
  }

  void backward(const OpArgs& args) override {
    if (args.diff_src[0]) parallel_copy(args.diff_src[0], args.diff_dst);
    if (!args.diff_weight[0]) return;
    float* const sums = static_cast<float*>(args.workspace);
    const std::int64_t positions = spec_.positions();
    parallel_ranges(positions, 64, [&](std::int64_t begin, std::int64_t end) {
      std::fill(sums + begin, sums + end, 0.0f);
      Tile x;
      for (std::int64_t g = 0; g < spec_.groups(); ++g)
        for (std::int64_t p = begin; p < end; p += tile_count) {
          const std::int64_t n = std::min(tile_count, end - p);
          add(sums + p, sums + p, read_floats(args.diff_dst, g * positions + p, n, x), n);
        }
    });
    float* const to = args.diff_weight[0].as<float>();
    const bool adds = args.mode[0] == GradMode::add;
    parallel_ranges(spec_.entries, 256, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t e = begin; e < end; ++e) {
        double sum = adds ? double(to[e]) : 0;
        for (std::int32_t i = places_.begin[std::size_t(e)]; i < places_.begin[std::size_t(e) + 1]; ++i)
          sum += double(sums[places_.places[std::size_t(i)]]);
        to[e] = float(sum);
      }
    });
  }

 private:
  static const IndexedBiasSpec& checked(const IndexedBiasSpec& spec) {
    spec.check();
    return spec;
  }
  // Calls body(element, position, n) for parts of the groups.
  template <class Body>
  void each_tile(const Body& body) const {
    const std::int64_t positions = spec_.positions(), tiles = (positions + tile_count - 1) / tile_count;
    parallel_ranges(spec_.groups() * tiles, std::max<std::int64_t>(1, 8 * tile_count / positions),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t tile = begin; tile < end; ++tile) {
                        const std::int64_t p = tile % tiles * tile_count;
                        body(tile / tiles * positions + p, p, std::min(tile_count, positions - p));
                      }
                    });
  }

  IndexedBiasSpec spec_;
  Places places_;
};

}  // namespace

std::unique_ptr<Op> make_affine(const AffineSpec& spec) { return std::make_unique<Affine>(spec); }
std::unique_ptr<Op> make_power(const PowerSpec& spec) { return std::make_unique<Power>(spec); }
std::unique_ptr<Op> make_indexed_bias(const IndexedBiasSpec& spec) { return std::make_unique<IndexedBias>(spec); }

}  // namespace millrace::cpu
