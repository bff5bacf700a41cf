#include "app/commands.hpp"

#include <fmt/core.h>

#include <cstdio>

#include "millrace/base/version.hpp"

namespace millrace::app {

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"train", "train a network as configured, or resume a run", train_help, train_command},
      {"eval", "evaluate a checkpoint on data.valid", eval_help, eval_command},
      {"predict", "write the predictions of a checkpoint for any data", predict_help, predict_command},
      {"generate", "continue a text with a trained language model", generate_help, generate_command},
      {"export", "write the weights of a checkpoint for PyTorch", export_help, export_command},
      {"pack", "convert other formats to HDF5 shards", pack_help, pack_command},
      {"inspect", "describe a data set, a checkpoint or this machine", inspect_help, inspect_command},
      {"plan", "describe what a configuration does, without training", plan_help, plan_command},
      {"diagnose", "measure what limits the speed of a training, and which changes help", diagnose_help,
       diagnose_command},
      {"tune", "search for faster values of keys, or for a learning rate, by short trials", tune_help, tune_command},
      {"job", "write a job script for Slurm that trains a configuration", job_help, job_command, true},
      {"scaling", "predict how a finished run would scale to more ranks", scaling_help, scaling_command},
      {"top", "watch running trainings in a terminal", top_help, top_command, true},
      {"report", "show one or more runs as a page for a browser", report_help, report_command, true},
      {"bench", "benchmarks of the loader, the all-reduce and the training step", bench_help, bench_command},
  };
  return table;
}

std::string version_text() { return fmt::format("millrace {}", version); }

void print(World& world, const std::string& text) {
  if (world.rank() != 0) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace millrace::app
