// Where an overflow comes from: asked once when steps are skipped one after the other, or the run diverges.
#pragma once
#include <span>
#include <string>

#include "millrace/model/graph.hpp"
#include "millrace/model/layout.hpp"
#include "millrace/train/network.hpp"

namespace millrace {

// Of a flat gradient: "the gradient is not finite from layer3.conv2.weight on (12 of 30 parameters, seen from the
// loss); the largest finite one is 6.1e+04, of fc.weight".
std::string describe_gradient(const Graph&, const ParameterLayout&, std::span<const float> gradient);
// Of the step that was enqueued last. Waits for the device, and copies the gradient.
std::string describe_gradient(Device&, Network&);

}  // namespace millrace
