#include "millrace/ops/mix.hpp"

#include "cpu/common/ops.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

MR_TARGET_CLONES void mix_values(float* __restrict to, const float* __restrict own, const float* __restrict other,
                                 float share, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = own[i] * share + other[i] * (1 - share);
}

// It processes one line of the last spatial axis at a time.
class Mix : public Op {
 public:
  explicit Mix(const MixSpec& spec)
      : spec_(spec), table_(mix_table(spec)), mixer_(spec, table_.data()), extent_(spatial_extents(spec.src)) {
    dispatch_dtype(spec_.dtype, [](auto) {});
    spec_.check();
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }
  void backward(const OpArgs&) override {}

  void forward(const OpArgs& args) override {
    const std::int64_t lines = extent_[0] * extent_[1], line_count = spec_.src.row_count() / lines;
    parallel_ranges(
        spec_.src[0] * lines, std::max<std::int64_t>(1, 16384 / line_count), [&](std::int64_t begin, std::int64_t end) {
          RowMix mix;
          std::int64_t row = -1;
          for (std::int64_t i = begin; i < end; ++i) {
            if (i / lines != row) {
              row = i / lines;
              mix = mixer_.of_row(args.state, args.src[1].as<std::int64_t>(), args.src[2].as<std::int32_t>(), row);
            }
            forward_line(args, mix, i, (mix.partner - row) * lines + i, line_count);
          }
        });
  }

 private:
  // line, other: numbers of lines, counted over all rows.
  void forward_line(const OpArgs& args, const RowMix& mix, std::int64_t line, std::int64_t other,
                    std::int64_t count) const {
    const std::int64_t number = line % (extent_[0] * extent_[1]);
    if (mix.partner >= 0 && !mix.box) return mix_line(args, mix.share, line * count, other * count, count);
    copy(args, line * count, line * count, count);
    const int z = int(number / extent_[1]), y = int(number % extent_[1]);
    if (!mix.box || !mix.takes_partner(z, y, mix.begin[2])) return;
    const std::int64_t channels = spec_.src[-1], begin = mix.begin[2] * channels, end = mix.end[2] * channels;
    copy(args, line * count + begin, other * count + begin, end - begin);
  }
  void copy(const OpArgs& args, std::int64_t to, std::int64_t from, std::int64_t count) const {
    std::copy_n(element(args.src[0], from), std::size_t(count) * size_of(spec_.dtype), element(args.dst, to));
  }
  void mix_line(const OpArgs& args, float share, std::int64_t own, std::int64_t other, std::int64_t count) const {
    Tile a, b, mixed;
    for (std::int64_t at = 0; at < count; at += tile_count) {
      const std::int64_t n = std::min(tile_count, count - at);
      float* to = float_target(args.dst, own + at, mixed);
      mix_values(to, read_floats(args.src[0], own + at, n, a), read_floats(args.src[0], other + at, n, b), share, n);
      write_floats(args.dst, own + at, n, to);
    }
  }

  MixSpec spec_;
  std::vector<float> table_;
  Mixer mixer_;
  std::array<std::int64_t, 3> extent_;
};

}  // namespace

std::unique_ptr<Op> make_mix(const MixSpec& spec) { return std::make_unique<Mix>(spec); }

}  // namespace millrace::cpu
