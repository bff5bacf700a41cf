// Convolutions in which each channel has a kernel of its own. Some backends compute them in another way than others.
#pragma once
#include "millrace/ops/conv.hpp"

namespace millrace {

inline bool is_depthwise(const ConvSpec& s) {
  return s.groups > 1 && s.groups == s.src[-1] && s.groups == s.out_channels;
}

// Why the CUDA backend refuses fusion levels 2 and 3 for one.
constexpr const char* depthwise_sums_no_norm = "the kernels of depthwise convolutions compute no sums and no norm";

}  // namespace millrace
