#include "cpu/winograd/rules.hpp"

namespace millrace::cpu::winograd {
namespace {

// At least as many tiles as the transformed weights are worth reading for.
constexpr std::int64_t least_tiles = 32, least_channels = 32;

bool is_large(const ConvSpec& s, ConvPart::Of of) {
  return supports(s) && s.src[-1] >= least_channels && s.out_channels >= least_channels &&
         Tiles(s, of, 4).count() >= least_tiles;
}

}  // namespace

bool is_faster(const ConvSpec& s, ConvPart::Of of) { return is_large(s, of); }
bool is_faster_weight_gradient(const ConvSpec& s) { return is_large(s, ConvPart::Of::forward); }

}  // namespace millrace::cpu::winograd
