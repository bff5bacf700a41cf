#include "train/checkpoint/checkpoint_tensors.hpp"

namespace millrace {

Snapshot::Snapshot(World& world, ExecutionContext& compute, Network& network)
    : world_(world), device_(*compute.device), network_(network) {
  const ParameterLayout& layout = network.layout();
  const Graph& graph = network.graph();
  const auto add_flat = [&](float* device, std::int64_t count, bool sharded = false) {
    const bool copied = sharded || !device_.shares_host_memory();
    if (copied) copies_.emplace_back(std::size_t(sharded ? network.buckets().padded(count) : count));
    flats_.push_back({copied ? copies_.back().data() : device, device, count, copied, sharded});
    return flats_.back().host;
  };
  const auto add_parameters = [&](const std::string& group, float* base) {
    for (std::size_t p = 0; p < graph.parameters.size(); ++p)
      tensors_.push_back(
          {group + "/" + graph.parameters[p].name, graph.parameters[p].shape, base + layout.parameters[p].begin});
  };
  add_parameters("parameters", add_flat(network.master(), layout.count));
  for (int i = 0; i < network.moment_count(); ++i)
    add_parameters("moment" + std::to_string(i + 1),
                   add_flat(network.moment(i), layout.count, network.buckets().sharded()));
  if (layout.stats_count > 0) {
    float* running = add_flat(network.running(), layout.stats_count);
    for (std::size_t s = 0; s < graph.stats.size(); ++s) {
      const std::int64_t channels = graph.stats[s].channels, begin = layout.stats[s].begin;
      tensors_.push_back({"running/" + graph.stats[s].name + ".mean", {channels}, running + begin});
      tensors_.push_back({"running/" + graph.stats[s].name + ".variance", {channels}, running + begin + channels});
    }
  }
}

// Calls move(host, device, bytes) for each part of the flat buffer that this rank owns.
template <class Move>
void Snapshot::for_each_own(const Flat& flat, const Move& move) const {
  if (!flat.copied) return;
  if (!flat.sharded) return move(flat.host, flat.device, std::size_t(flat.count) * sizeof(float));
  float* device = flat.device;
  for (const OptimizerShard& shard : network_.buckets().shards(network_.layout().count)) {
    move(flat.host + shard.begin, device, std::size_t(shard.count) * sizeof(float));
    device += shard.count;
  }
}

void Snapshot::take() {
  network_.complete_weights();
  for (const Flat& flat : flats_)
    for_each_own(flat, [&](float* host, float* device, std::size_t bytes) {
      device_.copy_to_host(Stream::compute, host, device, bytes);
    });
  device_.synchronize();
  BucketSpec buckets = network_.buckets();
  for (const Flat& flat : flats_)
    for (buckets.rank = 0; flat.sharded && buckets.rank < buckets.ranks; ++buckets.rank)
      for (const OptimizerShard& shard : buckets.shards(network_.layout().count))
        world_.broadcast(flat.host + shard.begin, std::size_t(shard.count) * sizeof(float), buckets.rank);
}

void Snapshot::put() {
  for (const Flat& flat : flats_)
    for_each_own(flat, [&](float* host, float* device, std::size_t bytes) {
      device_.copy_to_device(Stream::compute, device, host, bytes);
    });
  device_.synchronize();
  network_.weights_changed();
}

}  // namespace millrace
