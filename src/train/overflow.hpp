// Finds the cause of an overflow. Used when many consecutive steps were skipped, and when the run diverges.
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

// Scans a gradient. The result has two values for each parameter. The first half of the vector is 1 for parameters that
// contain a value that is not finite, else 0. The second half is the largest finite absolute value, or -1 if there is
// none. If `own` is not empty, only the elements in these shards are scanned; the elementwise maximum over all ranks is
// then the result for the whole gradient.
std::vector<double> scan_gradient(const ParameterLayout&, std::span<const float> gradient,
                                  std::span<const OptimizerShard> own = {});
// Describes the result of scan_gradient(), for example: "the gradient is not finite in 12 of 30 parameters (nearest to
// the loss: layer3.conv2.weight); the largest finite value is 6.1e+04, in fc.weight".
std::string describe_gradient(const Graph&, std::span<const double> survey);
// The same for the step that was enqueued last. Waits for the device and copies the gradient. Collective, because with
// ZeRO each rank has only its shards of the gradient.
std::string describe_gradient(World&, Device&, Network&);
// Reads the samples of a step again and describes the first one that is stored with a value that is not finite; "":
// there is none. Collective.
std::string describe_samples(Session&, std::int64_t step);

}  // namespace millrace
