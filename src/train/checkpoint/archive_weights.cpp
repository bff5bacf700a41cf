#include "train/checkpoint/archive_weights.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "millrace/base/error.hpp"
#include "millrace/model/pt2/import.hpp"
#include "train/checkpoint/checkpoint_tensors.hpp"

namespace millrace {
namespace {

// Rank 0 calls f. If that fails, all ranks fail with its Error. Collective.
template <class F>
void on_reading_rank(World& world, F f) {
  std::string problem;
  if (world.rank() == 0) try {
      f();
    } catch (const Error& e) {
      problem = e.what();
    }
  world.agree(Exit::data, problem);
}

void copy_stored(Device& device, const FlatBuffer& flat, const BucketSpec& buckets, std::int64_t begin,
                 const std::vector<float>& values) {
  const std::int64_t count = std::int64_t(values.size());
  for (const StoredRange& r : buckets.stored(flat.count, flat.whole)) {
    const std::int64_t from = std::max(begin, r.begin), end = std::min(begin + count, r.end);
    if (from < end)
      device.copy_to_device(Stream::compute, flat.device + r.offset + (from - r.begin), values.data() + (from - begin),
                            std::size_t(end - from) * sizeof(float));
  }
  device.synchronize();  // before the values are overwritten
}

}  // namespace

std::string load_archive_weights(World& world, ExecutionContext& compute, const NetworkSpec& spec, Network& network) {
  const pt2::ExportedProgram& program = *spec.model.exported;
  const Graph graph = graph_of(spec, 1, Mode::infer);
  const ParameterLayout& layout = network.layout();
  const FlatBuffer weights{network.master(), layout.count, network.buckets().sharded(), network.whole_master()};
  const FlatBuffer running{network.running(), layout.stats_count, false, layout.stats_count};
  std::optional<pt2::ArchiveValues> archive;
  on_reading_rank(world, [&] { archive.emplace(program, graph); });
  std::vector<float> values;
  for (std::size_t i = 0; i < graph.parameters.size() + graph.stats.size(); ++i) {
    const bool parameter = i < graph.parameters.size();
    const std::size_t number = parameter ? i : i - graph.parameters.size();
    const auto& slot = (parameter ? layout.parameters : layout.stats)[number];
    values.resize(std::size_t(slot.count));
    on_reading_rank(world, [&] {
      if (parameter)
        archive->read_parameter(int(number), values);
      else
        archive->read_statistics(int(number), values);
    });
    world.broadcast(values.data(), values.size() * sizeof(float), 0);
    copy_stored(*compute.device, parameter ? weights : running, network.buckets(), slot.begin, values);
  }
  network.weights_changed();
  network.restart_averages();
  return fmt::format("weights of {}: {} parameters", program.path.string(), graph.parameters.size());
}

}  // namespace millrace
