#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>

#include "millrace/base/error.hpp"
#include "millrace/base/version.hpp"
#include "millrace/pt2/exported_program.hpp"
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

// The tensors of PyTorch's state_dict that the network does not train, and second names of those that it does.
class Untrained {
 public:
  Untrained(const pt2::ExportedProgram* program, const std::vector<PyTorchTensor>& trained) : program_(program) {
    if (!program) return;
    std::map<std::string, std::size_t> numbers;
    for (std::size_t t = 0; t < trained.size(); ++t) numbers[trained[t].name] = t;
    for (const pt2::StoredTensor& tensor : program->tensors) {
      if (numbers.contains(tensor.name) || !tensor.in_state_dict()) continue;
      rest_.push_back({&tensor, -1});
      for (const pt2::StoredTensor& other : program->tensors)
        if (const auto found = numbers.find(other.name); found != numbers.end() && other.same_storage(tensor))
          rest_.back().same_as = int(found->second);
    }
  }
  // The tensor of the archive whose first rows the network has; null: it has all.
  const pt2::StoredTensor* longer(const PyTorchTensor& t) const {
    if (!program_ || !t.first_rows) return nullptr;
    const auto found = std::ranges::find(program_->tensors, t.name, &pt2::StoredTensor::name);
    return found == program_->tensors.end() ? nullptr : &*found;
  }
  // The rows behind those that the network has, as they were.
  std::vector<float> rest_of(const PyTorchTensor& t) const {
    const pt2::StoredTensor* whole = longer(t);
    if (!whole) return {};
    std::vector<float> values(std::size_t(whole->count()));
    pt2::TensorReader(*program_).read(*whole, values);
    values.erase(values.begin(), values.begin() + t.count());
    return values;
  }
  void add_entries(std::vector<SafetensorsWriter::Entry>& entries) const {
    for (const Tensor& t : rest_)
      entries.push_back({t.stored->name, t.stored->is_integer() ? "I64" : "F32", t.stored->sizes});
  }
  // same: writes the tensor of this number among the trained ones.
  void write(SafetensorsWriter& writer, const std::function<void(int)>& same) const {
    if (rest_.empty()) return;
    pt2::TensorReader reader(*program_);
    for (const Tensor& t : rest_) {
      if (t.same_as >= 0) {
        same(t.same_as);
      } else if (t.stored->is_integer()) {
        std::vector<std::int64_t> values(std::size_t(t.stored->count()));
        reader.read(*t.stored, values);
        writer.write(values.data(), values.size() * sizeof values[0]);
      } else {
        std::vector<float> values(std::size_t(t.stored->count()));
        reader.read(*t.stored, values);
        writer.write(values.data(), values.size() * sizeof values[0]);
      }
    }
  }

 private:
  struct Tensor {
    const pt2::StoredTensor* stored;
    int same_as;
  };
  const pt2::ExportedProgram* program_;
  std::vector<Tensor> rest_;
};

}  // namespace

void export_safetensors(const CheckpointModel& model, const NetworkSpec& spec, const std::filesystem::path& out) {
  const Graph graph = graph_of(spec, 1, Mode::infer);
  const auto source = open_checkpoint_weights(model.path, {graph, spec.model.name});
  const std::vector<PyTorchTensor> tensors = in_order_of_reading(graph, spec.model.name);
  std::vector<SafetensorsWriter::Entry> entries;
  const Untrained untrained(spec.model.exported.get(), tensors);
  for (const PyTorchTensor& t : tensors) {
    const pt2::StoredTensor* longer = untrained.longer(t);
    entries.push_back({t.name, t.kind == Kind::batch_count ? "I64" : "F32", longer ? longer->sizes : t.shape});
  }
  untrained.add_entries(entries);
  std::map<std::string, std::string> metadata = {
      {"format", "pt"}, {written_by_key, version}, {step_key, std::to_string(model.step)}, {config_key, model.config}};
  if (model.record) metadata[model_key] = to_json(*model.record);
  SafetensorsWriter writer(out, entries, metadata);
  LastRead values(*source, graph);
  std::vector<float> ordered;
  const auto write = [&](const PyTorchTensor& t) {
    if (t.kind == Kind::batch_count) return writer.write(&model.step, sizeof model.step);
    ordered.resize(std::size_t(t.count()));
    gather(t, values.of(t), ordered);
    writer.write(ordered.data(), ordered.size() * sizeof(float));
    const std::vector<float> rest = untrained.rest_of(t);
    writer.write(rest.data(), rest.size() * sizeof(float));
  };
  for (const PyTorchTensor& t : tensors) write(t);
  untrained.write(writer, [&](int number) { write(tensors[std::size_t(number)]); });
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
         "{} was not written by millrace, so it does not say which network it is for. train one that the configuration "
         "describes, with model.weights = {}",
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
