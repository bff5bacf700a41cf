// Pooling's arithmetic on the channels of one pixel: up to `taps_max` source pixels at a time. `first`: start from
// them, else go on from what is there.
#pragma once
#include <cstdint>

namespace millrace::cpu::pool {

constexpr int taps_max = 16;
constexpr std::int64_t channels_max = 256;

struct Taps {
  const float* values[taps_max];
  const void* positions[taps_max];  // where each output's maximum came from, by channel (backward of max only)
  std::int32_t numbers[taps_max];   // the tap's position in the window
  int count = 0;
};

void maximum(float* best, std::int32_t* position, const Taps&, std::int64_t channels, bool first);
void sum(float* sum, const Taps&, std::int64_t channels, bool first);
// Sums the values whose position is their tap's number. wide: positions are 16-bit, else 8-bit.
void routed_sum(float* sum, const Taps&, std::int64_t channels, bool first, bool wide);
void scale(float* values, float factor, std::int64_t channels);
void narrow(void* to, const std::int32_t* position, std::int64_t channels, bool wide);

}  // namespace millrace::cpu::pool
