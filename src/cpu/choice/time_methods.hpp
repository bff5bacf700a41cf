// Times the methods of a convolution on all threads of the caller.
#pragma once
#include <vector>

#include "cpu/common/conv_methods.hpp"
#include "millrace/ops/conv.hpp"

namespace millrace::cpu {

struct TimedMethods {
  ConvMethods methods;  // the fastest of each part
  double seconds = 0;   // of the chosen parts together
};
// Each part by itself, with at most so many images that the direct convolution takes a few milliseconds. winograd: of
// ConvMethods. Transforming the weights, which happens once in a step, does not count.
TimedMethods time_conv_methods(const ConvSpec&, const std::vector<ConvMethod>& candidates, bool winograd);

}  // namespace millrace::cpu
