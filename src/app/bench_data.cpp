// The subcommands `bench loader` and `bench storage`.
#include "app/benches.hpp"
#include "app/commands.hpp"
#include "millrace/base/units.hpp"
#include "millrace/bench/loader.hpp"
#include "millrace/bench/step.hpp"
#include "millrace/bench/storage.hpp"
#include "millrace/config/flag_values.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/train/session/make_compute.hpp"

namespace millrace::app {
namespace {

ExecutionContext cpu_context(World& world) {
  RunConfig config;
  config.run.device = DeviceChoice::cpu;
  return make_execution_context(world, config);
}

}  // namespace

std::vector<Flag> loader_flags() {
  using enum Flag::Arity;
  return {
      config_flag(),
      repeats_flag(),
      {"workers", "N", "number of loader threads; the baseline loops use as many", one, "2"},
      {"prefetch", "N", "micro-batches of 128 samples to read ahead, like data.prefetch", one, "16"},
      {"sample-bytes", "size", "size of a sample in the generated file", one, "3072"},
      {"data", "files", "decode the encoded images in these shards instead of reading a generated file", many},
      {"resize", "pixels", "with --data: length of the short side, like data.resize", one, "256"},
      {"crop", "pixels", "with --data: side of the central square, like data.crop", one, "224"},
      {"zoom", "fraction", "with --data: smallest area of a random crop, like data.random_resized_crop", one, "0"},
      {"waits", "",
       "measure instead how long steps of 1, 5 and 50 ms wait for data if they take 1.2 times as long as the loader",
       nothing},
      {"epoch", "N",
       "measure instead an epoch of N samples from one HDF5 file, in random order and batches of 32, by the reader "
       "that "
       "data.reader = auto takes. 100000 with --sample-bytes 48KiB --workers 1 is a row of the LUMI AI guide",
       one},
      {"folder", "path", "folder for the generated file", one, "the system's temporary folder"}};
}

namespace {

Exit bench_configured(World& world, const ParsedArguments& parsed, int repeats) {
  for (const auto& [flag, words] : parsed.flags)
    if (flag != "config" && flag != "repeats")
      fail(Exit::config, "command line: --{} has no effect on the pipeline of a configuration. remove it and set keys",
           flag);
  const RunConfig config = parsed.has("config") ? load_config(world, parsed) : resolve_config({}, parsed.keys);
  print(world, bench_pipeline(world, config, repeats).str());
  return Exit::ok;
}

LoaderBenchOptions loader_options(const ParsedArguments& parsed) {
  LoaderBenchOptions options;
  options.workers = flag_number(parsed, "workers", 2, between(1, 256));
  options.prefetch = flag_number(parsed, "prefetch", 16, between(2, 1 << 20));
  options.sample_bytes = option("sample-bytes", [&] {
    const std::string text = parsed.get("sample-bytes", "3072");
    const auto bytes = std::int64_t(parse_bytes(text));
    at_least(1).check(double(bytes), text);
    return bytes;
  });
  options.folder = parsed.get("folder", "");
  return options;
}

}  // namespace

// With a configuration, all ranks run its pipeline. Without one, rank 0 measures the readers and the other ranks wait.
Exit loader_bench(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, loader_flags(), true);
  reject_positional(parsed);
  const int repeats = flag_number(parsed, "repeats", 15, between(1, 1000));
  if (parsed.has("config") || !parsed.keys.empty()) return bench_configured(world, parsed, repeats);
  LoaderBenchOptions options = loader_options(parsed);
  options.repeats = repeats;
  DataOptions data;
  data.paths = parsed.list("data");
  data.decode.resize = flag_number(parsed, "resize", 256, between(0, 1 << 20));
  data.decode.crop = flag_number(parsed, "crop", 224, between(0, 1 << 20));
  const double zoom = flag_number(parsed, "zoom", 0.0, fraction());
  ExecutionContext compute = cpu_context(world);
  if (!data.paths.empty()) {
    ShardIndex index = index_shards(world, data);
    index.decode.min_area = zoom;
    if (world.rank() == 0)
      print(world, bench_images(*compute.device, index, options.workers, options.prefetch, options.repeats).str());
    world.barrier();
    return Exit::ok;
  }
  if (parsed.has("epoch")) {
    const EpochBenchOptions defaults;
    const EpochBenchOptions epoch{.folder = options.folder,
                                  .workers = options.workers,
                                  .prefetch = options.prefetch,
                                  .repeats = std::min(options.repeats, defaults.repeats),
                                  .samples = flag_number(parsed, "epoch", defaults.samples, at_least(defaults.batch)),
                                  .sample_bytes = options.sample_bytes};
    if (world.rank() == 0) print(world, bench_epoch(*compute.device, epoch).str());
    world.barrier();
    return Exit::ok;
  }
  options = options.bounded();
  if (world.rank() == 0)
    print(world, parsed.has("waits") ? bench_waits(*compute.device, options, {0.001, 0.005, 0.05}).str()
                                     : bench_loader(*compute.device, options).str());
  world.barrier();
  return Exit::ok;
}

std::vector<Flag> storage_flags() {
  using enum Flag::Arity;
  return {{"workload", "name", "retinanet, unet3d, resnet50 or cosmoflow", one, "retinanet"},
          {"accelerator", "name", "accelerator whose compute time is emulated by sleeping: a100, h100 or b200", one,
           "b200"},
          {"accelerators", "N", "number of emulated accelerators of all ranks together", one, "1"},
          {"dir", "path", "folder of the shards. Shards that it lacks are generated, and removed afterwards", one,
           "a new folder in the system's temporary folder"},
          {"samples", "N", "number of samples in the data set", one, "as many as fit in 2 GiB, at least four steps"},
          {"keep", "", "do not remove the generated shards", nothing},
          {"steps", "N", "steps in a round; the first one is not counted", one, "10 seconds, but 20 to 2000 steps"},
          {"turns", "N", "number of rounds; each measures the ceiling, then the replay", one, "3"},
          {"workers", "N", "loader threads of each accelerator", one, "1"},
          {"prefetch", "N", "micro-batches to read ahead for each accelerator", one, "128 MiB, but 3 to 32"},
          {"reader", "name", "direct, mmap or uring, like data.reader", one, "uring"}};
}

Exit storage_bench(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, storage_flags(), false);
  reject_positional(parsed);
  StorageBenchOptions options;
  options.workload = option("workload", [&] {
    return storage_workload(parsed.get("workload", "retinanet"), parsed.get("accelerator", "b200"));
  });
  options.accelerators = flag_number(parsed, "accelerators", 1, between(1, 1 << 16));
  options.samples = flag_number(parsed, "samples", std::int64_t(0), at_least(1));
  options.steps = flag_number(parsed, "steps", 0, between(2, 1 << 20));
  options.turns = flag_number(parsed, "turns", 3, between(1, 1000));
  options.workers = flag_number(parsed, "workers", 1, between(1, 256));
  options.prefetch = flag_number(parsed, "prefetch", 0, between(2, 1 << 20));
  options.reader = flag_choice(
      parsed, "reader", Choices<Reader>{{"uring", Reader::uring}, {"direct", Reader::direct}, {"mmap", Reader::mmap}});
  options.folder = parsed.get("dir", "");
  options.keep = parsed.has("keep");
  ExecutionContext compute = cpu_context(world);
  print(world, bench_storage(world, *compute.device, options).str());
  return Exit::ok;
}

}  // namespace millrace::app
