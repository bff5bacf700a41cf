#include <algorithm>
#include <filesystem>

#include "arguments.hpp"
#include "machine.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/units.hpp"
#include "millrace/data/shards.hpp"
#include "millrace/io/hdf5.hpp"
#include "millrace/train/commands.hpp"

namespace millrace::app {
namespace {

std::string extents(const std::vector<std::int64_t>& shape) {
  std::string out;
  for (const auto extent : shape) out += (out.empty() ? "" : "x") + std::to_string(extent);
  return out.empty() ? "scalar" : out;
}

std::string describe_dataset(const io::DatasetInfo& info) {
  std::string out = cat("  ", info.name, ": ", extents(info.shape), " ");
  if (!info.refusal.empty()) return out + "cannot be read (" + info.refusal + ")\n";
  out += cat(name_of(info.dtype), info.big_endian ? " big-endian" : "");
  if (info.chunked) out += ", chunks of " + extents(info.chunk);
  for (const auto& filter : info.filters) out += ", " + filter;
  if (info.offset) out += cat(", contiguous at byte ", *info.offset);
  return out + "\n";
}

std::string numbers(const std::vector<double>& values) {
  std::string out;
  for (std::size_t i = 0; i < values.size() && i < 8; ++i) out += cat(i ? " " : "", values[i]);
  return out + (values.size() > 8 ? " ..." : "");
}

std::string attributes(const io::File& file, const std::string& object) {
  std::string out;
  for (const char* name : {"format", "layout"})
    if (const auto text = file.get_string(object, name)) out += cat("  ", object, ".", name, " = ", *text, "\n");
  for (const char* name : {"classes", "scale", "mean", "std"})
    if (const auto values = file.get_numbers(object, name))
      out += cat("  ", object, ".", name, " = ", numbers(*values), "\n");
  return out;
}

bool is_checkpoint(const std::string& path) {
  return io::File::open(path).get_string("/", "format").value_or("").starts_with("millrace-checkpoint");
}

std::string describe_file(const std::string& path) {
  if (is_checkpoint(path)) return describe_checkpoint(path);
  const auto file = io::File::open(path);
  std::string out = path + "\n" + attributes(file, "/");
  for (const auto& name : file.datasets()) {
    out += describe_dataset(file.info(name));
    out += attributes(file, name);
  }
  return out;
}

std::string describe_set(World& world, const Parsed& parsed) {
  DataOptions options;
  options.paths = parsed.rest;
  options.x = parsed.get("x-name", "x"), options.y = parsed.get("y-name", "y");
  const ShardIndex set = index_shards(world, options);
  std::string out =
      cat("as a data set: ", set.rows, " rows in ", set.shards.size(), " files, samples ", set.sample.str(), " ",
          name_of(set.x_dtype), set.channels_first ? ", channels first" : ", channels last", ", ",
          set.labels ? cat(set.classes, " classes") : "targets " + set.target.str(), ", ",
          format_bytes(std::uint64_t(set.rows) * set.sample_bytes()), " of samples, scale ", set.scale, "\n");
  const bool direct = std::all_of(set.shards.begin(), set.shards.end(), [](const Shard& s) { return s.contiguous; });
  return out +
         (direct ? "reader: direct\n" : "reader: HDF5 (not every file is contiguous; millrace pack makes it so)\n");
}

const std::vector<Flag>& flags() {
  static const std::vector<Flag> table = {
      {.name = "x-name", .value = "name", .help = "data set of the samples", .preset = "x"},
      {.name = "y-name", .value = "name", .help = "data set of the labels", .preset = "y"},
  };
  return table;
}

// A folder stands for the HDF5 files in it, a run's folder for its checkpoints.
std::string files_of(const std::string& path) {
  const std::filesystem::path folder = path;
  std::error_code none;
  if (!std::filesystem::is_directory(folder, none)) return path;
  const bool run = std::filesystem::is_directory(folder / "checkpoints", none);
  return ((run ? folder / "checkpoints" : folder) / "*.h5").string();
}

}  // namespace

std::string inspect_help() {
  return "usage: millrace inspect [PATH...]\n\n" + flags_help(flags()) +
         "\nPATH: files of a data set (globs too), a checkpoint, or a folder of either. Without: this machine, its "
         "ranks and libraries.\n";
}

Exit inspect_command(World& world, const Arguments& arguments) {
  Parsed parsed = parse_arguments(arguments, flags(), false);
  for (auto& path : parsed.rest) path = files_of(path);
  if (parsed.rest.empty()) return print(world, describe_machine(world)), Exit::ok;
  std::string out, problem;
  bool data = false;
  if (world.rank() == 0) try {
      for (const auto& pattern : parsed.rest) {
        const auto paths = expand_glob(pattern);
        if (paths.empty() && pattern.starts_with("synthetic:"))
          data = true;
        else if (paths.empty())
          fail(Exit::data, "nothing is called ", pattern, ". check the path");
        for (const auto& path : paths) out += describe_file(path), data = data || !is_checkpoint(path);
      }
    } catch (const Error& error) {
      problem = error.what();
    }
  world.agree(Exit::data, problem);
  print(world, out);
  if (world.broadcast_string(data ? "data" : "") == "data") print(world, describe_set(world, parsed));
  return Exit::ok;
}

}  // namespace millrace::app
