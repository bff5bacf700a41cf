// Convolutions in which each channel has a kernel of its own. Backends may compute them in another way than the rest.
#pragma once
#include "millrace/ops/conv.hpp"

namespace millrace {

inline bool is_depthwise(const ConvSpec& s) {
  return s.groups > 1 && s.groups == s.src[-1] && s.groups == s.out_channels;
}

// Why the CUDA backend does not fuse them with a norm (fusion levels 2 and 3).
constexpr const char* depthwise_sums_no_norm = "the kernels of depthwise convolutions compute no sums and no norm";

}  // namespace millrace
