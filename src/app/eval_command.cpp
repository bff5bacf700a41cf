#include <filesystem>

#include "app/commands.hpp"
#include "millrace/config/arguments.hpp"
#include "millrace/train/commands.hpp"

namespace millrace::app {
namespace {

const std::vector<Flag>& flags() {
  static const std::vector<Flag> table = {
      config_flag(),
      {.name = "checkpoint",
       .value = "file",
       .help = "checkpoint to evaluate",
       .default_value = "the newest complete one of run.dir"},
  };
  return table;
}

}  // namespace

std::string eval_help() {
  return "usage: millrace eval -c FILE [--checkpoint FILE] [--section.key VALUE...]\n"
         "       millrace eval RUN_DIR [--checkpoint FILE] [--section.key VALUE...]\n\n" +
         flags_help(flags()) +
         "\nRUN_DIR: the folder of a run. Its config.cfg is used, with run.dir set to this folder.\n"
         "\nPrints loss, top-1 and top-5 accuracy on data.valid; every sample counts once. Keys of optim, checkpoint "
         "and\n"
         "log are accepted, because the config.cfg of a run contains them, but have no effect.\n\n" +
         keys_help({"optim", "checkpoint", "log", "account"});
}

Exit eval_command(World& world, const Arguments& arguments) {
  ParsedArguments parsed = parse_arguments(arguments, flags(), true);
  if (parsed.positional.size() == 1 && !parsed.has("config")) {
    const std::string folder = parsed.positional.front();
    parsed.flags["config"] = {(std::filesystem::path(folder) / "config.cfg").string()};
    parsed.keys.push_back({"run.dir", {folder}});
    parsed.positional.clear();
  }
  reject_positional(parsed);
  return evaluate(world, load_config(world, parsed), parsed.get("checkpoint", ""));
}

}  // namespace millrace::app
