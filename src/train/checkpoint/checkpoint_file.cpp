#include "train/checkpoint/checkpoint_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/io/hdf5.hpp"
#include "millrace/train/checkpoint/describe_checkpoint.hpp"
#include "train/checkpoint/piece_writer.hpp"
#include "train/checkpoint/run_state.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
// Format 2 adds the checksum of the layout, format 3 the model. All are read.
constexpr const char* formats[] = {"millrace-checkpoint-1", "millrace-checkpoint-2", "millrace-checkpoint-3"};
constexpr const char* model_name = "/model";

// The checksum of the names and shapes of all data sets. With it, a damaged name or shape is not mistaken for another
// model.
std::int64_t layout_checksum(const io::File& file) {
  std::vector<std::string> names = file.datasets();
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) {
    text += name;
    for (const std::int64_t extent : file.info(name).shape) text += fmt::format(" {}", extent);
    text += '\n';
  }
  return std::int64_t(crc32(text.data(), text.size()));
}

// The number of the format; 0: the file is not a checkpoint.
int format_of(const io::File& file) {
  const auto format = file.get_string("/", "format");
  for (std::size_t i = 0; i < std::size(formats); ++i)
    if (format == formats[i]) return int(i) + 1;
  return 0;
}

// "" in older formats.
std::string model_text(const io::File& file) {
  if (!file.has(model_name)) return "";
  std::string text(std::size_t(file.info(model_name).shape.at(0)), ' ');
  file.read_rows(model_name, 0, std::int64_t(text.size()), DType::u8, text.data());
  return text;
}

// Which part of the metadata has a wrong checksum; "" if none has. state: the text of the attribute run_state.
std::string damaged_metadata(const io::File& file, const std::string& state) {
  if (std::int64_t(crc32(state.data(), state.size())) != file.get_int("/", "run_state_crc32")) return "the run state";
  const int format = format_of(file);
  if (format >= 2 && file.get_int("/", "layout_crc32") != layout_checksum(file)) return "the layout";
  const std::string model = model_text(file);
  if (!model.empty() && std::int64_t(crc32(model.data(), model.size())) != file.get_int(model_name, "crc32"))
    return "the model";
  return "";
}

// Returns the run state. Error(data): the metadata of the file is damaged.
std::string verified_state(const io::File& file, const fs::path& path) {
  if (format_of(file) == 0) fail(Exit::data, "{} is not a checkpoint of this program", path.string());
  const std::string state = file.get_string("/", "run_state").value_or("");
  if (const std::string part = damaged_metadata(file, state); !part.empty())
    fail(Exit::data, "{}: the checksum of {} is wrong", path.string(), part);
  return state;
}

[[noreturn]] void refuse_tensor(const fs::path& path, const std::string& name, const char* why) {
  fail(Exit::config,
       "{} belongs to another model or optimizer ({} {}). set run.dir to a new folder, or restore the model of the "
       "checkpoint",
       path.string(), name, why);
}

// What an evaluation does not read: moments, and either the weights or their averages.
bool only_for_training(const std::string& name, bool reads_averages) {
  return name.starts_with("/moment") || name.starts_with(reads_averages ? "/parameters/" : "/ema/");
}

}  // namespace

std::vector<std::int64_t> create_checkpoint_file(const fs::path& path, const std::vector<NamedTensor>& tensors,
                                                 const std::string& model) {
  std::vector<std::int64_t> offsets;
  {
    io::File file = io::File::create(path);
    if (!model.empty()) {
      file.create_dataset(model_name, DType::u8, {std::int64_t(model.size())});
      file.write_rows(model_name, 0, std::int64_t(model.size()), DType::u8, model.data());
      file.set(model_name, "crc32", std::int64_t(crc32(model.data(), model.size())));
    }
    for (const NamedTensor& t : tensors) {
      file.create_dataset("/" + t.name, DType::f32, t.shape.extents());
      file.set("/" + t.name, "crc32", std::int64_t(0));
    }
    for (const NamedTensor& t : tensors) {
      const auto offset = file.info("/" + t.name).offset;
      MR_CHECK(offset.has_value(), "{}: {} has no storage", path.string(), t.name);
      offsets.push_back(std::int64_t(*offset));
    }
    file.flush();
    file.close();
  }
  allocate_file(path, "a checkpoint");
  return offsets;
}

void seal_checkpoint_file(const fs::path& path, const std::vector<NamedTensor>& tensors,
                          const std::vector<std::uint32_t>& checksums, const RunState& run) {
  const std::string state = to_json(run);
  io::File file = io::File::append(path);
  for (std::size_t t = 0; t < tensors.size(); ++t) file.set("/" + tensors[t].name, "crc32", std::int64_t(checksums[t]));
  file.set("/", "format", std::string(formats[2]));
  file.set("/", "layout_crc32", layout_checksum(file));
  file.set("/", "run_state", state);
  file.set("/", "run_state_crc32", std::int64_t(crc32(state.data(), state.size())));
  file.flush();
  file.close();
  fsync_file(path);
}

