#include <fmt/core.h>

#include <map>

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

void export_archive(const CheckpointModel& model, const NetworkSpec& spec, const std::filesystem::path& out) {
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
  pt2::write_archive_copy(*spec.model.exported, out, fmt::format("{}, step {}", version, model.step), new_values);
}

}  // namespace millrace
