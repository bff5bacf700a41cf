#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "millrace/base/error.hpp"
#include "millrace/base/version.hpp"
#include "millrace/pt2/archive_copy.hpp"
#include "train/checkpoint/export_model.hpp"
#include "train/checkpoint/ordered_weights.hpp"

namespace millrace {

std::unique_ptr<WeightSource> open_model_weights(const CheckpointModel& model, const NetworkSpec& spec,
                                                 const Graph& graph) {
  WeightTarget target{graph, spec.model.name};
  if (spec.model.exported)
    for (const pt2::StoredTensor& tensor : spec.model.exported->tensors)
      target.untrained.insert(plain_name(tensor.name, spec.model.name));
  return open_weights(model.path, target);
}

// A checkpoint has the network, but not the bytes of its archive.
static pt2::ExportedProgram archive_of(const NetworkSpec& spec) {
  const pt2::ExportedProgram& network = *spec.model.exported;
  if (network.text.empty()) return network;
  std::error_code none;
  if (!std::filesystem::exists(network.path, none))
    fail(Exit::data, "{} is not there any more, of which --format pt2 makes a copy. restore it, or use --format onnx",
         network.path.string());
  pt2::ExportedProgram out = pt2::read_exported_program(network.path);
  const bool same = std::ranges::equal(out.tensors, network.tensors, [](const auto& a, const auto& b) {
    return a.name == b.name && a.sizes == b.sizes && a.same_storage(b);
  });
  if (!same)
    fail(Exit::data, "{} is another network now than the one that was trained. restore it, or use --format onnx",
         network.path.string());
  return out;
}

void export_archive(const CheckpointModel& model, const NetworkSpec& spec, const std::filesystem::path& out) {
  const pt2::ExportedProgram archive = archive_of(spec);
  const Graph graph = graph_of(spec, 1, Mode::infer);
  const auto source = open_model_weights(model, spec, graph);
  OrderedWeights weights(*source, graph);
  std::map<std::string, PyTorchTensor> tensors;
  for (PyTorchTensor& t : pytorch_tensors(graph, spec.model.name)) tensors.emplace(t.name, std::move(t));
  const auto new_values = [&](const pt2::StoredTensor& stored, std::vector<double>& values) {
    const auto found = tensors.find(stored.name);
    if (found == tensors.end()) return false;
    if (found->second.kind == PyTorchTensor::Kind::batch_count) {
      values = {double(model.step)};
      return true;
    }
    const auto of_tensor = weights.of(found->second);
    values.assign(of_tensor.begin(), of_tensor.end());
    return true;
  };
  pt2::write_archive_copy(archive, out, fmt::format("{}, step {}", version, model.step), new_values);
}

}  // namespace millrace
