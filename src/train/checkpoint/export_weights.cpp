#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <tuple>

#include "millrace/base/error.hpp"
#include "millrace/base/version.hpp"
#include "millrace/weights/pytorch_tensors.hpp"
#include "millrace/weights/safetensors.hpp"
#include "train/checkpoint/load_weights.hpp"
#include "train/checkpoint/run_state.hpp"
#include "train/checkpoint/weight_source.hpp"

namespace millrace {
namespace {

using Kind = PyTorchTensor::Kind;

constexpr const char *step_key = "millrace.step", *model_key = "millrace.model", *config_key = "millrace.config";

// Tensors of one parameter, and of one norm, one after the other: each is then read once.
std::vector<PyTorchTensor> in_order_of_reading(const Graph& graph, const std::string& network) {
  std::vector<PyTorchTensor> out = pytorch_tensors(graph, network);
  std::ranges::sort(out, {}, [](const PyTorchTensor& t) {
    return std::tuple(t.kind != Kind::parameter, t.index, t.kind, t.alias, t.name);
  });
  return out;
}

// The values of a checkpoint, of which it keeps those that were read last.
class LastRead {
 public:
  LastRead(WeightSource& source, const Graph& graph) : source_(source), graph_(graph) {}
  std::span<const float> of(const PyTorchTensor& t) {
    const bool statistics = t.kind != Kind::parameter;
    if (t.index != index_ || statistics != statistics_) {
      const std::int64_t count = statistics ? 2 * graph_.stats[std::size_t(t.index)].channels
                                            : graph_.parameters[std::size_t(t.index)].shape.count();
      values_.resize(std::size_t(count));
      if (statistics)
        source_.read_statistics(t.index, values_);
      else
        source_.read_parameter(t.index, values_);
      index_ = t.index;
      statistics_ = statistics;
    }
    const std::span<const float> all = values_;
    if (t.kind == Kind::running_mean) return all.first(all.size() / 2);
    return t.kind == Kind::running_variance ? all.last(all.size() / 2) : all;
  }

 private:
  WeightSource& source_;
  const Graph& graph_;
  std::vector<float> values_;
  int index_ = -1;
  bool statistics_ = false;
};

}  // namespace

void export_safetensors(const CheckpointModel& model, const NetworkSpec& spec, const std::filesystem::path& out) {
  const Graph graph = graph_of(spec, 1, Mode::infer);
  const auto source = open_checkpoint_weights(model.path, {graph, spec.model.name, {}});
  const std::vector<PyTorchTensor> tensors = in_order_of_reading(graph, spec.model.name);
  std::vector<SafetensorsWriter::Entry> entries;
  for (const PyTorchTensor& t : tensors)
    entries.push_back({t.name, t.kind == Kind::batch_count ? "I64" : "F32", t.shape});
  std::map<std::string, std::string> metadata = {
      {"format", "pt"}, {written_by_key, version}, {step_key, std::to_string(model.step)}, {config_key, model.config}};
  if (model.record) metadata[model_key] = to_json(*model.record);
  SafetensorsWriter writer(out, entries, metadata);
  LastRead values(*source, graph);
  std::vector<float> ordered;
  for (const PyTorchTensor& t : tensors) {
    if (t.kind == Kind::batch_count) {
      writer.write(&model.step, sizeof model.step);
      continue;
    }
    ordered.resize(std::size_t(t.count()));
    gather(t, values.of(t), ordered);
    writer.write(ordered.data(), ordered.size() * sizeof(float));
  }
  writer.finish();
}

CheckpointModel read_safetensors_model(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  const auto value = [&](const char* key) {
    const auto it = file.metadata().find(key);
    return it == file.metadata().end() ? std::string() : it->second;
  };
  CheckpointModel out{path, std::nullopt, value(config_key)};
  if (out.config.empty())
    fail(Exit::data,
         "{} was not written by millrace, so it does not say which network it is for. train or evaluate one that the "
         "configuration describes, with model.weights = {}",
         path.string(), path.string());
  const std::string step = value(step_key), record = value(model_key);
  std::from_chars(step.data(), step.data() + step.size(), out.step);
  try {
    if (!record.empty()) out.record = model_record_from_json(record);
  } catch (const nlohmann::json::exception& e) {
    fail(Exit::data, "{}: its metadata cannot be read ({})", path.string(), e.what());
  }
  return out;
}

}  // namespace millrace
