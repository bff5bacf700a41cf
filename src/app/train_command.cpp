#include "app/commands.hpp"
#include "millrace/advisor/trials/diagnosis.hpp"
#include "millrace/system/signals.hpp"
#include "millrace/train/commands.hpp"
#include "millrace/train/logging/rewrite_verdict.hpp"

namespace millrace::app {
namespace {

const std::vector<Flag>& train_flags() {
  static const std::vector<Flag> table = {
      config_flag(),
      {.name = "print-config",
       .value = "",
       .help = "print the resolved configuration as a configuration file, and exit",
       .arity = Flag::Arity::nothing},
  };
  return table;
}

}  // namespace

std::string train_help() {
  return "usage: millrace train -c FILE [-c FILE...] [--section.key VALUE...]\n\n" + flags_help(train_flags()) + "\n" +
         keys_help() +
         "\nExit codes: 0 finished; 75 stopped on request with a checkpoint (USR2, TERM, a file STOP in run.dir); 2 "
         "wrong\n"
         "configuration; 3 unreadable data; 4 diverged; 5 communication failed; 1 a defect of the program, or out of\n"
         "memory.\n";
}

Exit train_command(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, train_flags(), true);
  reject_positional(parsed);
  const RunConfig config = load_config(world, parsed);
  if (parsed.has("print-config")) {
    print(world, config.text);
    return Exit::ok;
  }
  ignore_broken_pipes();
  BottleneckMetrics metrics;
  const Exit result = train(world, config, process_start(), &metrics);
  if (config.account.probe && result == Exit::ok && metrics.run.steps > 0) {
    const std::filesystem::path dir = config.run.dir;
    const DiagnosisResult found = diagnose(world, parsed, config, {}, metrics, dir / "layers.json");
    print(world, verdict(found.metrics, found.trials) + found.parts);
    std::string problem;
    if (world.rank() == 0) try {
        rewrite_verdict(dir, found.metrics, found.trials);
      } catch (const Error& e) {
        problem = e.what();
      }
    world.agree(Exit::data, problem);
  }
  return result;
}

}  // namespace millrace::app
