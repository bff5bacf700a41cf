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
       .default_value = "the newest whole one of run.dir"},
  };
  return table;
}

}  // namespace

std::string eval_help() {
  return "usage: millrace eval -c FILE [--checkpoint FILE] [--section.key VALUE...]\n"
         "       millrace eval RUN_DIR [--checkpoint FILE] [--section.key VALUE...]\n\n" +
         flags_help(flags()) +
         "\nRUN_DIR: a run's folder, for its config.cfg with run.dir set to it.\n"
         "\nPrints loss, top-1 and top-5 on data.valid; every sample counts once. Keys of optim, checkpoint and log "
         "are\n"
         "accepted, as a run's config.cfg holds them, and change nothing.\n\n" +
         keys_help({"optim", "checkpoint", "log", "account"});
}

Exit eval_command(World& world, const Arguments& arguments) {
  ParsedArguments parsed = parse_arguments(arguments, flags(), true);
  if (parsed.positional.size() == 1 && !parsed.has("config")) {  // a run's folder
    const std::string folder = parsed.positional.front();
    parsed.flags["config"] = {(std::filesystem::path(folder) / "config.cfg").string()};
    parsed.keys.push_back({"run.dir", {folder}});
    parsed.positional.clear();
  }
  reject_positional(parsed);
  return evaluate(world, load_config(world, parsed), parsed.get("checkpoint", ""));
}

}  // namespace millrace::app
