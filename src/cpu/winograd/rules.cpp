#include "cpu/winograd/rules.hpp"

#include "cpu/onednn/onednn.hpp"

namespace millrace::cpu::winograd {
namespace {

constexpr std::int64_t least_tiles = 32;  // for which reading the transformed weights pays off
// Of multiplications; transforms take the rest.
constexpr double least_saving = 1.5;
// Beside products of bf16 pairs, which are twice as fast as those of float32. With fewer channels, the transforms take
// more than is saved.
constexpr double least_saving_over_pairs = 3.2;
constexpr std::int64_t least_channels_over_pairs = 64;

// Pairs of an output and a tap that read no padding, along one axis.
std::int64_t products(std::int64_t outputs, std::int64_t inputs, std::int64_t pad) {
  std::int64_t sum = 0;
  for (std::int64_t tap = -pad; tap < 3 - pad; ++tap)
    sum += std::max<std::int64_t>(0, std::min(outputs, inputs - tap) - std::max<std::int64_t>(0, -tap));
  return sum;
}

bool saves_enough(const ConvSpec& s, ConvPart::Of of) {
  const bool over_pairs = s.dtype == DType::bf16 && onednn::has_pairs();
  if (!supports(s) || !is_candidate(s.dtype)) return false;
  if (over_pairs && std::min(s.src[-1], s.out_channels) < least_channels_over_pairs) return false;
  const Tiles tiles(s, of, 4);
  const double direct = double(products(tiles.to[1], tiles.from[1], tiles.pad_y)) *
                        double(products(tiles.to[2], tiles.from[2], tiles.pad_x));
  const double filtered = double(tiles.rows * tiles.columns * tiles.tile * tiles.tile);
  return tiles.count() >= least_tiles && direct >= (over_pairs ? least_saving_over_pairs : least_saving) * filtered;
}

}  // namespace

bool is_candidate(DType dtype) {
  return onednn::tile_kernels() != nullptr && (dtype != DType::bf16 || !onednn::has_amx());
}
bool is_faster(const ConvSpec& s, ConvPart::Of of) { return saves_enough(s, of); }
bool is_faster_weight_gradient(const ConvSpec& s) { return saves_enough(s, ConvPart::Of::forward); }

}  // namespace millrace::cpu::winograd
