#include "arguments.hpp"
#include "millrace/train/commands.hpp"

namespace millrace::app {
namespace {

const std::vector<Flag>& flags() {
  static const std::vector<Flag> table = {
      config_flag(),
      {.name = "checkpoint",
       .value = "file",
       .help = "checkpoint to evaluate",
       .preset = "the newest whole one of run.dir"},
  };
  return table;
}

}  // namespace

std::string eval_help() {
  return "usage: millrace eval -c FILE [--checkpoint FILE] [--section.key VALUE...]\n\n" + flags_help(flags()) +
         "\nPrints loss, top-1 and top-5 on data.valid; every sample counts once. Keys: millrace train --help\n";
}

Exit eval_command(World& world, const Arguments& arguments) {
  const Parsed parsed = parse_arguments(arguments, flags(), true);
  refuse_rest(parsed);
  return evaluate(world, load_config(world, parsed), parsed.get("checkpoint", ""));
}

}  // namespace millrace::app
