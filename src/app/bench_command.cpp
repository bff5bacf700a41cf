#include <fmt/core.h>

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

// Adds the keys of a benchmark's default case that the command line does not give.
void add_defaults(ParsedArguments& parsed, std::vector<Override> overrides) {
  for (Override& o : overrides)
    if (std::none_of(parsed.keys.begin(), parsed.keys.end(), [&](const Override& given) { return given.key == o.key; }))
      parsed.keys.push_back(std::move(o));
}

int repeats_of(const ParsedArguments& parsed) {
  return std::max(1, option("repeats", [&] { return parse_number<int>(parsed.get("repeats", "15")); }));
}

// Without a configuration: ResNet-18 with the 3x3 stem on synthetic 32x32 images, 64 rows per rank.
Exit step_bench(World& world, const Arguments& arguments) {
  ParsedArguments parsed = parse_arguments(arguments, step_flags(), true);
  reject_positional(parsed);
  if (!parsed.has("config"))
    add_defaults(parsed, {{"data.train", {"synthetic:images:rows=8192,shape=32x32x3,classes=10"}},
                          {"model.name", {"resnet"}},
                          {"model.depth", {"18"}},
                          {"train.global_batch", {std::to_string(64 * world.size())}}});
  const RunConfig config = parsed.has("config") ? load_config(world, parsed) : resolve_config({}, parsed.keys);
  print(world, bench_step(world, config, repeats_of(parsed)).str());
  return Exit::ok;
}

// ResNet-50 on 224x224 images in fp16 on GPUs: peak rates, each operation compared with its roofline, the whole step.
Exit gpu_bench(World& world, const Arguments& arguments) {
  const ParsedArguments given = parse_arguments(arguments, gpu_flags(), true);
  reject_positional(given);
  for (const int batch : {256, 512}) {
    ParsedArguments parsed = given;
    add_defaults(parsed, {{"run.device", {"cuda"}},
                          {"run.precision", {"fp16"}},
                          {"run.deterministic", {"off"}},  // allows all kernels
                          {"data.train", {"synthetic:images:rows=65536,shape=224x224x3,classes=1000"}},
                          {"model.name", {"resnet"}},
                          {"model.depth", {"50"}},
                          {"train.global_batch", {std::to_string(batch * world.size())}}});
    const int repeats = repeats_of(parsed);
    const StepBench bench = bench_step(world, resolve_config({}, parsed.keys), repeats);
    print(world, fmt::format("ResNet-50, batch {} a rank, {} images/s\n{}\n", batch,
                             std::llround(batch * world.size() / bench.full_step_seconds), bench.str(true)));
  }
  return Exit::ok;
}

Exit comm_bench(World& world, const Arguments& arguments) {
  ParsedArguments parsed = parse_arguments(arguments, comm_flags(), true);
  reject_positional(parsed);
  add_defaults(parsed, {{"run.device", {"cpu"}}});
  ExecutionContext compute = make_execution_context(world, resolve_config({}, parsed.keys));
  Device* const gpu = compute.device->shares_host_memory() ? nullptr : compute.device.get();
  const auto rates = bench_all_reduce(world, *compute.collective, {64u << 10, 1u << 20, 16u << 20, 45u << 20},
                                      repeats_of(parsed), true, gpu);
  print(world, compute.collective->describe() + "\n" + str(rates));
  return Exit::ok;
}

const Bench benches[] = {
    {"comm", "all-reduces of several sizes, compared with MPI_Allreduce; on the CPU unless run.device is given",
     comm_flags, comm_bench},
    {"gpu", "a ResNet-50 step on GPUs in fp16 with batches of 256 and 512, compared with its rooflines", gpu_flags,
     gpu_bench},
    {"loader",
     "with -c: the data pipeline of the configuration, stage by stage; without -c: each reader on random samples, from "
     "the page cache and from the disk, compared with baseline loops",
     loader_flags, loader_bench},
    {"storage",
     "the loader feeds emulated accelerators with published workloads (MLPerf Storage). Results are unofficial",
     storage_flags, storage_bench},
    {"step", "a training step, compared with the sum of its operations; without -c: ResNet-18 on synthetic images",
     step_flags, step_bench},
};

}  // namespace

std::string bench_help() {
  std::string out = "usage: millrace bench NAME [options]\n\n";
  for (const Bench& bench : benches)
    out += fmt::format("{}: {}\n{}\n", bench.name, bench.summary, flags_help(bench.flags()));
  return out + "bench comm, step, gpu and loader also accept keys. Keys of checkpoint and log have no effect.\n\n" +
         keys_help({"checkpoint", "log", "account"});
}

Exit bench_command(World& world, const Arguments& arguments) {
  std::string names;
  for (const Bench& bench : benches) {
    if (!arguments.empty() && arguments.front() == bench.name)
      return bench.run(world, Arguments(arguments.begin() + 1, arguments.end()));
    names += (names.empty() ? "" : ", ") + std::string(bench.name);
  }
  fail(Exit::config, "command line: {}. one of {}",
       arguments.empty() ? "no benchmark is named" : "unknown benchmark '" + arguments.front() + "'", names);
}

}  // namespace millrace::app
