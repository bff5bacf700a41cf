// The subcommands, one file each. main() looks one up in commands() and runs it on every rank.
#pragma once
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/config/arguments.hpp"
#include "millrace/train/commands.hpp"

namespace millrace::app {

struct Command {
  const char* name;
  const char* summary;  // one line
  std::string (*help)();
  Exit (*run)(World&, const Arguments&);
  bool without_mpi = false;  // runs without MPI; under mpirun, only the first process does the work
};
const std::vector<Command>& commands();

Exit train_command(World&, const Arguments&);
Exit eval_command(World&, const Arguments&);
Exit predict_command(World&, const Arguments&);
Exit generate_command(World&, const Arguments&);
Exit export_command(World&, const Arguments&);
Exit pack_command(World&, const Arguments&);
Exit inspect_command(World&, const Arguments&);
Exit plan_command(World&, const Arguments&);
Exit diagnose_command(World&, const Arguments&);
Exit tune_command(World&, const Arguments&);
Exit scaling_command(World&, const Arguments&);
Exit report_command(World&, const Arguments&);
Exit bench_command(World&, const Arguments&);
Exit job_command(World&, const Arguments&);
Exit top_command(World&, const Arguments&);
std::string train_help();
std::string eval_help();
std::string predict_help();
std::string generate_help();
std::string export_help();
std::string pack_help();
std::string inspect_help();
std::string plan_help();
std::string diagnose_help();
std::string tune_help();
std::string scaling_help();
std::string report_help();
std::string bench_help();
std::string job_help();
std::string top_help();

// The checkpoint that the first positional argument (a run folder or a file), which it removes, and --checkpoint name.
// Error(config) with the message `missing`: neither names one.
CheckpointChoice take_checkpoint(ParsedArguments&, const char* missing);

// --split of eval and predict, which stands for data.eval_split. Error(config): other keys contradict it.
Flag split_flag();
void take_split(ParsedArguments&);

std::string version_text();  // "millrace 0.1.0"
// Rank 0 writes the text to standard output and flushes it.
void print(World&, const std::string& text);

}  // namespace millrace::app
