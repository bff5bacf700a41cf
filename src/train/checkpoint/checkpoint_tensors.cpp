#include "train/checkpoint/checkpoint_tensors.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

constexpr std::int64_t stripe_bytes = 4 << 20;
constexpr std::size_t max_writers = 64;

struct OwnedShard {
  std::int64_t begin = 0, end = 0;  // elements of the flat buffer
  int rank = 0;
};

// The shards of all ranks, in ascending order.
std::vector<OwnedShard> all_shards(BucketSpec buckets, std::int64_t count) {
  std::vector<OwnedShard> out;
  for (buckets.rank = 0; buckets.rank < buckets.ranks; ++buckets.rank)
    for (const OptimizerShard& shard : buckets.shards(count))
      out.push_back({shard.begin, shard.begin + shard.count, buckets.rank});
  std::sort(out.begin(), out.end(), [](const OwnedShard& a, const OwnedShard& b) { return a.begin < b.begin; });
  return out;
}

void cut_by_owner(const NamedTensor& tensor, int number, const std::vector<OwnedShard>& shards,
                  std::vector<Piece>& out) {
  const std::int64_t end = tensor.begin + tensor.shape.count();
  auto shard = std::upper_bound(shards.begin(), shards.end(), tensor.begin,
                                [](std::int64_t at, const OwnedShard& s) { return at < s.end; });
  for (std::int64_t at = tensor.begin; at < end; ++shard) {
    const std::int64_t stop = std::min(end, shard->end);
    out.push_back({number, shard->rank, at - tensor.begin, stop - at});
    at = stop;
  }
}

void cut_by_stripe(const NamedTensor& tensor, int number, std::int64_t offset, std::int64_t stripes,
                   const std::vector<int>& writers, std::vector<Piece>& out) {
  const std::int64_t count = tensor.shape.count(), size = sizeof(float);
  for (std::int64_t at = 0; at < count;) {
    const std::int64_t stripe = (offset + at * size) / stripe_bytes;
    // The element that crosses the end of a stripe belongs to the piece before the cut.
    const std::int64_t stop = std::min(count, ((stripe + 1) * stripe_bytes - offset + size - 1) / size);
    const int writer = writers[std::size_t(stripe * std::int64_t(writers.size()) / stripes)];
    if (!out.empty() && out.back().tensor == number && out.back().rank == writer)
      out.back().count += stop - at;
    else
      out.push_back({number, writer, at, stop - at});
    at = stop;
  }
}

std::string older(const std::string& group, const std::string& name) {
  return name.empty() ? "" : fmt::format("{}/{}", group, name);
}

}  // namespace

CheckpointTensors checkpoint_tensors(Network& network) {
  const ParameterLayout& layout = network.layout();
  const Graph& graph = network.graph();
  const bool sharded = network.buckets().sharded();
  CheckpointTensors out;
  const auto add_parameters = [&](const std::string& group, FlatBuffer flat) {
    out.flats.push_back(flat);
    for (std::size_t p = 0; p < graph.parameters.size(); ++p)
      out.tensors.push_back({fmt::format("{}/{}", group, graph.parameters[p].name),
                             older(group, graph.parameters[p].older_name), graph.parameters[p].shape,
                             int(out.flats.size()) - 1, layout.parameters[p].begin});
  };
  add_parameters(network.weights_are_averages() ? "ema" : "parameters",
                 {network.master(), layout.count, sharded, network.whole_master()});
  for (int i = 0; i < network.moment_count(); ++i)
    add_parameters(fmt::format("moment{}", i + 1),
                   {network.moment(i), layout.count, sharded, sharded ? 0 : layout.count});
  if (float* average = network.average())
    add_parameters("ema", {average, layout.count, sharded, sharded ? 0 : layout.count});
  if (layout.stats_count == 0) return out;
  out.flats.push_back({network.running(), layout.stats_count, false, layout.stats_count});
  const int flat = int(out.flats.size()) - 1;
  for (std::size_t s = 0; s < graph.stats.size(); ++s) {
    const std::int64_t channels = graph.stats[s].channels, begin = layout.stats[s].begin;
    for (const char* value : {"mean", "variance"}) {
      const std::string& old = graph.stats[s].older_name;
      out.tensors.push_back({fmt::format("running/{}.{}", graph.stats[s].name, value),
                             older("running", old.empty() ? "" : fmt::format("{}.{}", old, value)),
                             {channels},
                             flat,
                             begin + (value[0] == 'v' ? channels : 0)});
    }
  }
  return out;
}

std::vector<int> replica_writers(World& world) {
  std::vector<std::int64_t> leaders(std::size_t(world.node_count()), -1);
  if (world.local_rank() == 0) leaders[std::size_t(world.node())] = world.rank();
  world.all_reduce(std::span<std::int64_t>(leaders), World::Reduce::max);
  const std::size_t count = std::min(leaders.size(), max_writers);
  std::vector<int> out(count);
  for (std::size_t w = 0; w < count; ++w) out[w] = int(leaders[w * leaders.size() / count]);
  return out;
}

std::vector<Piece> plan_pieces(const CheckpointTensors& all, const BucketSpec& buckets,
                               const std::vector<std::int64_t>& offsets, const std::vector<int>& writers) {
  std::vector<OwnedShard> shards;
  if (all.flats.front().sharded) shards = all_shards(buckets, all.flats.front().count);
  std::int64_t file_end = 0;
  for (std::size_t t = 0; t < all.tensors.size(); ++t)
    file_end = std::max(file_end, offsets[t] + all.tensors[t].bytes());
  const std::int64_t stripes = file_end / stripe_bytes + 1;
  std::vector<Piece> out;
  for (std::size_t t = 0; t < all.tensors.size(); ++t) {
    const NamedTensor& tensor = all.tensors[t];
    if (all.flats[std::size_t(tensor.flat)].sharded)
      cut_by_owner(tensor, int(t), shards, out);
    else
      cut_by_stripe(tensor, int(t), offsets[t], stripes, writers, out);
  }
  return out;
}

const float* address_of(const CheckpointTensors& all, const BucketSpec& buckets, const NamedTensor& tensor,
                        std::int64_t begin) {
  const FlatBuffer& flat = all.flats[std::size_t(tensor.flat)];
  const std::int64_t element = tensor.begin + begin;
  if (element < flat.whole) return flat.device + element;
  for (const StoredRange& r : buckets.stored(flat.count, flat.whole))
    if (element >= r.begin && element < r.end) return flat.device + r.offset + (element - r.begin);
  fail(Exit::internal, "element {} of {} is not in a shard of rank {}", begin, tensor.name, buckets.rank);
}

}  // namespace millrace
