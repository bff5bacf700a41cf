#include "train/checkpoint/replicas.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <vector>

namespace millrace {
namespace {

constexpr std::int64_t staged_elements = 16 << 20;

// Any change of one element changes the sum: the factors are odd, so the product of a difference with one is not 0.
std::uint64_t checksum_of(const float* data, std::int64_t first, std::int64_t count) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, data + i, sizeof bits);
    const std::uint64_t factor = (2 * std::uint64_t(first + i) + 1) * 0x9e3779b97f4a7c15u;
    sum += (std::uint64_t(bits) + 1) * factor;
  }
  return sum;
}

// The checksum of one tensor of this rank, which is copied to the host in parts if the device has its own memory.
std::uint64_t checksum_of(Device& device, const float* data, std::int64_t count, std::vector<float>& staging) {
  if (device.shares_host_memory()) return checksum_of(data, 0, count);
  std::uint64_t sum = 0;
  for (std::int64_t at = 0; at < count; at += staged_elements) {
    const std::int64_t part = std::min(staged_elements, count - at);
    staging.resize(std::size_t(part));
    device.copy_to_host(Stream::compute, staging.data(), data + at, std::size_t(part) * sizeof(float));
    device.synchronize();
    sum += checksum_of(staging.data(), at, part);
  }
  return sum;
}

// The ranks whose checksum is not the most frequent one, in words. Equally frequent: that of the lowest rank counts.
std::string minority(const std::vector<std::string>& checksums, World& world) {
  std::map<std::string, int> count;
  for (const std::string& c : checksums) ++count[c];
  const auto* expected = &checksums.front();
  for (const std::string& c : checksums)
    if (count[c] > count[*expected]) expected = &c;
  std::vector<int> ranks;
  for (std::size_t r = 0; r < checksums.size(); ++r)
    if (checksums[r] != *expected) ranks.push_back(int(r));
  const std::vector<std::string> hosts = world.gather(world.host());
  constexpr std::size_t named = 4;
  std::string out;
  for (std::size_t i = 0; i < std::min(ranks.size(), named); ++i)
    out += fmt::format("{}rank {} on {}", i == 0 ? "" : ", ", ranks[i], hosts[std::size_t(ranks[i])]);
  if (ranks.size() > named) out += fmt::format(" and {} more", ranks.size() - named);
  return out;
}

}  // namespace

std::string differing_replicas(World& world, Device& device, const CheckpointTensors& all) {
  if (world.size() == 1) return "";
  std::vector<const NamedTensor*> compared;
  for (const NamedTensor& t : all.tensors)
    if (!all.flats[std::size_t(t.flat)].sharded && t.name.rfind("moment", 0) != 0) compared.push_back(&t);
  std::vector<float> staging;
  std::vector<std::int64_t> own, extremes;
  for (const NamedTensor* t : compared)
    own.push_back(std::int64_t(
        checksum_of(device, all.flats[std::size_t(t->flat)].device + t->begin, t->shape.count(), staging)));
  // One maximum finds both extremes, because the complement reverses the order.
  extremes = own;
  for (const std::int64_t c : own) extremes.push_back(~c);
  world.all_reduce(std::span<std::int64_t>(extremes), World::Reduce::max);
  for (std::size_t t = 0; t < compared.size(); ++t) {
    if (extremes[t] == ~extremes[compared.size() + t]) continue;
    const std::vector<std::string> checksums = world.gather(std::to_string(own[t]));
    return fmt::format("{} of {} differs from the other ranks", compared[t]->name, minority(checksums, world));
  }
  return "";
}

void copy_replicas(World& world, Device& device, Network& network) {
  if (world.size() == 1 || network.whole_master() < network.layout().count) return;
  const std::size_t bytes = std::size_t(network.layout().count) * sizeof(float);
  if (device.shares_host_memory()) {
    world.broadcast(network.master(), bytes, 0);
  } else {
    std::vector<float> host(std::size_t(network.layout().count));
    device.copy_to_host(Stream::compute, host.data(), network.master(), bytes);
    device.synchronize();
    world.broadcast(host.data(), bytes, 0);
    device.copy_to_device(Stream::compute, network.master(), host.data(), bytes);
    device.synchronize();
  }
  network.weights_changed();
  network.restart_averages();
}

}  // namespace millrace
