#include "app/commands.hpp"

#include <cstdio>

namespace millrace::app {

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"train", "train a network as a configuration says, or go on where a run stopped", train_help, train_command},
      {"eval", "evaluate a checkpoint on data.valid", eval_help, eval_command},
      {"pack", "turn other formats into HDF5 shards that read fast", pack_help, pack_command},
      {"inspect", "look at a data set, a checkpoint, or this machine", inspect_help, inspect_command},
      {"plan", "say what a configuration would do, without training", plan_help, plan_command},
      {"diagnose", "measure what bounds a configuration's training, and what to change", diagnose_help,
       diagnose_command},
      {"tune", "search the keys that speed hangs on by short trials; or the learning rate", tune_help, tune_command},
      {"predict", "how a finished run would scale to more ranks", scaling_help, scaling_command},
      {"top", "watch runs that go on, in a terminal", top_help, top_command, true},
      {"report", "show what one or more runs did, as a page for a browser", report_help, report_command, true},
      {"bench", "measure parts: the loader, the sums over ranks, the step", bench_help, bench_command},
  };
  return table;
}

std::string version_text() { return "millrace 0.1.0"; }

void print(World& world, const std::string& text) {
  if (world.rank() != 0) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace millrace::app
