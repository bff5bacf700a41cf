#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "app/commands.hpp"
#include "app/job_texts.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/units.hpp"
#include "millrace/config/flag_values.hpp"

namespace millrace::app {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view beginning = "#!/bin/bash\n# written by millrace job\n";
const Choices<bool> launchers{{"srun", false}, {"mpirun", true}};

std::vector<Flag> job_flags() {
  using enum Flag::Arity;
  const std::string job = "resources", site = "cluster";
  return {
      config_flag(),
      {"out", "file", "file for the script", one, "standard output"},
      {"overwrite", "", "replace an existing script that this command wrote", nothing},
      {"nodes", "N", "nodes", one, "1", job},
      {"time", "duration", "time limit of the job; the run stops before it and is requeued", one, "2h", job},
      {"gpus-per-node", "N", "GPUs of each node; each gets a rank", one, "0", job},
      {"tasks-per-node", "N", "ranks of each node", one, "gpus-per-node, else 1", job},
      {"cpus-per-task", "N", "cores of each rank", one, "4", job},
      {"mem", "size", "memory of each node, as Slurm writes it: 64G", one, "all of it with several nodes", job},
      {"partition", "name", "partition", one, "", site},
      {"account", "name", "account", one, "", site},
      {"qos", "name", "quality of service", one, "", site},
      {"module", "names", "modules that the script loads", many, "", site},
      {"launcher", "srun|mpirun", "mpirun for clusters whose srun lacks PMIx", one, "srun", site},
  };
}

// A word that is safe in an #SBATCH line and in a command.
std::string word(const char* flag, const std::string& text) {
  const bool good = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || std::string_view("._,+:/@%=-").find(char(c)) != std::string_view::npos;
  });
  if (!good) fail(Exit::config, "command line: --{}: '{}' is not a plain word", flag, text);
  return text;
}

std::string quoted(const std::string& text) {  // for the shell
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string slurm_time(double seconds) {  // rounded up to minutes, as Slurm counts them
  const long minutes = std::lround(std::ceil(seconds / 60));
  return fmt::format("{}-{:02}:{:02}:00", minutes / 1440, minutes / 60 % 24, minutes % 60);
}

struct Job {
  int nodes = 1, gpus = 0, tasks = 1, cpus = 4;
  double seconds = 0;
  double margin = 0;  // between the signal and the time limit
  bool mpirun = false;
};

Job job_of(const ParsedArguments& parsed, const RunConfig& config) {
  Job job;
  job.nodes = flag_number(parsed, "nodes", 1, between(1, 100000));
  job.gpus = flag_number(parsed, "gpus-per-node", 0, between(0, 64));
  job.tasks = flag_number(parsed, "tasks-per-node", std::max(1, job.gpus), between(1, 4096));
  job.cpus = flag_number(parsed, "cpus-per-task", 4, between(1, 4096));
  job.mpirun = flag_choice(parsed, "launcher", launchers);
  job.seconds = option("time", [&] { return parse_seconds(parsed.get("time", "2h")); });
  job.margin = std::ceil(config.run.stop_margin) + 60;
  if (job.seconds < 2 * job.margin)
    fail(Exit::config, "command line: --time: {} is too short (the run stops {} before the end). raise it",
         parsed.get("time", "2h"), format_seconds(job.margin));
  const DeviceChoice device = config.run.device;
  if (job.gpus > 0 && device == DeviceChoice::cpu)
    fail(Exit::config, "--gpus-per-node: run.device = cpu uses no GPU. leave one of them out");
  if (job.gpus == 0 && device == DeviceChoice::cuda)
    fail(Exit::config, "run.device = cuda needs GPUs. add --gpus-per-node N");
  if (job.gpus > 0 && job.tasks > job.gpus)
    fail(Exit::config, "--tasks-per-node: {} ranks for {} GPUs. start one rank for each GPU", job.tasks, job.gpus);
  if (const std::int64_t ranks = std::int64_t(job.nodes) * job.tasks; config.train.global_batch < ranks)
    fail(Exit::config,
         "train.global_batch: {} samples for {} ranks leave some without work. raise it, or lower --nodes",
         config.train.global_batch, ranks);
  return job;
}

std::string sbatch_lines(const ParsedArguments& parsed, const RunConfig& config, const Job& job) {
  std::string name = fs::path(config.run.dir).lexically_normal().filename().string();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '.'; }, '_');
  const std::string folder = fs::current_path().string();
  if (folder.find_first_of("\"\\\n") != std::string::npos)
    fail(Exit::config, "#SBATCH --chdir cannot name this folder ({}). start in another one", folder);
  std::string out = fmt::format(
      "#SBATCH -J {}\n#SBATCH -o %x-%j.out --open-mode=append\n#SBATCH --chdir=\"{}\"\n"
      "#SBATCH --requeue --signal={}USR2@{:.0f}\n#SBATCH -N {} --ntasks-per-node={} --cpus-per-task={}\n#SBATCH -t "
      "{}\n",
      name, folder, job.mpirun ? "B:" : "", job.margin, job.nodes, job.tasks, job.cpus, slurm_time(job.seconds));
  if (job.gpus > 0) out += fmt::format("#SBATCH --gpus-per-node={}\n", job.gpus);
  if (job.nodes > 1) out += "#SBATCH --exclusive\n";
  if (parsed.has("mem") || job.nodes > 1) out += fmt::format("#SBATCH --mem={}\n", word("mem", parsed.get("mem", "0")));
  for (const char* flag : {"partition", "account", "qos"})
    if (parsed.has(flag)) out += fmt::format("#SBATCH --{}={}\n", flag, word(flag, parsed.get(flag, "")));
  return out;
}

