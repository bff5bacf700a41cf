// The methods that are timed for a part of a convolution, and the text that keeps their times.
#pragma once
#include <string>
#include <vector>

#include "cpu/common/conv_methods.hpp"
#include "millrace/ops/conv.hpp"

namespace millrace::cpu {

const char* name_of(ConvMethod);  // "F(4x4)"
const char* name_of(ConvPass);    // "data"

// The choice of the fixed rules comes first. Leaves out what cannot win, so that timing is short. One method: there is
// nothing to choose. winograd: whether Winograd's filtering may be used.
std::vector<ConvMethod> candidates_for(const ConvSpec&, ConvPass, bool winograd);

struct TimedMethod {
  ConvMethod method;
  double seconds;
  bool operator==(const TimedMethod&) const = default;
};
// The chosen one comes first, the rest by time: "F(4x4)=0.00123|direct=0.0024".
std::string text_of(const std::vector<TimedMethod>&);
// Unknown names, as those of a later release, give ConvMethod::rule.
std::vector<TimedMethod> read_timed_methods(const std::string& text);
// "forward F(4x4) 1.23 ms, then direct 2.40"
std::string describe(ConvPass, const std::vector<TimedMethod>&);

}  // namespace millrace::cpu
