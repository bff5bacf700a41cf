// Weights in PyTorch's names and order, from files in the format safetensors and from archives of torch.export.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/pt2/exported_program.hpp"
#include "millrace/weights/hugging_face.hpp"
#include "millrace/weights/pytorch_tensors.hpp"
#include "millrace/weights/safetensors.hpp"
#include "train/checkpoint/export_model.hpp"
#include "train/checkpoint/load_weights.hpp"
#include "train/checkpoint/weight_comparison.hpp"
#include "train/checkpoint/weight_source.hpp"

namespace millrace {
namespace {

using Kind = PyTorchTensor::Kind;

// The shape in the file, but for a table of positions that has more rows there.
std::vector<std::int64_t> shape_to_read(const PyTorchTensor& t, std::vector<std::int64_t> in_file) {
  if (t.first_rows && in_file.size() == t.shape.size() && !in_file.empty())
    in_file[0] = std::min(in_file[0], t.shape[0]);
  return in_file;
}

// A file with tensors that have PyTorch's names.
class TensorFile {
 public:
  virtual ~TensorFile() = default;
  virtual std::map<std::string, std::vector<std::int64_t>> shapes() const = 0;  // by name
  // The first out.size() elements. Error(data): they are no numbers, or the file is damaged.
  virtual void read(const std::string& name, std::span<float> out) = 0;
};

class SafetensorsTensors : public TensorFile {
 public:
  explicit SafetensorsTensors(SafetensorsFile file) : file_(std::move(file)) {}
  std::map<std::string, std::vector<std::int64_t>> shapes() const override {
    std::map<std::string, std::vector<std::int64_t>> out;
    for (const auto& [name, tensor] : file_.tensors()) out.emplace(name, tensor.shape);
    return out;
  }
  void read(const std::string& name, std::span<float> out) override { file_.read(file_.tensors().at(name), 0, out); }

 private:
  SafetensorsFile file_;
};

// The state_dict of a network that PyTorch exported.
class ArchiveTensors : public TensorFile {
 public:
  explicit ArchiveTensors(const std::filesystem::path& path)
      : program_(pt2::read_exported_program(path)), reader_(program_) {}
  std::map<std::string, std::vector<std::int64_t>> shapes() const override {
    std::map<std::string, std::vector<std::int64_t>> out;
    for (const pt2::StoredTensor& tensor : program_.tensors)
      if (tensor.in_state_dict()) out.emplace(tensor.name, tensor.sizes);
    return out;
  }
  void read(const std::string& name, std::span<float> out) override {
    const auto tensor = std::ranges::find(program_.tensors, name, &pt2::StoredTensor::name);
    MR_CHECK(tensor != program_.tensors.end());
    std::vector<float> values(std::size_t(tensor->count()));
    reader_.read(*tensor, values);
    MR_CHECK(out.size() <= values.size());
    std::copy_n(values.begin(), out.size(), out.begin());
  }

 private:
  pt2::ExportedProgram program_;
  pt2::TensorReader reader_;
};

class PyTorchWeights : public WeightSource {
 public:
  PyTorchWeights(const std::filesystem::path& path, std::vector<std::unique_ptr<TensorFile>> files,
                 const WeightTarget& target)
      : path_(path), files_(std::move(files)), tensors_(pytorch_tensors(target.graph, target.network)) {
    for (const auto& file : files_)
      for (const auto& [name, shape] : file->shapes())
        stored_.emplace(plain_name(name, target.network), Stored{file.get(), name, shape});
    // A Llama whose outputs are tied to its embedding. Here they are apart, and begin equal.
    if (const auto embedding = stored_.find("embed_tokens.weight");
        target.network == "llama" && embedding != stored_.end())
      stored_.emplace("lm_head.weight", embedding->second);
    compare(path, target);
  }

  void read_parameter(int index, std::span<float> out) override { read(Kind::parameter, index, out); }
  void read_statistics(int index, std::span<float> out) override {
    read(Kind::running_mean, index, out.first(out.size() / 2));
    read(Kind::running_variance, index, out.last(out.size() / 2));
  }

 private:
  struct Stored {
    TensorFile* file;
    std::string name;  // in the file
    std::vector<std::int64_t> shape;
    void read(std::span<float> out) const { file->read(name, out); }
  };

  void compare(const std::filesystem::path& path, const WeightTarget& target) {
    parameters_.assign(target.graph.parameters.size(), true);
    statistics_.assign(target.graph.stats.size(), true);
    WeightComparison differences(target);
    std::set<std::string> known;
    std::map<std::pair<bool, int>, std::string> kept;  // a tensor of each parameter, or of each norm, that is read
    for (PyTorchTensor& t : tensors_) {
      const bool statistics = t.kind != Kind::parameter;
      const bool skipped = differences.skips(t.name) | differences.skips(plain_name(t.name, target.network)) |
                           (!statistics && differences.skips(target.graph.parameters[std::size_t(t.index)].name));
      t.name = plain_name(t.name, target.network);
      known.insert(t.name);
      if (t.kind == Kind::batch_count || t.alias) continue;
      if (skipped)
        (statistics ? statistics_ : parameters_)[std::size_t(t.index)] = false;
      else if (compare_shapes(differences, t))
        kept.emplace(std::pair(statistics, t.index), t.name);
    }
    for (const auto& [of, name] : kept)
      if (!(of.first ? statistics_ : parameters_)[std::size_t(of.second)])
        fail(
            Exit::config,
            "model.weights_skip: a part of what millrace keeps together begins with fresh values, but {} does not. add "
            "it to the patterns",
            name);
    for (const auto& [name, stored] : stored_)
      if (!known.contains(name) && !target.untrained.contains(name) && !is_no_weight(name) && !differences.skips(name))
        differences.unknown(name);
    differences.require_equal(path);
  }

