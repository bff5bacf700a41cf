#include "train/checkpoint/load_weights.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/pt2/exported_program.hpp"
#include "train/checkpoint/load_tensors.hpp"
#include "train/checkpoint/weight_source.hpp"

namespace millrace {
namespace {

// Rank 0 calls f. If that fails, all ranks fail with its Error. Collective.
template <class F>
void on_first_rank(World& world, F f) {
  std::string problem;
  auto code = std::int64_t(Exit::data);
  if (world.rank() == 0) try {
      f();
    } catch (const Error& e) {
      problem = e.what();
      code = std::int64_t(e.code());
    }
  world.broadcast(&code, sizeof code, 0);
  world.agree(Exit(code), problem);
}

// Which parameters and then which running statistics the file holds; the same on all ranks.
std::vector<std::int64_t> broadcast_contents(World& world, const WeightSource* source, const Graph& graph) {
  std::vector<std::int64_t> out(graph.parameters.size() + graph.stats.size());
  if (source) {
    for (std::size_t p = 0; p < graph.parameters.size(); ++p) out[p] = source->has_parameter(int(p));
    for (std::size_t s = 0; s < graph.stats.size(); ++s)
      out[graph.parameters.size() + s] = source->has_statistics(int(s));
  }
  if (!out.empty()) world.broadcast(out.data(), out.size() * sizeof out[0], 0);
  return out;
}

// A file that fits the network, open on rank 0.
struct FittingFile {
  std::unique_ptr<WeightSource> source;
  std::vector<std::int64_t> contents;  // as of broadcast_contents()
  std::string text;                    // "FILE: 161 of 162 parameters"
};

// open: returns the source, on rank 0.
template <class Open>
FittingFile open_fitting(World& world, const Graph& graph, const std::filesystem::path& path, const Open& open) {
  FittingFile out;
  on_first_rank(world, [&] { out.source = open(); });
  out.contents = broadcast_contents(world, out.source.get(), graph);
  const std::size_t parameters = graph.parameters.size();
  const auto found = std::count(out.contents.begin(), out.contents.begin() + std::ptrdiff_t(parameters), 1);
  out.text = fmt::format("{}: {} of {} parameters{}", path.string(), found, parameters,
                         std::size_t(found) < parameters ? " (the others begin with fresh values)" : "");
  return out;
}

std::string copy_weights(World& world, ExecutionContext& compute, const Graph& graph, const FittingFile& file,
                         Network& network) {
  const ParameterLayout& layout = network.layout();
  const std::size_t parameters = graph.parameters.size();
  const FlatBuffer weights{network.master(), layout.count, network.buckets().sharded(), network.whole_master()};
  const FlatBuffer running{network.running(), layout.stats_count, false, layout.stats_count};
  std::vector<float> values;
  for (std::size_t i = 0; i < file.contents.size(); ++i) {
    if (!file.contents[i]) continue;
    const bool parameter = i < parameters;
    const int index = int(parameter ? i : i - parameters);
    const auto& slot = (parameter ? layout.parameters : layout.stats)[std::size_t(index)];
    values.resize(std::size_t(slot.count));
    on_first_rank(world, [&] {
      if (parameter)
        file.source->read_parameter(index, values);
      else
        file.source->read_statistics(index, values);
    });
    world.broadcast(values.data(), values.size() * sizeof(float), 0);
    store_elements(*compute.device, parameter ? weights : running, network.buckets(), slot.begin, slot.count,
                   values.data());
    compute.device->synchronize();  // before the values are overwritten
  }
  network.weights_changed();
  network.restart_averages();
  return "weights from " + file.text;
}

}  // namespace

std::string describe_weights(World& world, const NetworkSpec& spec, const std::filesystem::path& path,
                             const std::vector<std::string>& skip) {
  const Graph graph = graph_of(spec, 1, Mode::infer);
  const auto open = [&] { return open_weights(path, {graph, spec.model.name, skip}); };
  return open_fitting(world, graph, path, open).text;
}

std::string load_weights(World& world, ExecutionContext& compute, const NetworkSpec& spec, Network& network,
                         const std::filesystem::path& path, const std::vector<std::string>& skip) {
  const Graph graph = graph_of(spec, 1, Mode::infer);
  const auto open = [&] { return open_weights(path, {graph, spec.model.name, skip}); };
  return copy_weights(world, compute, graph, open_fitting(world, graph, path, open), network);
}

std::string load_archive_weights(World& world, ExecutionContext& compute, const NetworkSpec& spec, Network& network) {
  const Graph graph = graph_of(spec, 1, Mode::infer);
  const pt2::ExportedProgram& program = *spec.model.exported;
  const auto open = [&] { return open_archive_weights(program, graph); };
  return copy_weights(world, compute, graph, open_fitting(world, graph, program.path, open), network);
}

RunState load_model(World& world, ExecutionContext& compute, const NetworkSpec& spec, Network& network,
                    const CheckpointModel& model) {
  if (model.path.extension() == ".h5")
    return CheckpointStore(world, compute, model.path.parent_path(), 1).load(network, model.path);
  load_weights(world, compute, spec, network, model.path);
  RunState out;
  out.step = model.step;
  return out;
}

}  // namespace millrace
