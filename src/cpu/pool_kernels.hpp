// The arithmetic of pooling on the channels of one pixel, for up to `taps_max` source pixels per call. first: starts a
// new result; otherwise the call continues with the result of the previous call.
#pragma once
#include <cstdint>

namespace millrace::cpu::pool {

constexpr int taps_max = 16;
constexpr std::int64_t channels_max = 256;

struct Taps {
  const float* values[taps_max];
  const void* positions[taps_max];  // position of the maximum of each channel in its window (only in backward of max)
  std::int32_t numbers[taps_max];   // index of the tap in the window
  int count = 0;
};

void maximum(float* best, std::int32_t* position, const Taps&, std::int64_t channels, bool first);
void sum(float* sum, const Taps&, std::int64_t channels, bool first);
// Adds the values whose position equals the number of their tap. wide: positions have 16 bits, otherwise 8.
void routed_sum(float* sum, const Taps&, std::int64_t channels, bool first, bool wide);
// Gradient of max pooling with windows beside each other: of one line of a window, `width` pixels for each of `pixels`
// pixels of the result. to[pixel * width + k] = values[pixel] where the position is number + k, and 0 elsewhere.
void spread(float* to, const float* values, const std::uint8_t* positions, int number, std::int64_t pixels,
            std::int64_t width, std::int64_t channels);
// Max pooling with such windows: goes on with the maximum of each window by one of its lines, whose pixels have the
// numbers from `number` on. 0: begins.
void maximum_of_line(float* best, std::uint8_t* positions, const float* line, int number, std::int64_t pixels,
                     std::int64_t width, std::int64_t channels);
void scale(float* values, float factor, std::int64_t channels);
// Stores positions with 16 bits (wide) or 8 bits.
void narrow(void* to, const std::int32_t* position, std::int64_t channels, bool wide);

}  // namespace millrace::cpu::pool
