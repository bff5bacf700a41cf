#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "millrace/base/error.hpp"
#include "millrace/bench/step.hpp"
#include "millrace/train/session/session.hpp"

namespace millrace {
namespace {

// Seconds that one call of `work` takes on a stream: the minimum of several.
template <class F>
double best_seconds(Device& device, Stream stream, int repeats, F work) {
  const auto timestamps = device.make_timestamps(2);
  double best = 1e30;
  for (int r = 0; r <= repeats; ++r) {
    timestamps->record(stream, 0);
    work();
    timestamps->record(stream, 1);
    std::array<double, 2> at;
    timestamps->read(at);
    if (r > 0) best = std::min(best, at[1]);
  }
  return best;
}

struct InputPass {
  double seconds = 0, bytes = 0;  // 0: the samples need no conversion
};

// Measures the first operation of the network, in training mode, on a batch of the loader.
InputPass input_pass(Session& s, const Batch& batch, int repeats) {
  Device& device = *s.compute.device;
  InputSpec spec = s.spec.model.input;
  spec.src = batch.x.shape;
  spec.raw = batch.x.dtype;
  spec.dtype = s.spec.compute;
  spec.mode = Mode::train;
  const auto op = s.compute.backend->make(spec);
  if (op->is_copy()) return {};
  const MemoryRequirements needs = op->memory_requirements();
  const auto buffer = [&](std::size_t bytes) {
    return Buffer(device, MemoryKind::device, std::max<std::size_t>(64, bytes));
  };
  const Buffer workspace = buffer(needs.workspace), saved = buffer(needs.saved),
               packed_weights = buffer(needs.packed_weights), state = buffer(sizeof(StepState)),
               dst = buffer(std::size_t(spec.dst().count()) * size_of(spec.dtype));
  OpArgs args;
  args.src[0] = batch.x;
  args.src[1] = batch.ids;
  args.dst = {dst.data(), spec.dtype, spec.dst()};
  args.workspace = workspace.data();
  args.saved = saved.data();
  args.packed_weights = packed_weights.data();
  args.state = static_cast<StepState*>(state.data());
  const double seconds = best_seconds(device, Stream::compute, repeats, [&] { op->forward(args); });
  return {seconds, forward_cost(spec).bytes};
}

}  // namespace

PipelineBench bench_pipeline(World& world, const RunConfig& config, int repeats, double turn_seconds) {
  Session s(world, config, Session::Use::train);
  if (!s.spec.model.inputs.empty())
    fail(Exit::config, "bench loader: it measures networks with one input. remove the `input` lines");
  Device& device = *s.compute.device;
  const LoaderOptions options = s.loader_options();
  PipelineBench out;
  out.source =
      fmt::format("{}; workers {}, prefetch {}, micro-batches of {}", s.data.train_source->describe(), options.workers,
                  options.prefetch ? std::to_string(options.prefetch) : "auto", options.max_rows);
  out.sample_bytes = double(s.data.train.sample_bytes());
  out.batch = double(options.max_rows);
  std::string problem;
  Exit code = Exit::ok;
  try {
    out.stages = bench_stages(device, *s.data.train_source, s.data.train, *s.batching.train_order, options, repeats,
                              turn_seconds);
  } catch (const Error& e) {
    problem = e.what();
    code = e.code();
  }
  world.agree(code == Exit::ok ? Exit::data : code, problem);

  Peaks peaks = measure_peaks(s.compute, s.spec.compute);
  Loader loader(device, *s.data.train_source, s.data.train, *s.batching.train_order, options, s.micro_batches(0, 1));
  const Batch* batch = loader.next();
  if (!batch) fail(Exit::config, "bench loader: rank {} gets no micro-batch. lower train.micro_batch", world.rank());
  const double rows = double(batch->item.rows);
  const InputPass pass = input_pass(s, *batch, repeats);
  if (pass.seconds > 0) {
    out.augment = rows / pass.seconds;
    if (config.data.subvolume.empty()) peaks.include({.flops = 0, .bytes = pass.bytes}, pass.seconds);
    out.memory = rows * peaks.memory_rate(pass.bytes) / pass.bytes;
  }
  if (!device.shares_host_memory()) {
    const std::size_t bytes = std::size_t(batch->item.rows) * s.data.train.sample_bytes();
    const Buffer host(device, MemoryKind::pinned, bytes), target(device, MemoryKind::device, bytes);
    out.copy = rows / best_seconds(device, Stream::copy, repeats,
                                   [&] { device.copy_to_device(Stream::copy, target.data(), host.data(), bytes); });
    out.bare_copy = peaks.copy_bytes / out.sample_bytes;
  }
  double* const rates[] = {&out.stages.baseline_read,
                           &out.stages.baseline_decode,
                           &out.stages.engine,
                           &out.stages.loader,
                           &out.copy,
                           &out.bare_copy,
                           &out.augment,
                           &out.memory};
  std::vector<double> values;
  for (const double* v : rates) values.push_back(*v);
  world.all_reduce(values, World::Reduce::sum);
  for (std::size_t i = 0; i < values.size(); ++i) *rates[i] = values[i];
  std::array<double, 1> wait{out.stages.wait_share};
  world.all_reduce(wait, World::Reduce::max);
  out.stages.wait_share = wait[0];
  return out;
}

double PipelineBench::delivers() const {
  const double host = augment > 0 ? std::min(stages.loader, augment) : stages.loader;
  return copy > 0 ? std::min(host, copy) : host;
}

std::string PipelineBench::str() const {
  std::string out = source + "\n";
  std::string text;
  const auto row = [&](const char* name, double rate, double bytes, double bound, const std::string& baseline) {
    if (rate > 0) {
      out += fmt::format("  {:<26} {:10.0f} samples/s {:8.3f} GB/s", name, rate, rate * bytes * 1e-9);
    } else {
      out += fmt::format("  {:<26} {:>33}", name, "");
    }
    if (bound > 0) {
      out += fmt::format("  baseline {:10.0f} samples/s  {}", bound, baseline);
      if (rate > 0) {
        out += fmt::format(": {:.0f} %", 100 * rate / bound);
      }
    } else {
      out += "  " + baseline;
    }
    out += "\n";
  };
  const StageRates& s = stages;
  const bool decodes = s.baseline_decode > 0;
  row("read", decodes ? 0 : s.engine, s.stored_bytes, s.baseline_read,
      s.baseline_read > 0 ? s.baseline_method
      : s.fully_cached    ? "no baseline: all decoded chunks stay in the cache (data.chunk_cache)"
                          : "no baseline: only the HDF5 library can read it");
  row("decode", 0, sample_bytes, s.baseline_decode,
      decodes          ? "from memory, one thread for each worker"
      : s.fully_cached ? "each chunk once; none during this measurement"
                       : "the values are stored without encoding");
  const double both = decodes ? 1 / (1 / s.baseline_read + 1 / s.baseline_decode) : s.baseline_read;
  if (decodes) row("read and decode", s.engine, sample_bytes, both, "one after the other");
  row("through the loader's ring", s.loader, sample_bytes, both, "the baselines above");
  row("copy to the device", copy, sample_bytes, bare_copy,
      copy > 0 ? "plain copies" : "none: the device reads host memory");
  row("augment, normalize, cast", augment, sample_bytes, memory,
      augment > 0 ? "memory bandwidth" : "none: the samples need no conversion");
  text = fmt::format(
      "  delivers {:.0f} samples/s, {:.3f} GB/s: {} is the limit\n  a step that takes 1.2 times as long as the loader "
      "needs for a micro-batch waits for data {:.2f} % of the time\n",
      delivers(), delivers() * sample_bytes * 1e-9,
      delivers() == s.loader ? (decodes && s.baseline_decode < s.baseline_read ? "decoding" : "reading")
      : delivers() == copy   ? "the copy"
                             : "the input pass",
      100 * s.wait_share);
  return out + text;
}

}  // namespace millrace
