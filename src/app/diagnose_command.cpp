#include "app/commands.hpp"
#include "millrace/advisor/trials/diagnosis.hpp"
#include "millrace/advisor/trials/measure.hpp"
#include "millrace/config/key_types.hpp"

namespace millrace::app {
namespace {

std::vector<Flag> flags() {
  return {config_flag(),
          {"seconds", "S", "of each measurement; there are about 10 to 40", Flag::Arity::one, "1"},
          budget_flag("no trial begins after it")};
}

}  // namespace

std::string diagnose_help() {
  return "usage: millrace diagnose -c FILE [-c FILE...] [--section.key VALUE...]\n\n" + flags_help(flags()) +
         "\nMeasures what bounds the training that the configuration describes, by leaving out one part after the "
         "other,\n"
         "then tries changes of single keys against it, each beside the configuration as it is, and prints what to\n"
         "change first. Trains nothing and writes nothing. Start it as the training: same ranks, same machine.\n\n" +
         keys_help({"checkpoint", "log", "account"});
}

Exit diagnose_command(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, flags(), true);
  reject_positional(parsed);
  const double seconds = option("seconds", [&] {
    const std::string text = parsed.get("seconds", "1");
    const double value = parse_number<double>(text);
    between(0.05, 60).check(value, text);
    return value;
  });
  const RunConfig config = load_config(world, parsed);
  const DiagnosisResult found = diagnose(world, parsed, config, {seconds, budget_of(parsed)});
  print(world, verdict(found.metrics, found.trials) + found.parts);
  return Exit::ok;
}

}  // namespace millrace::app
