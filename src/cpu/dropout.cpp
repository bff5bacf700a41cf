#include "cpu/common/bits.hpp"
#include "cpu/common/draws.hpp"
#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

// Sets positive[i] = 1 if element begin + i of a row is kept, otherwise 0. `begin` is a multiple of 4. `positive` has
// room for n values, rounded up to a multiple of 256.
MR_TARGET_CLONES void draw(float* __restrict positive, std::uint64_t key, std::uint64_t step, std::uint64_t id,
                           std::int64_t begin, std::int64_t n, float probability) {
  for (std::int64_t i = 0; i < n; i += 4 * draw_lanes) {
    Draws d;
    philox_lanes(d, key, step << 32 | std::uint64_t((begin + i) / 4), id);
    for (int l = 0; l < draw_lanes; ++l)
      for (int k = 0; k < 4; ++k) positive[i + 4 * l + k] = uniform01(d.v[k][l]) >= probability ? 1.0f : 0.0f;
  }
}

class Dropout : public Op {
 public:
  explicit Dropout(const DropoutSpec& spec)
      : spec_(spec),
        row_count_(spec.src.row_count()),
        row_tiles_((row_count_ + tile_count - 1) / tile_count),
        tile_bits_(bits_bytes(std::min(row_count_, tile_count))) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    if (!(spec_.probability >= 0 && spec_.probability < 1))
      fail(Exit::config, "dropout: probability {:g} is not in [0, 1)", spec_.probability);
  }

  MemoryRequirements memory_requirements() const override {
    MemoryRequirements needs;
    if (spec_.mode == Mode::train) needs.saved = std::size_t(tiles()) * tile_bits_;
    return needs;
  }
  std::string implementation() const override { return "threads"; }

  void forward(const OpArgs& args) override {
    if (spec_.mode == Mode::infer) return parallel_copy(args.dst, args.src[0]);
    const std::uint64_t key = rng_key(spec_.seed, RngPurpose::dropout) + spec_.layer;
    const auto* ids = args.src[1].as<std::int64_t>();
    for_row_tiles([&](std::int64_t tile, std::int64_t row, std::int64_t begin, std::int64_t n) {
      Tile kept;
      const std::uint64_t id = std::uint64_t(ids[row]);
      if (spec_.whole_rows) {
        const Random4 first = philox(key, args.state->rng_step << 32, id);
        std::fill_n(kept.v, n, uniform01(first.v[0]) >= spec_.probability ? 1.0f : 0.0f);
      } else if (spec_.whole_channels) {
        for (std::int64_t i = 0; i < n; ++i) {
          const auto channel = std::uint64_t((begin + i) % spec_.src[-1]);
          const Random4 r = philox(key, args.state->rng_step << 32 | channel / 4, id);
          kept.v[i] = uniform01(r.v[channel % 4]) >= spec_.probability ? 1.0f : 0.0f;
        }
      } else {
        draw(kept, key, args.state->rng_step, id, begin, n, spec_.probability);
      }
      pack_positive(bits(args, tile), kept, n);
      apply(args.dst, args.src[0], bits(args, tile), row * row_count_ + begin, n);
    });
  }

  void backward(const OpArgs& args) override {
    if (!args.diff_src[0]) return;
    for_row_tiles([&](std::int64_t tile, std::int64_t row, std::int64_t begin, std::int64_t n) {
      apply(args.diff_src[0], args.diff_dst, bits(args, tile), row * row_count_ + begin, n);
    });
  }

 private:
  std::int64_t tiles() const { return spec_.src[0] * row_tiles_; }

  template <class Body>
  void for_row_tiles(const Body& body) const {
    parallel_ranges(tiles(), std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(1, row_count_)),
                    [&](std::int64_t first, std::int64_t last) {
                      for (std::int64_t tile = first; tile < last; ++tile) {
                        const std::int64_t begin = tile % row_tiles_ * tile_count;
                        body(tile, tile / row_tiles_, begin, std::min(tile_count, row_count_ - begin));
                      }
                    });
  }
  std::uint32_t* bits(const OpArgs& args, std::int64_t tile) const {
    return reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(args.saved) + std::size_t(tile) * tile_bits_);
  }
  void apply(const Tensor& to, const Tensor& from, const std::uint32_t* bits, std::int64_t at, std::int64_t n) const {
    Tile a, b;
    float* out = float_target(to, at, b);
    apply_bits(out, read_floats(from, at, n, a), bits, 1 / (1 - spec_.probability), n);
    write_floats(to, at, n, out);
  }

  DropoutSpec spec_;
  std::int64_t row_count_, row_tiles_;
  std::size_t tile_bits_;
};

}  // namespace

std::unique_ptr<Op> make_dropout(const DropoutSpec& spec) { return std::make_unique<Dropout>(spec); }

}  // namespace millrace::cpu
