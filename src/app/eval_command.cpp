#include "app/commands.hpp"
#include "millrace/base/error.hpp"
#include "millrace/config/arguments.hpp"
#include "millrace/config/options.hpp"
#include "millrace/train/commands.hpp"

namespace millrace::app {
namespace {

const std::vector<Flag>& eval_flags() {
  static const std::vector<Flag> table = {
      config_flag(),
      {.name = "checkpoint",
       .value = "newest|best|file",
       .help = "which checkpoint of the run, best by checkpoint.best, or the path of any checkpoint",
       .default_value = "newest"},
      split_flag(),
      {.name = "output",
       .value = "file",
       .help = "JSON file for the result, in place of evaluation.json in the folder of the run"},
  };
  return table;
}

}  // namespace

Flag split_flag() {
  return {.name = "split",
          .value = "train|valid|test",
          .help = "of a run with data.split or data.fold: the part, in place of files. The same as --data.eval_split"};
}

void take_split(ParsedArguments& parsed) {
  if (!parsed.has("split")) return;
  for (const Override& o : parsed.keys)
    if (o.key == "data.valid" || o.key == "data.eval_split")
      fail(Exit::config, "command line: --split and --{} both name the data. remove one of them", o.key);
  if (parsed.has("data")) fail(Exit::config, "command line: --split and --data both name the data. remove one of them");
  parsed.keys.push_back({"data.eval_split", {parsed.get("split", "")}});
}

std::string eval_help() {
  return "usage: millrace eval RUN_DIR [--checkpoint newest|best] [--section.key VALUE...]\n"
         "       millrace eval CHECKPOINT [--section.key VALUE...]\n"
         "       millrace eval -c FILE [--checkpoint newest|best|FILE] [--section.key VALUE...]\n\n" +
         flags_help(eval_flags()) +
         "\nRUN_DIR: the folder of a run. CHECKPOINT: a file step-*.h5, or one of millrace export, anywhere. It holds "
         "the\n"
         "network, the configuration, the normalisation and the classes, so that the training data is not needed; "
         "give\n"
         "--data.valid to evaluate on other files. With -c the configuration is read from FILE.\n"
         "\nPrints loss and metrics on data.valid, or on a part of data.split; every sample counts once. They are "
         "written\n"
         "to evaluation.json in the folder of the run, which millrace report shows. Keys of optim, checkpoint and\n"
         "log are accepted, because the config.cfg of a run contains them, but have no effect, except that optim.ema = "
         "0\n"
         "evaluates the weights of a run with optim.ema instead of their averages.\n\n" +
         keys_help({"optim", "checkpoint", "log", "account"});
}

CheckpointChoice take_checkpoint(ParsedArguments& parsed, const char* missing) {
  CheckpointChoice choice{"", parsed.get("checkpoint", "newest")};
  if (!parsed.positional.empty()) {
    std::string& given = parsed.positional.front();
    if (!given.ends_with(".h5") && !given.ends_with(".safetensors"))
      choice.run_dir = given;
    else if (parsed.has("checkpoint"))
      fail(Exit::config, "command line: {} and --checkpoint both name a checkpoint. remove one of them", given);
    else
      choice.which = given;
    parsed.positional.erase(parsed.positional.begin());
  } else if (choice.which == "newest" || choice.which == "best") {
    fail(Exit::config, "command line: {}", missing);
  }
  return choice;
}

Exit eval_command(World& world, const Arguments& arguments) {
  ParsedArguments parsed = parse_arguments(arguments, eval_flags(), true);
  take_split(parsed);
  const std::string output = parsed.get("output", "");
  if (parsed.has("config")) {
    reject_positional(parsed);
    const RunConfig config = load_config(world, parsed);
    return evaluate(world, config, {config.run.dir, parsed.get("checkpoint", "newest")}, output);
  }
  const CheckpointChoice choice =
      take_checkpoint(parsed, "nothing to evaluate. give the folder of a run, a checkpoint, or -c FILE");
  reject_positional(parsed);
  return evaluate(world, resolve_config({config_of_checkpoint(world, choice)}, parsed.keys), choice, output);
}

}  // namespace millrace::app
