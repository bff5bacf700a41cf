// What fusing saves: kernels that pass over memory once more. For comparing ways to compute the same alone.
#pragma once
#include "millrace/base/error.hpp"

namespace millrace::cuda {

constexpr double copy_bytes_per_second = 2e12;  // of a memory-bound kernel

// "" where the fused kernel takes no longer than the plain one and a pass over so many bytes, or one was not timed (0).
inline std::string why_fusion_is_slower(double fused_seconds, double plain_seconds, double pass_bytes) {
  const double pass_seconds = pass_bytes / copy_bytes_per_second;
  if (fused_seconds == 0 || plain_seconds == 0 || fused_seconds <= plain_seconds + pass_seconds) return "";
  const auto us = [](double seconds) { return std::int64_t(seconds * 1e6 + 0.5); };
  return cat("slower: ", us(fused_seconds), " us for ", us(plain_seconds), " + ", us(pass_seconds));
}

}  // namespace millrace::cuda
