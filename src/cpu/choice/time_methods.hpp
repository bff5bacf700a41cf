// Times the methods of a convolution on all threads of the caller.
#pragma once
#include <vector>

#include "cpu/choice/conv_candidates.hpp"
#include "millrace/plans/time_candidates.hpp"

namespace millrace::cpu {

// Another method replaces that of the rules only if it takes less than this share of its time.
inline constexpr double needed_gain = 0.95;
// The place of the method to use: 0, that of the rules, unless another is faster by needed_gain. seconds: infinity for
// methods that failed or were much slower. Returns seconds.size() if all are infinite.
std::size_t choose_method(const std::vector<double>& seconds);

struct MethodTimes {
  std::vector<double> seconds;  // of a call; infinity for methods that failed or were much slower
  std::size_t chosen = 0;       // seconds.size() if all failed
};
// Times methods by turns, the one of the rules first in their list. That one is timed beside the fastest even if it
// seemed much slower at first; then only that second measurement decides between the two.
MethodTimes time_methods(std::size_t count, const MeasureCalls&);

// Times the methods of one pass, with fewer images if there are many. The chosen one is first, then come the others
// that were not much slower, by time. Medians of several rounds, in which the methods take turns. In training, a call
// contains its share of repacking the weights, which happens once for all images. Empty: all failed. Methods that would
// run the same code as one before them are left out.
std::vector<TimedMethod> time_conv(const ConvSpec&, ConvPass, const std::vector<ConvMethod>&, bool winograd);

}  // namespace millrace::cpu
