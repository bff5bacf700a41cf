#include "train/checkpoint/host_tensors.hpp"

namespace millrace {

HostTensors::HostTensors(World& world, ExecutionContext& compute, Network& network)
    : world_(world), device_(*compute.device), network_(network), all_(checkpoint_tensors(network)) {
  for (const FlatBuffer& flat : all_.flats) {
    const bool copied = flat.packed || !device_.shares_host_memory();
    copies_.emplace_back(copied ? std::size_t(flat.packed ? network.buckets().padded(flat.count) : flat.count) : 0);
    host_.push_back(copied ? copies_.back().data() : flat.device);
  }
}

void HostTensors::broadcast() {
  for (std::size_t f = 0; f < host_.size(); ++f)
    world_.broadcast(host_[f], std::size_t(all_.flats[f].count) * sizeof(float), 0);
}

void HostTensors::copy_to_device() {
  for (std::size_t f = 0; f < host_.size(); ++f) {
    const FlatBuffer& flat = all_.flats[f];
    if (copies_[f].empty()) continue;
    if (!flat.packed) {
      device_.copy_to_device(Stream::compute, flat.device, host_[f], std::size_t(flat.count) * sizeof(float));
      continue;
    }
    float* device = flat.device;
    for (const OptimizerShard& shard : network_.buckets().shards(flat.count)) {
      device_.copy_to_device(Stream::compute, device, host_[f] + shard.begin, std::size_t(shard.count) * sizeof(float));
      device += shard.count;
    }
  }
  device_.synchronize();
  network_.weights_changed();
}

}  // namespace millrace