CheckpointReader::CheckpointReader(const fs::path& path, const std::vector<NamedTensor>& tensors, bool training)
    : path_(path), file_(io::File::open(path)) {
  const std::string state = verified_state(file_, path);
  std::set<std::string> used;
  for (const NamedTensor& t : tensors) {
    const std::string name = name_of(t);
    const bool exists = file_.has(name);
    if (!exists || file_.info(name).shape != t.shape.extents())
      refuse_tensor(path, t.name, exists ? "has another shape" : "is missing");
    used.insert(name);
  }
  const bool averages = std::ranges::any_of(used, [](const std::string& name) { return name.starts_with("/ema/"); });
  for (const std::string& name : file_.datasets())
    if (!used.contains(name) && name != model_name && (training || !only_for_training(name, averages)))
      refuse_tensor(path, name.substr(1), "is not part of it now");
  run_ = run_state_from_json(state);
}

std::string CheckpointReader::name_of(const NamedTensor& t) const {
  const std::string older = "/" + t.older_name;
  return !t.older_name.empty() && format_of(file_) < 3 && file_.has(older) ? older : "/" + t.name;
}

void CheckpointReader::read(const NamedTensor& t, std::int64_t row, std::int64_t rows, float* out) {
  const std::string name = name_of(t);
  file_.read_rows(name, row, rows, DType::f32, out);
  const std::size_t bytes = std::size_t(rows * t.shape.row_count()) * sizeof(float);
  checksum_ = crc32(out, bytes, row == 0 ? 0 : checksum_);
  if (row + rows == t.shape[0] && std::int64_t(checksum_) != file_.get_int(name, "crc32"))
    fail(Exit::data, "{}: the checksum of {} is wrong", path_.string(), t.name);
}

std::string describe(const ModelRecord& m) {
  std::string out =
      fmt::format("  written by millrace {}; samples {} {}", m.version, m.sample.str(), name_of(m.sample_type));
  if (m.labels)
    out += fmt::format(", {} classes", m.classes.count);
  else
    out += fmt::format(", targets {}", m.target.str());
  for (std::size_t c = 0; c < std::min<std::size_t>(8, m.classes.names.size()); ++c)
    out += (c ? ", " : ": ") + m.classes.names[c];
  out += m.classes.names.size() > 8 ? ", ...\n" : "\n";
  for (std::size_t i = 0; i < std::min<std::size_t>(8, m.values.target_mean.size()); ++i)
    out += fmt::format("{}{:g} and {:g}",
                       i ? ", " : "  targets normalised by mean and standard deviation: ", m.values.target_mean[i],
                       m.values.target_std[i]);
  if (!m.values.target_mean.empty()) out += m.values.target_mean.size() > 8 ? ", ...\n" : "\n";
  for (const std::string& line : m.function) out += "  " + line + "\n";
  return out;
}

CheckpointModel read_checkpoint_model(const fs::path& path) {
  try {
    const io::File file = io::File::open(path);
    const RunState run = run_state_from_json(verified_state(file, path));
    CheckpointModel out{path, std::nullopt, run.config, run.step};
    if (const std::string text = model_text(file); !text.empty()) out.record = model_record_from_json(text);
    return out;
  } catch (const nlohmann::json::exception& e) {
    fail(Exit::data, "{}: its metadata cannot be read ({})", path.string(), e.what());
  }
}

CheckpointText describe_checkpoint(const std::string& path, CheckpointDetail detail) {
  const io::File file = io::File::open(path);
  const std::string state = file.get_string("/", "run_state").value_or("");
  if (format_of(file) == 0 || state.empty()) fail(Exit::data, "{} is not a checkpoint of this program", path);
  const RunState run = run_state_from_json(state);
  std::ostringstream out;
  out << path << ": step " << run.step << ", epoch " << run.epoch_from_1() << ", " << run.samples << " samples seen";
  if (run.valid_accuracy >= 0)
    out << ", validation accuracy " << run.valid_accuracy * 100 << " % at step " << run.valid_step;
  out << "\n";
  const std::string model = detail == CheckpointDetail::state ? "" : model_text(file);
  if (!model.empty()) out << describe(model_record_from_json(model));
  std::int64_t values = 0;
  std::string damaged = damaged_metadata(file, state);
  for (const std::string& name : file.datasets()) {
    if (name == model_name) continue;
    const auto info = file.info(name);
    Shape shape;
    for (const auto extent : info.shape) shape.dims[std::size_t(shape.rank++)] = extent;
    std::vector<float> data(std::size_t(shape.count()));
    file.read_rows(name, 0, shape[0], DType::f32, data.data());
    const std::uint32_t sum = crc32(data.data(), data.size() * sizeof(float));
    const bool intact = std::int64_t(sum) == file.get_int(name, "crc32");
    if (detail == CheckpointDetail::tensors || !intact)
      out << "  " << name << "  " << shape.str() << "  crc32 " << sum
          << (intact ? "" : "  DIFFERS FROM THE STORED CHECKSUM") << "\n";
    values += shape.count();
    if (!intact) damaged += (damaged.empty() ? "" : ", ") + name;
  }
  out << (damaged.empty() ? fmt::format("intact: {} values, all checksums agree", values) : "damaged: " + damaged)
      << "\n";
  if (detail != CheckpointDetail::state)
    for (const auto& [key, value] : run.provenance) out << "  " << key << ": " << value << "\n";
  return {out.str(), damaged.empty() ? "" : fmt::format("{} is damaged: the checksum of {} is wrong", path, damaged),
          run.config};
}

}  // namespace millrace