  // Whether the file has the tensor.
  bool compare_shapes(WeightComparison& differences, const PyTorchTensor& t) const {
    const auto found = stored_.find(t.name);
    if (found == stored_.end())
      differences.missing(t.name);
    else if (shape_to_read(t, found->second.shape) != t.shape)
      differences.other_shape(t.name, found->second.shape, t.shape);
    return found != stored_.end();
  }

  void read(Kind kind, int index, std::span<float> out) {
    std::vector<float> values;
    for (const PyTorchTensor& t : tensors_) {
      if (t.kind != kind || t.index != index) continue;
      const auto found = stored_.find(t.name);
      if (found == stored_.end()) continue;  // an alias
      values.resize(std::size_t(t.count()));
      found->second.read(values);
      if (t.alias)
        require_tied(t, values, out);
      else
        scatter(t, values, out);
    }
  }

  // Aliases come before the tensors that they are equal to, or after them.
  void require_tied(const PyTorchTensor& alias, const std::vector<float>& values, std::span<float> out) {
    for (const PyTorchTensor& t : tensors_)
      if (!t.alias && t.kind == alias.kind && t.index == alias.index) {
        std::vector<float> original(std::size_t(t.count()));
        stored_.at(t.name).read(original);
        if (original != values)
          fail(Exit::config,
               "{}: {} and {} differ, but the network has one tensor for both. write it out under model.layers",
               path_.string(), alias.name, t.name);
        scatter(t, original, out);
      }
  }

  std::filesystem::path path_;
  std::vector<std::unique_ptr<TensorFile>> files_;
  std::vector<PyTorchTensor> tensors_;
  std::map<std::string, Stored> stored_;  // by plain_name()
};

// The files of a folder that save_pretrained() wrote.
std::vector<SafetensorsFile> files_of_folder(const std::filesystem::path& folder) {
  std::vector<SafetensorsFile> out;
  const auto index = folder / "model.safetensors.index.json", single = folder / "model.safetensors";
  std::error_code unknown;
  if (!std::filesystem::exists(index, unknown)) {
    if (!std::filesystem::exists(single, unknown))
      fail(Exit::data, "model.weights: {} holds no model.safetensors. name a file{}", folder.string(),
           std::filesystem::exists(folder / "checkpoints", unknown)
               ? ", such as " + (folder / "checkpoints").string() + "/step-*.h5 of this run"
               : std::string());
    out.emplace_back(single);
    return out;
  }
  std::set<std::string> names;
  try {
    constexpr std::uint64_t most = 64 << 20;
    const auto contents = nlohmann::json::parse(read_file(index, most));
    for (const auto& [tensor, name] : contents.at("weight_map").items()) names.insert(name.get<std::string>());
  } catch (const nlohmann::json::exception& e) {
    fail(Exit::data, "{} is not an index of safetensors files ({})", index.string(), e.what());
  }
  for (const std::string& name : names) {
    if (name.find('/') != name.npos)
      fail(Exit::data, "{} names '{}', which is not in its folder. name the files themselves", index.string(), name);
    out.emplace_back(folder / name);
  }
  return out;
}

}  // namespace

std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& path, const WeightTarget& target) {
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown))
    fail(Exit::data,
         "model.weights: there is no file {}. give a .safetensors file, a checkpoint (.h5), a network of "
         "torch.export (.pt2) or a folder",
         path.string());
  if (path.extension() == ".h5") return open_checkpoint_weights(path, target);
  std::vector<std::unique_ptr<TensorFile>> tensors;
  if (path.extension() == ".pt2") {
    tensors.push_back(std::make_unique<ArchiveTensors>(path));
    return std::make_unique<PyTorchWeights>(path, std::move(tensors), target);
  }
  const bool folder = std::filesystem::is_directory(path, unknown);
  std::vector<SafetensorsFile> files;
  if (folder)
    files = files_of_folder(path);
  else
    files.emplace_back(path);
  // Shapes do not show the number of heads.
  const auto config = (folder ? path : path.parent_path()) / "config.json";
  if (std::filesystem::exists(config, unknown) && !files.front().metadata().contains(written_by_key))
    require_same_network(config, target.graph, target.network);
  if (!folder && has_configuration(files.front()))
    if (const CheckpointModel model = read_safetensors_model(path); model.record)
      require_same_settings(path, *model.record, target);
  for (SafetensorsFile& file : files) tensors.push_back(std::make_unique<SafetensorsTensors>(std::move(file)));
  return std::make_unique<PyTorchWeights>(path, std::move(tensors), target);
}

}  // namespace millrace
