#include "app/commands.hpp"
#include "millrace/advisor/trials/diagnosis.hpp"
#include "millrace/advisor/trials/measure.hpp"
#include "millrace/config/flag_values.hpp"

namespace millrace::app {
namespace {

std::vector<Flag> diagnose_flags() {
  return {config_flag(),
          {"seconds", "S", "duration of each measurement, of which there are about 10 to 40", Flag::Arity::one, "1"},
          budget_flag("no trial starts after this time")};
}

}  // namespace

std::string diagnose_help() {
  return "usage: millrace diagnose -c FILE [-c FILE...] [--section.key VALUE...]\n\n" + flags_help(diagnose_flags()) +
         "\nMeasures what limits the speed of the configured training, by steps without one of their parts. Then "
         "tries\n"
         "changes of single keys, each against the unchanged configuration, and prints which change helps most.\n"
         "Trains nothing and writes nothing. Start it like the training: same ranks, same machine.\n\n" +
         keys_help({"checkpoint", "log", "account"});
}

Exit diagnose_command(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, diagnose_flags(), true);
  reject_positional(parsed);
  const double seconds = flag_number(parsed, "seconds", 1.0, between(0.05, 60));
  const RunConfig config = load_config(world, parsed);
  const DiagnosisResult found = diagnose(world, parsed, config, {seconds, budget_of(parsed)});
  print(world, verdict(found.metrics, found.trials) + found.parts);
  return Exit::ok;
}

}  // namespace millrace::app
