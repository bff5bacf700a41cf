// Benches of the loader.
#include "app/benches.hpp"
#include "app/commands.hpp"
#include "millrace/base/units.hpp"
#include "millrace/bench/loader.hpp"
#include "millrace/bench/step.hpp"
#include "millrace/bench/storage.hpp"
#include "millrace/config/key_types.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/train/session/make_compute.hpp"

namespace millrace::app {
namespace {

// Options that are numbers.
struct Numbers {
  const ParsedArguments& parsed;
  template <class T>
  T operator()(const char* name, T default_value, const Range& range) const {
    return option(name, [&] {
      if (!parsed.has(name)) return default_value;
      const std::string text = parsed.get(name, "");
      const auto value = parse_number<T>(text);
      range.check(double(value), text);
      return value;
    });
  }
};

ExecutionContext processor(World& world) {
  RunConfig config;
  config.run.device = DeviceChoice::cpu;
  return make_execution_context(world, config);
}

}  // namespace

std::vector<Flag> loader_flags() {
  return {
      config_flag(),
      repeats_flag(),
      {"workers", "N", "loader threads, and threads of the bare loop", Flag::Arity::one, "2"},
      {"prefetch", "N", "micro-batches of 128 samples read ahead, as data.prefetch says it", Flag::Arity::one, "16"},
      {"sample-bytes", "size", "size of a sample", Flag::Arity::one, "3072"},
      {"data", "files", "encoded images to decode, instead of a file of its own", Flag::Arity::many},
      {"resize", "pixels", "encoded images: short side, as data.resize says it", Flag::Arity::one, "256"},
      {"crop", "pixels", "encoded images: side of the square, as data.crop says it", Flag::Arity::one, "224"},
      {"zoom", "share", "encoded images: smallest random part, as data.random_resized_crop says it", Flag::Arity::one,
       "0"},
      {"waits", "", "instead: how long steps of 1, 5 and 50 ms wait for data that comes 1.2 times as fast",
       Flag::Arity::nothing},
      {"folder", "path", "where the file goes", Flag::Arity::one, "the system's"}};
}

// With a configuration: its pipeline, on all ranks. Without: engines on a file of its own; one rank measures, the
// others wait.
Exit loader_bench(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, loader_flags(), true);
  reject_positional(parsed);
  LoaderBenchOptions options;
  const Numbers number{parsed};
  options.repeats = number("repeats", 15, between(1, 1000));
  if (parsed.has("config") || !parsed.keys.empty()) {
    for (const auto& [flag, words] : parsed.flags)
      if (flag != "config" && flag != "repeats")
        fail(Exit::config, "command line: --", flag, " is for the bench without a configuration. with one, set keys");
    const RunConfig config = parsed.has("config") ? load_config(world, parsed) : resolve_config({}, parsed.keys);
    print(world, bench_pipeline(world, config, options.repeats).str());
    return Exit::ok;
  }
  options.workers = number("workers", 2, between(1, 256));
  options.prefetch = number("prefetch", 16, between(2, 1 << 20));
  options.sample_bytes = option("sample-bytes", [&] {
    const std::string text = parsed.get("sample-bytes", "3072");
    const auto bytes = std::int64_t(parse_bytes(text));
    at_least(1).check(double(bytes), text);
    return bytes;
  });
  options.folder = parsed.get("folder", "");
  DataOptions data;
  data.paths = parsed.list("data");
  data.decode.resize = number("resize", 256, between(0, 1 << 20));
  data.decode.crop = number("crop", 224, between(0, 1 << 20));
  const double zoom = number("zoom", 0.0, fraction());
  ExecutionContext compute = processor(world);
  if (!data.paths.empty()) {
    ShardIndex index = index_shards(world, data);
    index.decode.min_area = zoom;
    if (world.rank() == 0)
      print(world, bench_images(*compute.device, index, options.workers, options.prefetch, options.repeats).str());
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
  return {{"workload", "name", "unet3d, resnet50, cosmoflow or retinanet", Flag::Arity::one, "resnet50"},
          {"accelerator", "name", "whose compute time is slept: a100, h100 or b200", Flag::Arity::one, "h100"},
          {"accelerators", "N", "how many, over all ranks", Flag::Arity::one, "1"},
          {"dir", "path", "where shards are found, or made and removed", Flag::Arity::one, "a new one in the system's"},
          {"samples", "N", "of the data set", Flag::Arity::one, "2 GiB of them"},
          {"keep", "", "leave the shards there", Flag::Arity::nothing},
          {"steps", "N", "of a turn, the first of which does not count", Flag::Arity::one, "10 s of them"},
          {"turns", "N", "each: the ceiling, then the replay", Flag::Arity::one, "3"},
          {"workers", "N", "loader threads of each accelerator", Flag::Arity::one, "1"},
          {"prefetch", "N", "micro-batches read ahead by each accelerator", Flag::Arity::one, "128 MiB of them"},
          {"reader", "engine", "direct, mmap or uring, as data.reader says it", Flag::Arity::one, "uring"}};
}

Exit storage_bench(World& world, const Arguments& arguments) {
  const ParsedArguments parsed = parse_arguments(arguments, storage_flags(), false);
  reject_positional(parsed);
  const Numbers number{parsed};
  StorageBenchOptions options;
  options.workload = option("workload", [&] {
    return storage_workload(parsed.get("workload", "resnet50"), parsed.get("accelerator", "h100"));
  });
  options.accelerators = number("accelerators", 1, between(1, 1 << 16));
  options.samples = number("samples", std::int64_t(0), at_least(1));
  options.steps = number("steps", 0, between(2, 1 << 20));
  options.turns = number("turns", 3, between(1, 1000));
  options.workers = number("workers", 1, between(1, 256));
  options.prefetch = number("prefetch", 0, between(2, 1 << 20));
  options.reader = option("reader", [&] {
    const std::string name = parsed.get("reader", "uring");
    for (const auto& [word, reader] :
         Choices<Reader>{{"direct", Reader::direct}, {"mmap", Reader::mmap}, {"uring", Reader::uring}})
      if (name == word) return reader;
    fail(Exit::config, "'", name, "' is none of direct|mmap|uring");
  });
  options.folder = parsed.get("dir", "");
  options.keep = parsed.has("keep");
  ExecutionContext compute = processor(world);
  print(world, bench_storage(world, *compute.device, options).str());
  return Exit::ok;
}

}  // namespace millrace::app
