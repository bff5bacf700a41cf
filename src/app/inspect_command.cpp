#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "app/commands.hpp"
#include "app/machine.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/units.hpp"
#include "millrace/config/arguments.hpp"
#include "millrace/config/keys.hpp"
#include "millrace/data/cache/describe_copies.hpp"
#include "millrace/data/index/class_names.hpp"
#include "millrace/data/index/row_checksums.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/data/load/block_order.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/data/scan/split_rows.hpp"
#include "millrace/data/scan/survey.hpp"
#include "millrace/io/hdf5.hpp"
#include "millrace/model/pt2/import.hpp"
#include "millrace/pt2/exported_program.hpp"
#include "millrace/train/checkpoint/describe_checkpoint.hpp"

namespace millrace::app {
namespace {

std::string extents(const std::vector<std::int64_t>& shape) {
  std::string out;
  for (const auto extent : shape) out += (out.empty() ? "" : "x") + std::to_string(extent);
  return out.empty() ? "scalar" : out;
}

std::string describe_dataset(const io::DatasetInfo& info) {
  std::string out = fmt::format("  {}: {} ", info.name, extents(info.shape));
  if (info.global_heap_base) return out + "bytes of variable length\n";
  if (!info.unsupported_reason.empty()) return out + "cannot be read (" + info.unsupported_reason + ")\n";
  out += fmt::format("{}{}", name_of(info.dtype), info.big_endian ? " big-endian" : "");
  if (info.chunked) out += ", chunks of " + extents(info.chunk);
  for (const auto& filter : info.filters) out += ", " + filter;
  if (info.offset) out += fmt::format(", contiguous at byte {}", *info.offset);
  return out + "\n";
}

std::string numbers(const std::vector<double>& values) {
  std::string out;
  for (std::size_t i = 0; i < values.size() && i < 8; ++i) out += fmt::format("{}{:g}", i ? " " : "", values[i]);
  return out + (values.size() > 8 ? " ..." : "");
}

std::string attributes(const io::File& file, const std::string& object) {
  std::string out;
  for (const char* name : {"format", "layout", "transform"})
    if (const auto text = file.get_string(object, name)) out += fmt::format("  {}.{} = {}\n", object, name, *text);
  if (const auto names = parse_class_names(file.get_string(object, "class_names").value_or("")); !names.empty()) {
    out += fmt::format("  {}.class_names = ", object);
    for (std::size_t c = 0; c < names.size() && c < 8; ++c) out += (c ? ", " : "") + names[c];
    out += names.size() > 8 ? ", ...\n" : "\n";
  }
  for (const char* name : {"classes", "scale", "offset", "scale_factor", "add_offset", "mean", "std"})
    if (const auto values = file.get_numbers(object, name))
      out += fmt::format("  {}.{} = {}\n", object, name, numbers(*values));
  return out;
}

bool is_checkpoint(const std::string& path) {
  return io::File::open(path).get_string("/", "format").value_or("").starts_with("millrace-checkpoint");
}

// Compares the checksums of all rows. Appends to the text, and to the problems if rows are damaged.
void verify(const std::string& path, std::string& text, std::vector<std::string>& problems) {
  const VerifiedRows found = verify_rows(path);
  if (found.rows == 0)
    problems.push_back(fmt::format("{} holds no checksums of its rows. write it again with millrace pack", path));
  else if (found.damaged == 0)
    text += fmt::format("  intact: the checksums of all {} rows agree\n", found.rows);
  else
    problems.push_back(
        fmt::format("{} is damaged: {} of {} rows have another checksum, the first is row {}. pack it again", path,
                    found.damaged, found.rows, found.first));
}

std::string describe_data_file(const std::string& path) {
  const auto file = io::File::open(path);
  std::string out = path + "\n" + attributes(file, "/");
  for (const auto& name : file.datasets()) {
    out += describe_dataset(file.info(name));
    if (const auto matlab = file.get_string(name, "MATLAB_class"))
      out += fmt::format("  {} is MATLAB's {}: the extents are reversed, so its last dimension is the row\n", name,
                         *matlab);
    out += attributes(file, name);
  }
  return out;
}

struct Inspection {
  std::string text, problem;
  bool has_data = false;  // some of the files belong to a data set
};

// The keys that a configuration sets to other values than the defaults.
std::string changed_keys(const std::string& text) {
  static const RunConfig defaults;
  if (text.empty()) return "";
  std::string out;
  try {
    const RunConfig config = resolve_config({{"config.cfg", text}}, {});
    for (const Key& key : keys())
      if (const auto words = key.get(config); words != key.get(defaults))
        out += fmt::format("  {} = {}\n", key.name, join_words(key, words));
  } catch (const Error&) {  // of another version
    return "";
  }
  return out.empty() ? "" : "keys that are not as by default:\n" + out;
}

// Of several checkpoints, all but the last are described in brief.
std::string describe_model(const std::string& path, bool tensors, bool last, std::vector<std::string>& problems) {
  const CheckpointText found = describe_checkpoint(path, tensors ? CheckpointDetail::tensors
                                                         : last  ? CheckpointDetail::network
                                                                 : CheckpointDetail::state);
  if (!found.damage.empty()) problems.push_back(found.damage);
  return found.text + (last ? changed_keys(found.config) : "");
}

// A file that cannot be read does not prevent the description of the others.
Inspection describe_files(const std::vector<std::string>& patterns, bool verifies, bool tensors) {
  Inspection found;
  std::vector<std::string> paths, problems;
  for (const auto& pattern : patterns) {
    const auto matches = expand_glob(pattern);
    const bool synthetic = pattern.starts_with("synthetic:");
    if (matches.empty() && !synthetic) fail(Exit::data, "no file matches {}. check the path", pattern);
    paths.insert(paths.end(), matches.begin(), matches.end());
    found.has_data = found.has_data || synthetic;
  }
  for (const auto& path : paths) try {
      if (path.ends_with(".pt2")) {
        found.text += pt2::describe(pt2::read_exported_program(path), pt2::understands);
      } else if (path.ends_with(".safetensors")) {
        const CheckpointText model = describe_safetensors(path, tensors);
        found.text += model.text + changed_keys(model.config);
      } else if (is_checkpoint(path)) {
        found.text += describe_model(path, tensors, path == paths.back(), problems);
      } else {
        found.text += describe_data_file(path);
        if (verifies) verify(path, found.text, problems);
        found.has_data = true;
      }
    } catch (const Error& error) {
      if (paths.size() > 1) found.text += path + "\n  cannot be read\n";
      problems.push_back(error.what());
    }
  if (paths.size() > 1 && !problems.empty())
    found.problem = fmt::format("{} of {} files {}: ", problems.size(), paths.size(),
                                verifies ? "are not intact" : "cannot be read");
  for (std::size_t i = 0; i < problems.size(); ++i) found.problem += (i ? "; " : "") + problems[i];
  return found;
}

std::string layout_of(const ShardIndex& set) {
  if (set.x.layout_decided_by.empty()) return "";
  return fmt::format("{}{})", set.x.channels_first ? ", channels first (" : ", channels last (",
                     set.x.layout_decided_by);
}

std::string labels_of(const ShardIndex& set) {
  if (set.y.name.empty()) return "no labels";
  if (!set.y.labels) return "targets " + set.y.target.str();
  return fmt::format(
      "{} classes{}{}", set.classes.count,
      set.y.label_maps() ? fmt::format(" in label maps {} {}", set.y.target.str(), name_of(set.y.dtype)) : "",
      set.y.ignore_label >= 0 ? fmt::format(", {} does not count", set.y.ignore_label) : "");
}

// Keys of [data] that are options, with - in place of _.
constexpr const char* data_keys[] = {"sample",     "patch", "holdout",  "lead",  "window", "stride",
                                     "vocabulary", "split", "split-by", "group", "fold",   "split-seed"};

DataConfig data_keys_of(const ParsedArguments& parsed) {
  RunConfig config;
  for (const std::string name : data_keys) {
    if (!parsed.has(name)) continue;
    std::string key = "data." + name, value = parsed.get(name, "");
    std::ranges::replace(key, '-', '_');
    if (name == "split") std::ranges::replace(value, ',', ' ');
    option(name.c_str(), [&] { find_key(key)->set(config, split_words(value)); });
  }
  return config.data;
}

std::string describe_set(World& world, const ParsedArguments& parsed, Layout layout) {
  DataOptions options;
  options.paths = parsed.positional;
  options.x = parsed.get("x-name", "x");
  options.y = parsed.get("y-name", "y");
  options.layout = layout;
  const DataConfig keys = data_keys_of(parsed);
  options.view = keys;
  if (!parsed.has("y-name") && keys.sample == SampleKind::rows && !keys.splits() &&
      world.broadcast_string(world.rank() == 0 && lacks_labels(options) ? "none" : "") == "none")
    options.y.clear();
  const ShardIndex set = index_shards(world, options);
  std::string out = fmt::format(
      "as a data set: {}{}{} files, samples {} {}{}{}, {}, {} of samples, scale {:g}{}{}\n", set.rows,
      set.samples_are_views() ? " samples in " : " rows in ", set.shards.size(), set.sample.str(), name_of(set.x.dtype),
      layout_of(set),
      set.encoded() ? ", decoded from JPEG or PNG (the first one's size; data.resize and data.crop set it)" : "",
      labels_of(set), format_bytes(std::uint64_t(set.rows) * set.sample_bytes()), set.values.scale,
      set.values.offset != 0 ? fmt::format(", offset {:g}", set.values.offset) : "",
      set.x.parts.empty() ? "" : " (of the first data set)");
  if (keys.splits()) out += split_rows(world, set, keys).text + "\n";
  const std::string advice = block_shuffle_advice(set, ChunkOptions{}.cache_bytes);
  return out + (world.rank() == 0 ? describe_values(set) : "") +
         "reader: " + make_source(world, set, Reader::automatic)->describe() + "\n" +
         (advice.empty() ? "" : advice + "\n") +
         (parsed.has("cache") ? describe_copies(set, parsed.get("cache", "")) + "\n" : "");
}

const std::vector<Flag>& inspect_flags() {
  static const std::vector<Flag> table = [] {
    std::vector<Flag> flags = {
        {.name = "x-name", .value = "name", .help = "data set of the samples", .default_value = "x"},
        {.name = "y-name", .value = "name", .help = "data set of the labels", .default_value = "y"},
        {.name = "layout",
         .value = "auto|channels_last|channels_first|no_channels",
         .help = "position of a sample's channels, like data.layout",
         .default_value = "auto"},
        {.name = "verify",
         .value = "",
         .help = "shards: read all rows and compare their checksums, which millrace pack stores; checkpoints are "
                 "always verified",
         .arity = Flag::Arity::nothing},
        {.name = "tensors",
         .value = "",
         .help = "checkpoints: list all tensors with their shapes and checksums; .safetensors: with their shapes",
         .arity = Flag::Arity::nothing},
        {.name = "cache",
         .value = "folder",
         .help = "also describe the copies that data.cache has made in this folder"},
    };
    for (const std::string name : data_keys)
      flags.push_back(
          {.name = name, .value = "value", .help = "how samples are extracted or divided, like data." + name});
    return flags;
  }();
  return table;
}

// A folder stands for the HDF5 files in it; the folder of a run stands for its checkpoints.
std::string files_of(const std::string& path) {
  const std::filesystem::path folder = path;
  std::error_code none;
  if (!std::filesystem::is_directory(folder, none)) return path;
  const bool run = std::filesystem::is_directory(folder / "checkpoints", none);
  return ((run ? folder / "checkpoints" : folder) / "*.h5").string();
}

}  // namespace

std::string inspect_help() {
  return "usage: millrace inspect [PATH...]\n\n" + flags_help(inspect_flags()) +
         "\nPATH: files of a data set (globs too), a checkpoint, a folder of either, weights (.safetensors), or a "
         "network of\n"
         "PyTorch (.pt2). Without a PATH: describes this machine, its ranks and libraries.\n";
}

Exit inspect_command(World& world, const Arguments& arguments) {
  ParsedArguments parsed = parse_arguments(arguments, inspect_flags(), false);
  for (auto& path : parsed.positional) path = files_of(path);
  if (parsed.positional.empty()) {
    print(world, describe_machine(world));
    return Exit::ok;
  }
  const Layout layout = parse_layout(parsed.get("layout", "auto"));
  Inspection found;
  if (world.rank() == 0) try {
      found = describe_files(parsed.positional, parsed.has("verify"), parsed.has("tensors"));
    } catch (const Error& error) {
      found.problem = error.what();
    }
  print(world, found.text);
  world.agree(Exit::data, found.problem);
  if (world.broadcast_string(found.has_data ? "data" : "") == "data") print(world, describe_set(world, parsed, layout));
  return Exit::ok;
}

}  // namespace millrace::app
