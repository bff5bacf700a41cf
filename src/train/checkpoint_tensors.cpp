#include "checkpoint_tensors.hpp"

namespace millrace {

Snapshot::Snapshot(Compute& compute, Network& network) : device_(*compute.device), network_(network) {
  const ParameterLayout& layout = network.layout();
  const Graph& graph = network.graph();
  const auto add_flat = [&](float* device, std::int64_t count) {
    if (!device_.shares_host_memory()) copies_.emplace_back(std::size_t(count));
    flats_.push_back({device_.shares_host_memory() ? device : copies_.back().data(), device, count});
    return flats_.back().host;
  };
  const auto add_parameters = [&](const std::string& group, float* base) {
    for (std::size_t p = 0; p < graph.parameters.size(); ++p)
      tensors_.push_back(
          {group + "/" + graph.parameters[p].name, graph.parameters[p].shape, base + layout.parameters[p].begin});
  };
  add_parameters("parameters", add_flat(network.master(), layout.count));
  for (int i = 0; i < network.moment_count(); ++i)
    add_parameters("moment" + std::to_string(i + 1), add_flat(network.moment(i), layout.count));
  if (layout.stats_count > 0) {
    float* running = add_flat(network.running(), layout.stats_count);
    for (std::size_t s = 0; s < graph.stats.size(); ++s) {
      const std::int64_t channels = graph.stats[s].channels, begin = layout.stats[s].begin;
      tensors_.push_back({"running/" + graph.stats[s].name + ".mean", {channels}, running + begin});
      tensors_.push_back({"running/" + graph.stats[s].name + ".variance", {channels}, running + begin + channels});
    }
  }
}

void Snapshot::take() {
  if (device_.shares_host_memory()) return;
  for (const Flat& f : flats_) device_.copy_out(Lane::compute, f.host, f.device, std::size_t(f.count) * sizeof(float));
  device_.synchronize();
}

void Snapshot::put() {
  if (!device_.shares_host_memory()) {
    for (const Flat& f : flats_) device_.copy_in(Lane::compute, f.device, f.host, std::size_t(f.count) * sizeof(float));
    device_.synchronize();
  }
  network_.weights_changed();
}

}  // namespace millrace
