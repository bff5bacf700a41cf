// Rotary position embedding. The rotations of all positions are computed once, in double.
#include "cpu/common/ops.hpp"
#include "cpu/common/tile.hpp"

namespace millrace::cpu {
namespace {

// first and second: the halves of a head, `turn` +1 or -1.
MR_TARGET_CLONES void rotate(float* __restrict to, const float* __restrict from, const float* __restrict cosine,
                             const float* __restrict sine, float turn, std::int64_t half) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = from[i], b = from[half + i], s = turn * sine[i];
    to[i] = a * cosine[i] - b * s;
    to[half + i] = b * cosine[i] + a * s;
  }
}

class Rotary : public Op {
 public:
  explicit Rotary(const RotarySpec& spec) : spec_(spec), half_(spec.head_size() / 2) {
    dispatch_dtype(spec.dtype, [](auto) {});
    if (spec.head_size() > tile_count)
      fail(Exit::config, "rotary: heads of {} values are more than the CPU supports ({})", spec.head_size(),
           tile_count);
    for (std::int64_t p = 0; p < std::max(spec.positions(), spec.window); ++p)
      for (std::int64_t i = 0; i < half_; ++i) {
        const double angle = double(p) * spec.frequency(i);
        cosine_.push_back(float(std::cos(angle)));
        sine_.push_back(float(std::sin(angle)));
      }
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }
  void forward(const OpArgs& args) override {
    turn(args.dst, args.src[0], 1, spec_.window > 0 ? std::int64_t(args.state->position) : 0);
  }
  void backward(const OpArgs& args) override {
    if (args.diff_src[0]) turn(args.diff_src[0], args.diff_dst, -1, 0);
  }

 private:
  void turn(const Tensor& to, const Tensor& from, float direction, std::int64_t first_position) const {
    const std::int64_t width = spec_.src[-1], size = 2 * half_, rotated = spec_.heads + spec_.key_heads,
                       positions = spec_.src[0] * spec_.positions();
    const std::int64_t grain = std::max<std::int64_t>(1, 8 * tile_count / width);
    parallel_ranges(positions, grain, [&](std::int64_t begin, std::int64_t end) {
      Tile a, b;
      for (std::int64_t at = begin; at < end; ++at) {
        const std::int64_t row = (first_position + at % spec_.positions()) * half_;
        for (std::int64_t head = 0; head < rotated; ++head) {
          const std::int64_t first = at * width + head * size;
          float* out = float_target(to, first, b);
          rotate(out, read_floats(from, first, size, a), &cosine_[std::size_t(row)], &sine_[std::size_t(row)],
                 direction, half_);
          write_floats(to, first, size, out);
        }
        std::copy(element(from, at * width + rotated * size), element(from, (at + 1) * width),
                  element(to, at * width + rotated * size));
      }
    });
  }

  RotarySpec spec_;
  std::int64_t half_;
  std::vector<float> cosine_, sine_;  // (positions or window, half)
};

}  // namespace

std::unique_ptr<Op> make_rotary(const RotarySpec& spec) { return std::make_unique<Rotary>(spec); }

}  // namespace millrace::cpu