// The line that trains: the configuration files by their full paths, then the keys of the command line.
std::string train_line(const ParsedArguments& parsed, const Job& job) {
  std::string out = job.mpirun ? "train with_mpirun" : "train with_srun";
  for (const std::string& file : parsed.list("config")) out += " -c " + quoted(fs::absolute(file).string());
  for (const Override& key : parsed.keys) {
    out += " --" + key.key;
    for (const std::string& each : key.words) out += " " + quoted(each);
  }
  return out;
}

std::string script_of(const ParsedArguments& parsed, const RunConfig& config) {
  const Job job = job_of(parsed, config);
  std::string modules;
  for (const std::string& name : parsed.list("module")) modules += " " + word("module", name);
  std::error_code none;
  const std::string program = fs::read_symlink("/proc/self/exe", none).string();
  return std::string(beginning) +
         "# Trains, stops before the time limit with a checkpoint, and puts itself back into the queue.\n" +
         sbatch_lines(parsed, config, job) + "set -euo pipefail\n" + job_site_text +
         (modules.empty() ? "" : "module load" + modules + "\n") + "\nMILLRACE=${MILLRACE:-" + quoted(program) + "}\n" +
         job_common_text + "\n" + train_line(parsed, job) + "\nrequeue_or_exit\n";
}

}  // namespace

std::string job_help() {
  return "usage: millrace job -c FILE [--nodes N] [--time 8h] [--out FILE] [--section.key VALUE...]\n\n" +
         flags_help(job_flags()) +
         "\nWrites a job script for Slurm that trains this configuration: sbatch FILE. The job runs in the present "
         "folder. Keys\nare checked, and passed on to train.\n";
}

Exit job_command(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, job_flags(), true);
  reject_positional(parsed);
  const std::string script = script_of(parsed, load_config(world, parsed));
  if (!parsed.has("out")) {
    print(world, script);
    return Exit::ok;
  }
  const fs::path out = parsed.get("out", "");
  std::error_code none;
  require_own_file(out, beginning);
  if (!parsed.has("overwrite") && fs::exists(out, none))
    fail(Exit::data, "{} exists already. --overwrite replaces it", out.string());
  write_file_atomically(out, script);
  print(world, fmt::format("{}\nnext: sbatch {}\n", out.string(), out.string()));
  return Exit::ok;
}

}  // namespace millrace::app
