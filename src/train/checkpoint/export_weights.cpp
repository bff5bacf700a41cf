#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>

#include "millrace/base/error.hpp"
#include "millrace/base/version.hpp"
#include "millrace/pt2/exported_program.hpp"
#include "millrace/weights/pytorch_tensors.hpp"
#include "millrace/weights/safetensors.hpp"
#include "train/checkpoint/export_model.hpp"
#include "train/checkpoint/ordered_weights.hpp"
#include "train/checkpoint/run_state.hpp"
#include "train/checkpoint/weight_source.hpp"

namespace millrace {
namespace {

using Kind = PyTorchTensor::Kind;

constexpr const char *step_key = "millrace.step", *model_key = "millrace.model", *config_key = "millrace.config";

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
  const std::vector<PyTorchTensor> tensors = pytorch_tensors_by_parameter(graph, spec.model.name);
  std::vector<SafetensorsWriter::Entry> entries;
  const Untrained untrained(spec.model.exported.get(), tensors);
  for (const PyTorchTensor& t : tensors) {
    const pt2::StoredTensor* longer = untrained.longer(t);
    entries.push_back({t.name, t.kind == Kind::batch_count ? "I64" : "F32", longer ? longer->sizes : t.shape});
  }
  untrained.add_entries(entries);
  std::map<std::string, std::string> metadata = export_metadata(model);
  metadata["format"] = "pt";
  SafetensorsWriter writer(out, entries, metadata);
  OrderedWeights values(*source, graph);
  const auto write = [&](const PyTorchTensor& t) {
    if (t.kind == Kind::batch_count) return writer.write(&model.step, sizeof model.step);
    const std::span<const float> ordered = values.of(t);
    writer.write(ordered.data(), ordered.size() * sizeof(float));
    const std::vector<float> rest = untrained.rest_of(t);
    writer.write(rest.data(), rest.size() * sizeof(float));
  };
  for (const PyTorchTensor& t : tensors) write(t);
  untrained.write(writer, [&](int number) { write(tensors[std::size_t(number)]); });
  writer.finish();
}

std::map<std::string, std::string> export_metadata(const CheckpointModel& model) {
  std::map<std::string, std::string> out = {
      {written_by_key, version}, {step_key, std::to_string(model.step)}, {config_key, model.config}};
  if (model.record) out[model_key] = to_json(*model.record);
  return out;
}

bool has_configuration(const SafetensorsFile& file) {
  const auto config = file.metadata().find(config_key);
  return file.metadata().contains(written_by_key) && config != file.metadata().end() && !config->second.empty();
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
