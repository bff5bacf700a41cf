#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "app/commands.hpp"
#include "app/tokenizer_flags.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/config/flag_values.hpp"
#include "millrace/data/pack/importer.hpp"
#include "millrace/data/pack/pack.hpp"
#include "millrace/data/pack/tokenized_text.hpp"
#include "millrace/data/scan/survey.hpp"

namespace millrace::app {
namespace {

using Arity = Flag::Arity;

std::vector<Flag> input_flags() {
  const char* group = "what is read";
  return {
      {.name = "x",
       .value = "files",
       .help = "samples: MNIST idx(.gz), CIFAR-10 binary, NumPy .npy or .npz, HDF5, .csv, tokens, or a folder with a "
               "folder of images for each class; globs are expanded",
       .arity = Arity::many,
       .group = group},
      {.name = "y",
       .value = "files",
       .help = "labels or targets, as many files as --x; not given if the files of --x contain them (HDF5, .npz, "
               ".csv, CIFAR-10, images, tokens)",
       .arity = Arity::many,
       .group = group},
      {.name = "x-name",
       .value = "name",
       .help = "HDF5 and .npz: name of the data set of samples",
       .default_value = "x",
       .group = group},
      {.name = "y-name",
       .value = "name",
       .help = "HDF5 and .npz: name of the data set of labels; .csv: their column, by name or by number from 1",
       .default_value = "y",
       .group = group},
      {.name = "targets",
       .value = "",
       .help = ".csv: whole numbers in the column of --y-name, or in --y, are regression targets, not labels",
       .arity = Arity::nothing,
       .group = group},
      {.name = "layout",
       .value = "auto|channels_last|channels_first|no_channels",
       .help = "position of the channels in a sample; auto: the input's attribute, else guessed from the shape. 1-D "
               "signals need this option or the attribute",
       .default_value = "auto",
       .group = group}};
}

std::vector<Flag> image_flags() {
  const char* group = "folders of images";
  return {
      {.name = "resize",
       .value = "pixels",
       .help = "length of the short side of every image; without it, all images must have one size",
       .group = group},
      {.name = "crop",
       .value = "pixels",
       .help = "side of a square that is cut from the centre",
       .default_value = "as --resize",
       .group = group},
      {.name = "encoded",
       .value = "",
       .help = "store the JPEG and PNG files as they are. Shards are smaller, but every epoch decodes the images to "
               "data.resize and data.crop",
       .arity = Arity::nothing,
       .group = group},
      {.name = "grey", .value = "", .help = "one channel instead of three", .arity = Arity::nothing, .group = group},
      {.name = "upright",
       .value = "",
       .help = "apply the EXIF orientation of JPEG images",
       .arity = Arity::nothing,
       .group = group}};
}

std::vector<Flag> token_flags() {
  const char* group = "tokens and text";
  return {{.name = "tokens",
           .value = "uint8|uint16|uint32",
           .help = "--x are raw tokens of this type, little-endian; uint8: the bytes of a text",
           .group = group},
          {.name = "context",
           .value = "number",
           .help = "tokens of a sample. A window holds one token more, which is also the first of the next window",
           .group = group}};
}

std::vector<Flag> shard_flags() {
  const char* group = "what is written";
  return {{.name = "out", .value = "folder", .help = "folder of the shards; created if it is absent", .group = group},
          {.name = "prefix",
           .value = "name",
           .help = "shards are called <name>-00000.h5 and so on",
           .default_value = "train",
           .group = group},
          {.name = "shard-size",
           .value = "size",
           .help = "largest size of a shard",
           .default_value = "1GiB",
           .group = group},
          {.name = "codec",
           .value = "none|zstd|lz4",
           .help = "compress the samples; the loader threads decode them. none reads fastest if disk and memory are "
                   "large enough",
           .default_value = "none",
           .group = group},
          {.name = "level",
           .value = "number",
           .help = "level of --codec: zstd 1 to 19 (usually 3), lz4 0 to 12 (usually 0)",
           .group = group},
          {.name = "chunk-rows",
           .value = "number",
           .help = "with --codec: samples that are compressed and decoded together; unset: one, or as many as fit in "
                   "16 KiB",
           .group = group},
          {.name = "overwrite",
           .value = "",
           .help = "replace existing shards of this name",
           .arity = Arity::nothing,
           .group = group},
          {.name = "transform",
           .value = "none|log1p",
           .help = "measure mean and standard deviation of the transformed values, for a training with this "
                   "data.transform; the values are stored untransformed",
           .default_value = "none",
           .group = group},
          {.name = "ignore-label",
           .value = "number",
           .help = "label that does not count, 255 in many label maps; stored as the attribute ignore_label",
           .group = group}};
}

std::vector<Flag> order_flags() {
  const char* group = "order and split of the rows";
  return {{.name = "seed",
           .value = "number",
           .help = "seed of the shuffle and the split",
           .default_value = "1",
           .group = group},
          {.name = "no-shuffle",
           .value = "",
           .help = "keep the order of the input",
           .arity = Arity::nothing,
           .group = group},
          {.name = "valid-fraction",
           .value = "number",
           .help = "fraction of the rows that goes to shards called valid-00000.h5 and so on",
           .default_value = "0",
           .group = group}};
}

const std::vector<Flag>& pack_flags() {
  static const std::vector<Flag> table = [] {
    std::vector<Flag> all;
    for (const auto& group : {input_flags(), image_flags(), token_flags(), text_flags(), shard_flags(), order_flags()})
      all.insert(all.end(), group.begin(), group.end());
    return all;
  }();
  return table;
}

std::vector<std::string> expanded(const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  for (const auto& pattern : patterns) {
    const auto found = expand_glob(pattern);
    if (found.empty()) fail(Exit::data, "no file is called {}. check the path", pattern);
    paths.insert(paths.end(), found.begin(), found.end());
  }
  return paths;
}

// A number of at least 1; 0 if the flag is not given.
std::int64_t count_of(const ParsedArguments& parsed, const char* name) {
  return flag_number<std::int64_t>(parsed, name, 0, at_least(1));
}

PackOptions pack_options(const ParsedArguments& parsed) {
  PackOptions out;
  out.out = parsed.get("out", "");
  out.prefix = parsed.get("prefix", "train");
  out.shard_bytes = option("shard-size", [&] { return parse_bytes(parsed.get("shard-size", "1GiB")); });
  out.seed = flag_number<std::uint64_t>(parsed, "seed", 1, at_least(0));
  out.shuffle = !parsed.has("no-shuffle");
  out.valid_fraction = flag_number(parsed, "valid-fraction", 0.0, fraction());
  out.overwrite = parsed.has("overwrite");
  out.transform =
      flag_choice(parsed, "transform", Choices<Transform>{{"none", Transform::none}, {"log1p", Transform::log1p}});
  out.ignore_label = flag_number<std::int64_t>(parsed, "ignore-label", -1, at_least(0));
  const std::string codec = parsed.get("codec", "none");
  if (codec != "none") {
    std::optional<int> level;
    if (parsed.has("level")) level = option("level", [&] { return parse_number<int>(parsed.get("level", "")); });
    out.codec = option("codec", [&] { return io::make_encoder(codec, level); });
    out.chunk_rows = count_of(parsed, "chunk-rows");
  } else if (parsed.has("level") || parsed.has("chunk-rows")) {
    fail(Exit::config, "command line: --level and --chunk-rows do nothing without --codec");
  }
  if (out.out.empty()) fail(Exit::config, "command line: --out is missing. name the folder for the shards");
  if (out.shard_bytes == 0) fail(Exit::config, "command line: --shard-size: a shard must have room for a row");
  return out;
}

// Encoded images take the folder only; all other options of the input are refused.
PackReport pack_images_encoded(World& world, const ParsedArguments& parsed, const PackOptions& options) {
  const auto folder = expanded(parsed.list("x"));
  for (const char* other : {"y", "targets", "layout", "resize", "crop", "grey", "upright", "tokens", "tokenizer",
                            "context", "codec", "level", "chunk-rows", "transform", "ignore-label"})
    if (parsed.has(other)) fail(Exit::config, "command line: --encoded stores images as they are. remove --{}", other);
  std::error_code none;
  if (folder.size() != 1 || !std::filesystem::is_directory(folder[0], none))
    fail(Exit::config, "command line: --encoded takes one folder of images by class. give --x FOLDER");
  return pack_encoded(world, folder[0], options);
}

Exit report_of(World& world, const PackOptions& options, const PackReport& report) {
  const auto own = world.gather(fmt::format("  rank {} @ {}: wrote {} ({} bytes)\n", world.rank(), world.host(),
                                            format_bytes(report.own_bytes), report.own_bytes));
  std::string out = fmt::format("{} rows{}, {} shards, {} in {} ({} MB/s)\n{}{}\n", report.rows,
                                report.valid_rows > 0 ? fmt::format(" and {} for validation", report.valid_rows) : "",
                                report.files.size(), format_bytes(report.bytes), format_seconds(report.seconds),
                                std::int64_t(double(report.bytes) / 1e6 / std::max(report.seconds, 1e-9)),
                                options.codec ? options.codec->filter.name + ": " : "MPI-IO: ", report.io_mode);
  if (options.codec)
    out += fmt::format("{} of rows became {}, {:g} %\n", format_bytes(report.row_bytes), format_bytes(report.bytes),
                       double(std::llround(1000.0 * double(report.bytes) / double(report.row_bytes))) / 10);
  for (const auto& line : own) out += line;
  for (const auto& file : report.files) out += "  " + file + "\n";
  print(world, out);
  for (const std::string& concern : target_concerns(world, report.files)) log::warn(concern);
  return Exit::ok;
}

ImportOptions import_options(const ParsedArguments& parsed) {
  ImportOptions in;
  in.x = expanded(parsed.list("x"));
  in.y = expanded(parsed.list("y"));
  in.x_name = parsed.get("x-name", "x");
  in.y_name = parsed.get("y-name", "y");
  in.layout = option("layout", [&] { return parse_layout(parsed.get("layout", "auto")); });
  in.resize = count_of(parsed, "resize");
  in.crop = count_of(parsed, "crop");
  in.context = count_of(parsed, "context");
  in.apply_exif_orientation = parsed.has("upright");
  in.grey = parsed.has("grey");
  in.targets = parsed.has("targets");
  if (parsed.has("tokens"))
    in.token_bytes = flag_choice(parsed, "tokens", Choices<std::int64_t>{{"uint8", 1}, {"uint16", 2}, {"uint32", 4}});
  return in;
}

}  // namespace

std::string pack_help() {
  return "usage: millrace pack --x FILES --y FILES --out FOLDER [options]\n\n" + flags_help(pack_flags()) +
         "\nSizes: 64MiB, 512k. All ranks write, each its part of every shard. Under mpirun: mpirun -n 4 millrace "
         "pack ...\n";
}

Exit pack_command(World& world, const Arguments& arguments) try {
  const ParsedArguments parsed = parse_arguments(arguments, pack_flags(), false);
  reject_positional(parsed);
  const PackOptions options = pack_options(parsed);
  require_text_flags(parsed);
  if (!parsed.has("x")) fail(Exit::config, "command line: --x is missing. name the files of the samples");
  if (parsed.has("encoded")) return report_of(world, options, pack_images_encoded(world, parsed, options));
  ImportOptions input = import_options(parsed);
  std::optional<TokenizedText> text;
  if (parsed.has("tokenizer")) {
    const Tokenizer tokenizer = tokenizer_of(parsed);
    text.emplace(world, tokenizer, input.x, parsed.has("end-of-text"), options);
    input.x = text->files();
    input.token_bytes = text->token_bytes();
    input.vocabulary = tokenizer.size();
    input.tokenizer = tokenizer.to_json();
  }
  const auto importer = make_importer(input);
  log::info(fmt::format("packing {} rows: {}", importer->rows(), importer->describe()));
  return report_of(world, options, pack(world, *importer, options));
} catch (const Error&) {
  throw;  // without a handler the stack would not be unwound, and incomplete shards would stay
}

}  // namespace millrace::app
