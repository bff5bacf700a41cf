// Whether fusing two operations pays off. Fusion saves separate kernels, which would read and write memory once more.
#pragma once
#include <fmt/core.h>

#include "millrace/base/error.hpp"

namespace millrace::cuda {

// "" if the fused kernel takes no longer than the plain kernel and a pass over pass_bytes bytes, or if one of them was
// not timed (0 seconds). Otherwise the times, for a message. bytes_per_second: of the pass, see
// copy_bytes_per_second(); 0 if it is not known, and then the fused kernel must not be slower than the plain one alone.
inline std::string why_fusion_is_slower(double fused_seconds, double plain_seconds, double pass_bytes,
                                        double bytes_per_second) {
  const double pass_seconds = bytes_per_second > 0 ? pass_bytes / bytes_per_second : 0;
  if (fused_seconds == 0 || plain_seconds == 0 || fused_seconds <= plain_seconds + pass_seconds) return "";
  const auto us = [](double seconds) { return std::int64_t(seconds * 1e6 + 0.5); };
  return fmt::format("slower: {} us for {} + {} at {:.2g} TB/s", us(fused_seconds), us(plain_seconds), us(pass_seconds),
                     bytes_per_second * 1e-12);
}

}  // namespace millrace::cuda
