// Whether fusing two operations pays off. Fusion saves separate kernels, which would read and write memory once more.
// The bandwidth below is an estimate, good enough to compare two ways of computing the same.
#pragma once
#include <fmt/core.h>

#include "millrace/base/error.hpp"

namespace millrace::cuda {

constexpr double copy_bytes_per_second = 2e12;  // of a memory-bound kernel

// "" if the fused kernel takes no longer than the plain kernel and a pass over pass_bytes bytes, or if one of them was
// not timed (0 seconds). Otherwise the times, for a message.
inline std::string why_fusion_is_slower(double fused_seconds, double plain_seconds, double pass_bytes) {
  const double pass_seconds = pass_bytes / copy_bytes_per_second;
  if (fused_seconds == 0 || plain_seconds == 0 || fused_seconds <= plain_seconds + pass_seconds) return "";
  const auto us = [](double seconds) { return std::int64_t(seconds * 1e6 + 0.5); };
  return fmt::format("slower: {} us for {} + {}", us(fused_seconds), us(plain_seconds), us(pass_seconds));
}

}  // namespace millrace::cuda
