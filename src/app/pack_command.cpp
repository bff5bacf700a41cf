#include <algorithm>
#include <cmath>

#include "app/commands.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/config/arguments.hpp"
#include "millrace/config/key_types.hpp"
#include "millrace/data/pack/importer.hpp"
#include "millrace/data/pack/pack.hpp"

namespace millrace::app {
namespace {

using Arity = Flag::Arity;

const std::vector<Flag>& flags() {
  const char *input = "what is read", *shards = "what is written", *order = "order and split of the rows",
             *images = "folders of images", *tokens = "tokens and text";
  static const std::vector<Flag> table = {
      {.name = "x",
       .value = "files",
       .help = "samples: MNIST idx(.gz), CIFAR-10 binary, NumPy .npy or .npz, HDF5, .csv, a folder of images by class, "
               "or tokens; globs are expanded",
       .arity = Arity::many,
       .group = input},
      {.name = "y",
       .value = "files",
       .help = "labels or targets, as many files as --x; none where the files of --x hold them: HDF5, .npz, .csv, "
               "CIFAR-10, images, tokens",
       .arity = Arity::many,
       .group = input},
      {.name = "x-name",
       .value = "name",
       .help = "HDF5 and .npz: data set of the samples",
       .default_value = "x",
       .group = input},
      {.name = "y-name",
       .value = "name",
       .help = "HDF5 and .npz: data set of the labels; .csv: their column, by name or by number from 1",
       .default_value = "y",
       .group = input},
      {.name = "targets",
       .value = "",
       .help = ".csv: whole numbers in the column of --y-name, or in --y, are targets too, not labels",
       .arity = Arity::nothing,
       .group = input},
      {.name = "layout",
       .value = "auto|channels_last|channels_first|no_channels",
       .help =
           "where a sample's channels are; auto: the input's attribute, else told by the shape. 1-D signals need it",
       .default_value = "auto",
       .group = input},
      {.name = "resize",
       .value = "pixels",
       .help = "short side of every image; without it they must be of one size",
       .group = images},
      {.name = "crop",
       .value = "pixels",
       .help = "side of a square from the centre",
       .default_value = "as --resize",
       .group = images},
      {.name = "encoded",
       .value = "",
       .help = "keep the files' bytes, JPEG and PNG: smaller shards, which every epoch decodes anew to data.resize and "
               "data.crop",
       .arity = Arity::nothing,
       .group = images},
      {.name = "grey", .value = "", .help = "one channel instead of three", .arity = Arity::nothing, .group = images},
      {.name = "upright",
       .value = "",
       .help = "turn JPEG as the orientation in its EXIF says",
       .arity = Arity::nothing,
       .group = images},
      {.name = "tokens",
       .value = "uint8|uint16|uint32",
       .help = "--x are raw tokens of this type, little-endian; uint8: the bytes of a text",
       .group = tokens},
      {.name = "context",
       .value = "number",
       .help = "a sample is a window of so many and one more, the last of which begins the next window",
       .group = tokens},
      {.name = "out", .value = "folder", .help = "where the shards go; made when absent", .group = shards},
      {.name = "prefix",
       .value = "name",
       .help = "shards are called <name>-00000.h5 and so on",
       .default_value = "train",
       .group = shards},
      {.name = "shard-size",
       .value = "size",
       .help = "size of a shard at most",
       .default_value = "1GiB",
       .group = shards},
      {.name = "codec",
       .value = "none|zstd|lz4",
       .help =
           "compress the samples, which are then decoded by the loader's threads; none reads fastest where disk and "
           "memory are large enough",
       .default_value = "none",
       .group = shards},
      {.name = "level",
       .value = "number",
       .help = "of --codec: zstd 1 to 19 (usually 3), lz4 0 to 12 (usually 0)",
       .group = shards},
      {.name = "chunk-rows",
       .value = "number",
       .help = "of --codec: samples compressed together, and decoded together; unset: one, or as many as 16 KiB holds",
       .group = shards},
      {.name = "overwrite",
       .value = "",
       .help = "replace shards of this name that are there",
       .arity = Arity::nothing,
       .group = shards},
      {.name = "transform",
       .value = "none|log1p",
       .help =
           "measure mean and deviation of the values so transformed, as data.transform will; they are stored as they "
           "are",
       .default_value = "none",
       .group = shards},
      {.name = "seed",
       .value = "number",
       .help = "seed of the shuffle and the split",
       .default_value = "1",
       .group = order},
      {.name = "no-shuffle",
       .value = "",
       .help = "keep the order of the input",
       .arity = Arity::nothing,
       .group = order},
      {.name = "valid-fraction",
       .value = "number",
       .help = "this share of the rows goes to shards called valid-00000.h5 and so on",
       .default_value = "0",
       .group = order},
  };
  return table;
}

std::vector<std::string> expanded(const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  for (const auto& pattern : patterns) {
    const auto found = expand_glob(pattern);
    if (found.empty()) fail(Exit::data, "nothing is called ", pattern, ". check the path");
    paths.insert(paths.end(), found.begin(), found.end());
  }
  return paths;
}

// From 1 on; 0 where it is not given.
std::int64_t whole(const ParsedArguments& parsed, const char* name) {
  return option(name, [&] {
    const std::string text = parsed.get(name, "0");
    const auto value = parse_number<std::int64_t>(text);
    at_least(parsed.has(name) ? 1 : 0).check(double(value), text);
    return value;
  });
}

PackOptions pack_options(const ParsedArguments& parsed) {
  PackOptions out;
  out.out = parsed.get("out", "");
  out.prefix = parsed.get("prefix", "train");
  out.shard_bytes = option("shard-size", [&] { return parse_bytes(parsed.get("shard-size", "1GiB")); });
  out.seed = option("seed", [&] { return parse_number<std::uint64_t>(parsed.get("seed", "1")); });
  out.shuffle = !parsed.has("no-shuffle");
  out.valid_fraction = option("valid-fraction", [&] {
    const std::string text = parsed.get("valid-fraction", "0");
    const double value = parse_number<double>(text);
    fraction().check(value, text);
    return value;
  });
  out.overwrite = parsed.has("overwrite");
  out.transform = option("transform", [&] {
    const std::string text = parsed.get("transform", "none");
    if (text != "none" && text != "log1p") fail(Exit::config, "'", text, "' is none of none|log1p");
    return text == "log1p" ? Transform::log1p : Transform::none;
  });
  const std::string codec = parsed.get("codec", "none");
  if (codec != "none") {
    std::optional<int> level;
    if (parsed.has("level")) level = option("level", [&] { return parse_number<int>(parsed.get("level", "")); });
    out.codec = option("codec", [&] { return io::make_encoder(codec, level); });
    out.chunk_rows = whole(parsed, "chunk-rows");
  } else if (parsed.has("level") || parsed.has("chunk-rows")) {
    fail(Exit::config, "command line: --level and --chunk-rows do nothing without --codec");
  }
  if (out.out.empty()) fail(Exit::config, "command line: --out is missing. name the folder for the shards");
  if (out.shard_bytes == 0) fail(Exit::config, "command line: --shard-size: a shard needs room for a row");
  return out;
}

// Of the options of what is read, encoded images take none but the folder.
PackReport pack_images_encoded(World& world, const ParsedArguments& parsed, const PackOptions& options) {
  const auto folder = expanded(parsed.list("x"));
  for (const char* other : {"y", "targets", "layout", "resize", "crop", "grey", "upright", "tokens", "context", "codec",
                            "level", "chunk-rows", "transform"})
    if (parsed.has(other))
      fail(Exit::config, "command line: --encoded keeps images as they are. leave --", other, " away");
  std::error_code none;
  if (folder.size() != 1 || !std::filesystem::is_directory(folder[0], none))
    fail(Exit::config, "command line: --encoded takes one folder of images by class. give --x FOLDER");
  return pack_encoded(world, folder[0], options);
}

Exit report_of(World& world, const PackOptions& options, const PackReport& report) {
  const auto own = world.gather(cat("  rank ", world.rank(), " @ ", world.host(), ": wrote ",
                                    format_bytes(report.own_bytes), " (", report.own_bytes, " bytes)\n"));
  std::string out =
      cat(report.rows, " rows", report.valid_rows > 0 ? cat(" and ", report.valid_rows, " for validation") : "", ", ",
          report.files.size(), " shards, ", format_bytes(report.bytes), " in ", format_seconds(report.seconds), " (",
          std::int64_t(double(report.bytes) / 1e6 / std::max(report.seconds, 1e-9)), " MB/s)\n",
          options.codec ? options.codec->filter.name + ": " : "MPI-IO: ", report.io_mode, "\n");
  if (options.codec)
    out += cat(format_bytes(report.row_bytes), " of rows became ", format_bytes(report.bytes), ", ",
               double(std::llround(1000.0 * double(report.bytes) / double(report.row_bytes))) / 10, " %\n");
  for (const auto& line : own) out += line;
  for (const auto& file : report.files) out += "  " + file + "\n";
  print(world, out);
  return Exit::ok;
}

std::int64_t token_bytes(const std::string& type) {
  if (type == "uint8") return 1;
  if (type == "uint16") return 2;
  if (type == "uint32") return 4;
  fail(Exit::config, "'", type, "' is none of uint8|uint16|uint32");
}

}  // namespace

std::string pack_help() {
  return "usage: millrace pack --x FILES --y FILES --out FOLDER [options]\n\n" + flags_help(flags()) +
         "\nSizes: 64MiB, 512k. All ranks write, each its share of every shard. Under mpirun: mpirun -n 4 millrace "
         "pack ...\n";
}

Exit pack_command(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, flags(), false);
  reject_positional(parsed);
  const PackOptions options = pack_options(parsed);
  if (!parsed.has("x")) fail(Exit::config, "command line: --x is missing. name the files of the samples");
  if (parsed.has("encoded")) return report_of(world, options, pack_images_encoded(world, parsed, options));
  ImportOptions in;
  in.x = expanded(parsed.list("x")), in.y = expanded(parsed.list("y"));
  in.x_name = parsed.get("x-name", "x"), in.y_name = parsed.get("y-name", "y");
  in.layout = option("layout", [&] { return parse_layout(parsed.get("layout", "auto")); });
  in.resize = whole(parsed, "resize"), in.crop = whole(parsed, "crop"), in.context = whole(parsed, "context");
  in.apply_exif_orientation = parsed.has("upright");
  in.grey = parsed.has("grey"), in.targets = parsed.has("targets");
  if (parsed.has("tokens")) in.token_bytes = option("tokens", [&] { return token_bytes(parsed.get("tokens", "")); });
  const auto importer = make_importer(in);
  log::info(cat("packing ", importer->rows(), " rows: ", importer->describe()));
  return report_of(world, options, pack(world, *importer, options));
}

}  // namespace millrace::app
