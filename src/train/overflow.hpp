// Where an overflow comes from: asked once when steps are skipped one after the other, or the run diverges.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/model/graph.hpp"
#include "millrace/model/layout.hpp"
#include "millrace/train/session/network.hpp"

namespace millrace {

struct Session;

// By parameter: first 1 where something in it is not finite, else 0, then the largest finite absolute value of each, -1
// where there is none. Of the elements in `own` alone when that is not empty. The maximum over ranks is that of the
// whole gradient.
std::vector<double> scan_gradient(const ParameterLayout&, std::span<const float> gradient,
                                  std::span<const OptimizerShard> own = {});
// "the gradient is not finite from layer3.conv2.weight on (12 of 30 parameters, seen from the loss); the largest finite
// value is 6.1e+04, of fc.weight".
std::string describe_gradient(const Graph&, std::span<const double> survey);
// Of the step that was enqueued last. Waits for the device, and copies the gradient. Collective: with ZeRO each rank
// has its own part of the sums.
std::string describe_gradient(World&, Device&, Network&);
// The first of a step's samples that is not finite as it is stored, in words; "": none. Reads them again. Collective.
std::string describe_samples(Session&, std::int64_t step);

}  // namespace millrace
