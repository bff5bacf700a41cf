#include "train/checkpoint/load_weights.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/model/pt2/import.hpp"
#include "millrace/weights/pytorch_tensors.hpp"
#include "train/checkpoint/load_tensors.hpp"
#include "train/checkpoint/on_first_rank.hpp"
#include "train/checkpoint/weight_source.hpp"

namespace millrace {
namespace {

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

FittingFile open_fitting(World& world, const Graph& graph, const ModelSpec& model, const std::filesystem::path& path,
                         const std::vector<std::string>& skip) {
  FittingFile out;
  WeightTarget target{graph, model.name, {}, skip};
  if (model.exported)
    for (const pt2::StoredTensor& tensor : model.exported->tensors)
      target.untrained.insert(plain_name(tensor.name, model.name));
  on_first_rank(world, [&] { out.source = open_weights(path, target); });
  out.contents = broadcast_contents(world, out.source.get(), graph);
  const std::size_t parameters = graph.parameters.size();
  const auto found = std::count(out.contents.begin(), out.contents.begin() + std::ptrdiff_t(parameters), 1);
  if (found == 0)
    fail(Exit::config, "model.weights_skip: its patterns leave nothing of {}. make them narrower", path.string());
  out.text = fmt::format("{}: {} of {} parameters{}", path.string(), found, parameters,
                         std::size_t(found) < parameters ? " (the others begin with fresh values)" : "");
  return out;
}

// Copies what the source has, on rank 0, into the networks of all ranks. contents: as of broadcast_contents().
void copy_weights(World& world, ExecutionContext& compute, Network& network, const Graph& graph, WeightSource* source,
                  const std::vector<std::int64_t>& contents) {
  const ParameterLayout& layout = network.layout();
  const std::size_t parameters = graph.parameters.size();
  const FlatBuffer weights{network.master(), layout.count, network.buckets().sharded(), network.whole_master()};
  const FlatBuffer running{network.running(), layout.stats_count, false, layout.stats_count};
  std::vector<float> values;
  for (std::size_t i = 0; i < contents.size(); ++i) {
    if (!contents[i]) continue;
    const bool parameter = i < parameters;
    const int index = int(parameter ? i : i - parameters);
    const auto& slot = (parameter ? layout.parameters : layout.stats)[std::size_t(index)];
    values.resize(std::size_t(slot.count));
    on_first_rank(world, [&] {
      if (parameter)
        source->read_parameter(index, values);
      else
        source->read_statistics(index, values);
    });
    world.broadcast(values.data(), values.size() * sizeof(float), 0);
    store_elements(*compute.device, parameter ? weights : running, network.buckets(), slot.begin, slot.count,
                   values.data());
    compute.device->synchronize();  // before the values are overwritten
  }
  network.weights_changed();
  network.restart_averages();
}

// The values of the archive that a network was translated from.
class ArchiveWeights : public WeightSource {
 public:
  ArchiveWeights(const pt2::ExportedProgram& program, const Graph& graph) : values_(program, graph) {
    parameters_.assign(graph.parameters.size(), true);
    statistics_.assign(graph.stats.size(), true);
  }
  void read_parameter(int index, std::span<float> out) override { values_.read_parameter(index, out); }
  void read_statistics(int index, std::span<float> out) override { values_.read_statistics(index, out); }

 private:
  pt2::ArchiveValues values_;
};

}  // namespace

std::string describe_weights(World& world, const NetworkSpec& spec, const std::filesystem::path& path,
                             const std::vector<std::string>& skip) {
  return open_fitting(world, graph_of(spec, 1, Mode::infer), spec.model, path, skip).text;
}

std::string load_weights(World& world, ExecutionContext& compute, const NetworkSpec& spec, Network& network,
                         const std::filesystem::path& path, const std::vector<std::string>& skip) {
  const Graph graph = graph_of(spec, 1, Mode::infer);
  const FittingFile file = open_fitting(world, graph, spec.model, path, skip);
  copy_weights(world, compute, network, graph, file.source.get(), file.contents);
  return "weights from " + file.text;
}

std::string load_archive_weights(World& world, ExecutionContext& compute, const NetworkSpec& spec, Network& network) {
  const Graph graph = graph_of(spec, 1, Mode::infer);
  std::unique_ptr<WeightSource> source;
  on_first_rank(world, [&] { source = std::make_unique<ArchiveWeights>(*spec.model.exported, graph); });
  copy_weights(world, compute, network, graph, source.get(), broadcast_contents(world, source.get(), graph));
  return fmt::format("weights of {}: {} parameters", spec.model.exported->path.string(), graph.parameters.size());
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
