#include <algorithm>
#include <cmath>

#include "app/benches.hpp"
#include "app/commands.hpp"
#include "millrace/base/units.hpp"
#include "millrace/bench/collective.hpp"
#include "millrace/bench/step.hpp"
#include "millrace/config/key_types.hpp"
#include "millrace/train/session/make_compute.hpp"

namespace millrace::app {
namespace {

struct Bench {
  const char* name;
  const char* summary;
  std::vector<Flag> (*flags)();
  Exit (*run)(World&, const Arguments&);
};

std::vector<Flag> comm_flags() { return {repeats_flag()}; }
std::vector<Flag> gpu_flags() { return {repeats_flag()}; }
std::vector<Flag> step_flags() { return {config_flag(), repeats_flag()}; }
// Keys of a bench's own case, where the command line does not name them.
void default_value(ParsedArguments& parsed, std::vector<Override> overrides) {
  for (Override& o : overrides)
    if (std::none_of(parsed.keys.begin(), parsed.keys.end(), [&](const Override& given) { return given.key == o.key; }))
      parsed.keys.push_back(std::move(o));
}

// Without a configuration: ResNet-18 with the 3x3 stem on synthetic 32x32 images, 64 rows a rank.
Exit step_bench(World& world, const Arguments& arguments) {
  ParsedArguments parsed = parse_arguments(arguments, step_flags(), true);
  reject_positional(parsed);
  if (!parsed.has("config"))
    default_value(parsed, {{"data.train", {"synthetic:images:rows=8192,shape=32x32x3,classes=10"}},
                           {"model.name", {"resnet"}},
                           {"model.depth", {"18"}},
                           {"train.global_batch", {std::to_string(64 * world.size())}}});
  const RunConfig config = parsed.has("config") ? load_config(world, parsed) : resolve_config({}, parsed.keys);
  print(world, bench_step(world, config, std::max(1, parse_number<int>(parsed.get("repeats", "15")))).str());
  return Exit::ok;
}

// ResNet-50 on 224x224 images in fp16, where a GPU is: its peaks, its operations beside their rooflines, the whole
// step.
Exit gpu_bench(World& world, const Arguments& arguments) {
  const ParsedArguments given = parse_arguments(arguments, gpu_flags(), true);
  reject_positional(given);
  for (const int batch : {256, 512}) {
    ParsedArguments parsed = given;
    default_value(parsed, {{"run.device", {"cuda"}},
                           {"run.precision", {"fp16"}},
                           {"run.deterministic", {"off"}},  // all kernels may compete
                           {"data.train", {"synthetic:images:rows=65536,shape=224x224x3,classes=1000"}},
                           {"model.name", {"resnet"}},
                           {"model.depth", {"50"}},
                           {"train.global_batch", {std::to_string(batch * world.size())}}});
    const int repeats = std::max(1, parse_number<int>(parsed.get("repeats", "15")));
    const StepBench bench = bench_step(world, resolve_config({}, parsed.keys), repeats);
    print(world,
          cat("ResNet-50, batch ", batch, " a rank, ", std::llround(batch * world.size() / bench.full_step_seconds),
              " images/s\n", bench.str(true), "\n"));
  }
  return Exit::ok;
}

Exit comm_bench(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, comm_flags(), false);
  reject_positional(parsed);
  RunConfig config;
  config.run.device = DeviceChoice::cpu;
  ExecutionContext compute = make_execution_context(world, config);
  const auto rates = bench_all_reduce(world, *compute.collective, {64u << 10, 1u << 20, 16u << 20, 45u << 20},
                                      std::max(1, parse_number<int>(parsed.get("repeats", "15"))));
  print(world, compute.collective->describe() + "\n" + str(rates));
  return Exit::ok;
}

const Bench benches[] = {
    {"comm", "sums over ranks beside MPI's own, at several sizes", comm_flags, comm_bench},
    {"gpu", "ResNet-50's step on GPUs, batch 256 and 512, fp16, beside its rooflines", gpu_flags, gpu_bench},
    {"loader",
     "with -c: the configuration's data pipeline, stage by stage; without: random samples by each engine against bare "
     "loops, from the page cache and from the disk",
     loader_flags, loader_bench},
    {"storage", "emulated accelerators of published workloads (MLPerf Storage), fed by the loader; unofficial",
     storage_flags, storage_bench},
    {"step", "one training step against the sum of its operations; without -c: ResNet-18 on synthetic images",
     step_flags, step_bench},
};

}  // namespace

std::string bench_help() {
  std::string out = "usage: millrace bench NAME [options]\n\n";
  for (const Bench& bench : benches) out += cat(bench.name, ": ", bench.summary, "\n", flags_help(bench.flags()), "\n");
  return out + "bench step and bench loader take keys too. Those of checkpoint and log change nothing.\n\n" +
         keys_help({"checkpoint", "log", "account"});
}

Exit bench_command(World& world, const Arguments& arguments) {
  std::string names;
  for (const Bench& bench : benches) {
    if (!arguments.empty() && arguments.front() == bench.name)
      return bench.run(world, Arguments(arguments.begin() + 1, arguments.end()));
    names += (names.empty() ? "" : ", ") + std::string(bench.name);
  }
  fail(Exit::config, "command line: ", arguments.empty() ? "no bench named" : "'" + arguments.front() + "' is no bench",
       ". one of ", names);
}

}  // namespace millrace::app
