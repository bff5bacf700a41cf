#include <algorithm>

#include "app/commands.hpp"
#include "millrace/base/error.hpp"
#include "millrace/config/flag_values.hpp"
#include "millrace/config/options.hpp"
#include "millrace/train/commands.hpp"

namespace millrace::app {
namespace {

const Choices<PredictOptions::Probabilities>& probabilities_choices() {
  using enum PredictOptions::Probabilities;
  static const Choices<PredictOptions::Probabilities> table = {{"auto", automatic}, {"on", on}, {"off", off}};
  return table;
}

const std::vector<Flag>& predict_flags() {
  static const std::vector<Flag> table = {
      {.name = "checkpoint",
       .value = "newest|best|file",
       .help = "which checkpoint of the run, best by checkpoint.best, or the path of any checkpoint",
       .default_value = "newest"},
      {.name = "data",
       .value = "files",
       .help = "HDF5 files or globs with the samples; labels are not needed. The same as --data.valid",
       .arity = Flag::Arity::many},
      split_flag(),
      {.name = "output",
       .value = "file",
       .help = "what is written: HDF5, or a table if the name ends in .csv",
       .default_value = PredictOptions{}.output},
      {.name = "overwrite",
       .value = "",
       .help = "replace the file of an earlier prediction",
       .arity = Flag::Arity::nothing},
      {.name = "top-k", .value = "number", .help = "of classes: only this many most probable ones of each sample"},
      {.name = "probabilities",
       .value = list_words(probabilities_choices()),
       .help = "auto: of classes, but not of label maps",
       .default_value = "auto"},
      {.name = "features",
       .value = "layer",
       .help = "write the results of this layer in place of predictions; its name as millrace inspect CHECKPOINT "
               "prints it"},
  };
  return table;
}

PredictOptions predict_options(const ParsedArguments& parsed) {
  PredictOptions out;
  out.output = parsed.get("output", out.output);
  out.overwrite = parsed.has("overwrite");
  out.top_k = flag_number<std::int64_t>(parsed, "top-k", 0, at_least(1));
  out.features = parsed.get("features", "");
  out.probabilities = flag_choice(parsed, "probabilities", probabilities_choices());
  return out;
}

// The keys of the command line, with the files of --data.
std::vector<Override> keys_with_data(const ParsedArguments& parsed) {
  std::vector<Override> keys = parsed.keys;
  const bool by_key = std::ranges::any_of(keys, [](const Override& o) { return o.key == "data.valid"; });
  if (by_key && parsed.has("data"))
    fail(Exit::config, "command line: --data and --data.valid name the same files. remove one of them");
  if (!by_key && !parsed.has("data") && !parsed.has("split"))
    fail(Exit::config,
         "command line: no data. name the files of the samples with --data, or a part of data.split with --split");
  if (parsed.has("data")) keys.push_back({"data.valid", parsed.list("data")});
  return keys;
}

}  // namespace

std::string predict_help() {
  return "usage: millrace predict RUN_DIR|CHECKPOINT --data FILES...|--split PART [--output FILE] [options] "
         "[--section.key VALUE...]\n\n" +
         flags_help(predict_flags()) +
         "\nWrites what the network of a checkpoint makes of each sample, in the order of the data, on any number of "
         "ranks.\n"
         "The checkpoint holds the network, the normalisation and the classes. Data sets of the file, with a row for "
         "each\n"
         "sample:\n"
         "  classes      prediction, probabilities; with --top-k: top_classes, top_probabilities\n"
         "  label maps   mask; with --probabilities on: probabilities\n"
         "  regression   prediction, in the unit of the data\n"
         "  --features   features\n"
         "Several losses: a group of these for each, with its name. Keys such as run.device, run.precision and\n"
         "train.micro_batch are accepted, but those of optim and checkpoint have no effect.\n\n" +
         keys_help({"optim", "checkpoint", "log", "account"});
}

Exit predict_command(World& world, const Arguments& arguments) {
  ParsedArguments parsed = parse_arguments(arguments, predict_flags(), true);
  const CheckpointChoice choice =
      take_checkpoint(parsed, "nothing to predict with. give the folder of a run or a checkpoint");
  reject_positional(parsed);
  const PredictOptions options = predict_options(parsed);
  take_split(parsed);
  const std::vector<Override> keys = keys_with_data(parsed);
  return predict(world, resolve_config({config_of_checkpoint(world, choice)}, keys), choice, options);
}

}  // namespace millrace::app
