#include "app/commands.hpp"
#include "millrace/config/arguments.hpp"
#include "millrace/train/commands.hpp"

namespace millrace::app {

std::string plan_help() {
  return "usage: millrace plan -c FILE [-c FILE...] [--section.key VALUE...]\n\n" + flags_help({config_flag()}) +
         "\nPrints the resolved configuration, the network layer by layer, the memory plan, the gradient buckets and "
         "the\n"
         "steps per epoch. Trains nothing. Keys of checkpoint and log are printed, but have no other effect.\n\n" +
         keys_help({"checkpoint", "log", "account"});
}

Exit plan_command(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, {config_flag()}, true);
  reject_positional(parsed);
  const RunConfig config = load_config(world, parsed);
  print(world, config.text + "\n" + describe_plan(world, config));
  return Exit::ok;
}

}  // namespace millrace::app
