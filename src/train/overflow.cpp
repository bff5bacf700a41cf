#include "overflow.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "millrace/base/error.hpp"

namespace millrace {

std::string describe_gradient(const Graph& graph, const ParameterLayout& layout, std::span<const float> gradient) {
  const std::string* first = nullptr;
  const std::string* at_largest = nullptr;
  float largest = 0;
  int broken = 0;
  // The loss is at the end: what breaks there breaks all before it.
  for (std::size_t p = layout.parameters.size(); p-- > 0;) {
    const auto& slot = layout.parameters[p];
    bool finite = true;
    for (std::int64_t i = slot.begin; i < slot.begin + slot.count; ++i) {
      const float g = std::abs(gradient[std::size_t(i)]);
      if (!std::isfinite(g))
        finite = false;
      else if (g > largest)
        largest = g, at_largest = &graph.parameters[p].name;
    }
    if (finite) continue;
    ++broken;
    if (!first) first = &graph.parameters[p].name;
  }
  char size[32];
  std::snprintf(size, sizeof size, "%.2g", double(largest));
  const std::string rest = at_largest ? cat("; the largest finite value is ", size, ", of ", *at_largest) : "";
  if (!first) return "the gradient of the last step is finite again" + rest;
  return cat("the gradient is not finite from ", *first, " on (", broken, " of ", layout.parameters.size(),
             " parameters, seen from the loss)", rest);
}

std::string describe_gradient(Device& device, Network& network) {
  std::vector<float> gradient(std::size_t(network.layout().count));
  device.copy_out(Lane::compute, gradient.data(), network.gradient.data, gradient.size() * sizeof(float));
  device.synchronize();
  const std::string text = describe_gradient(network.graph(), network.layout(), gradient);
  return network.gatherer() ? "by what rank 0 has of it, " + text : text;  // ZeRO: other parts are summed elsewhere
}

}  // namespace millrace
