#include <filesystem>

#include "app/commands.hpp"
#include "millrace/base/files.hpp"
#include "millrace/config/arguments.hpp"
#include "millrace/train/commands.hpp"

namespace millrace::app {
namespace {

constexpr std::uint64_t max_gpu_file_bytes = 1 << 20;

const std::vector<Flag>& plan_flags() {
  static const std::vector<Flag> table = {
      config_flag(),
      {.name = "gpu",
       .value = "name|file",
       .help = "print the passes of a training step on this GPU instead, with bytes and predicted time: " +
               roofline::gpu_names() + ", or a file that describes one. No GPU is needed"},
      {.name = "json", .value = "", .help = "with --gpu: print JSON", .arity = Flag::Arity::nothing},
  };
  return table;
}

// Rank 0 reads the file and broadcasts it.
roofline::GpuModel gpu_of(World& world, const std::string& name) {
  if (const roofline::GpuModel* known = roofline::find_gpu(name)) return *known;
  std::string text, problem;
  if (world.rank() == 0) try {
      if (!std::filesystem::exists(name))
        fail(Exit::config, "command line: --gpu: '{}' is neither one of {} nor a file", name, roofline::gpu_names());
      text = read_file(name, max_gpu_file_bytes);
    } catch (const Error& error) {
      problem = error.what();
    }
  world.agree(Exit::config, problem);
  return roofline::parse_gpu(name, world.broadcast_string(text));
}

}  // namespace

std::string plan_help() {
  return "usage: millrace plan -c FILE [-c FILE...] [--gpu NAME|FILE [--json]] [--section.key VALUE...]\n\n" +
         flags_help(plan_flags()) +
         "\nPrints the resolved configuration, the network layer by layer, the memory plan, the gradient buckets and "
         "the\n"
         "steps per epoch. Trains nothing. Keys of checkpoint and log are printed, but have no other effect.\n\n" +
         keys_help({"checkpoint", "log", "account"});
}

Exit plan_command(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, plan_flags(), true);
  reject_positional(parsed);
  if (parsed.has("json") && !parsed.has("gpu")) fail(Exit::config, "command line: --json needs --gpu");
  if (!parsed.has("gpu")) {
    const RunConfig config = load_config(world, parsed);
    print(world, config.text + "\n" + describe_plan(world, config));
    return Exit::ok;
  }
  const roofline::GpuModel gpu = gpu_of(world, parsed.get("gpu", ""));
  print(world, describe_gpu_step(world, load_config(world, parsed), gpu, parsed.has("json")));
  return Exit::ok;
}

}  // namespace millrace::app
