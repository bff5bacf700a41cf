#include "millrace/train/session/session.hpp"

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/base/version.hpp"
#include "millrace/config/keys.hpp"
#include "millrace/system/process.hpp"
#include "train/session/exported_network.hpp"
#include "train/session/network_spec.hpp"

namespace millrace {
namespace {

void require_strict(const Session& s) {
  if (!s.compute.device->shares_host_memory())
    fail(Exit::config, "run.reproducible: strict works on the CPU only. set run.device = cpu");
  if (s.config.comm.grad_dtype != DType::f32)
    fail(Exit::config, "comm.grad_dtype: run.reproducible = strict sums exactly. set it to none");
  if (s.config.model.sync_batch_norm)
    fail(Exit::config,
         "model.sync_batch_norm: run.reproducible = strict gives the same bits on any number of ranks, but which "
         "micro-batches are normalised together depends on it. switch one of them off");
}

// Ranks of one host update all weights through the same memory, unless each updates only its part. Measured with two
// ranks (docs/benchmarks/2026-11-pytorch.md): from 8 MiB on, adamw gains 4 to 12 % of a step; below, there is no gain,
// or a loss. Muon divides its matrix products too.
bool shards_by_itself(const Session& s) {
  constexpr std::int64_t least_bytes = 8 << 20;
  using enum OptimizerSpec::Kind;
  const OptimizerSpec::Kind kind = s.spec.optimizer.kind;
  if (s.config.optim.zero != OptimOptions::automatic_zero || (kind != adamw && kind != muon)) return false;
  if (s.world.size() == 1 || s.world.node_count() > 1 || !s.compute.device->shares_host_memory()) return false;
  const ParameterLayout layout(graph_of(s.spec, s.batching.micro_batch, Mode::train));
  return layout.count * std::int64_t(sizeof(float)) >= least_bytes;
}

}  // namespace

Session::Session(World& w, const RunConfig& c, Use u, const ModelRecord* trained) : world(w), config(c), use(u) {
  const bool training = use == Use::train;
  require_data(config, training);
  compute = make_execution_context(world, config, &placement);
  if (strict()) require_strict(*this);
  const std::string note = compute.backend->precision_note(dtype_of(config.run.precision));
  if (!note.empty()) log::warn(note);
  data = index_data_sets(world, config, training, trained);
  batching = make_batching(world, config, training, data);
  spec = network_spec(world, config, training, data, batching, trained);
  if (training && shards_by_itself(*this)) spec.shard_optimizer();
  if (trained) require_function(spec, *trained, training ? config.run.dir : "");
  open_sources(world, config, training, data);
}

std::int64_t Session::total_steps() const {
  if (config.train.steps > 0) return config.train.steps;
  const std::int64_t per_epoch = batching.epochs.steps_per_epoch();
  const std::int64_t steps = std::int64_t(std::llround(config.train.epochs * double(per_epoch)));
  const Origin& origin = batching.epochs.origin;
  return origin.step + steps - origin.epoch * per_epoch;
}

int Session::accumulation() const { return int(batching.train_order->share(0, 0, 0, world.size()).size()); }

std::function<std::optional<MicroBatch>()> Session::micro_batches(std::int64_t from, std::int64_t to) const {
  batching.load_balancer->plan_from(from);
  return [&b = batching, to, step = from, index = std::size_t(0),
          share = std::vector<MicroBatch>()]() mutable -> std::optional<MicroBatch> {
    while (index == share.size()) {
      if (step >= to) return std::nullopt;
      b.train_order->share(b.epochs.epoch(step), b.epochs.step_in_epoch(step), b.load_balancer->plan(step), share);
      index = 0;
      ++step;
    }
    return share[index++];
  };
}

std::function<std::optional<MicroBatch>()> Session::valid_micro_batches() const {
  return [&order = *batching.valid_order, &w = world, step = std::int64_t(0), index = std::size_t(0),
          share = std::vector<MicroBatch>()]() mutable -> std::optional<MicroBatch> {
    while (index == share.size()) {
      if (step == order.steps_per_epoch()) return std::nullopt;
      share = order.share(0, step++, w.rank(), w.size());
      index = 0;
    }
    return share[index++];
  };
}

LoaderOptions Session::loader_options() const {
  LoaderOptions options;
  options.workers = config.data.workers < 0 ? placement.workers : config.data.workers;
  options.prefetch = config.data.prefetch;
  options.max_rows = batching.micro_batch;
  return options;
}

LoaderOptions Session::step_loader_options() const {
  LoaderOptions options = loader_options();
  const CapturePartition groups = capture_partition(batching.micro_batch);
  options.device_slots = groups.device_slots();
  options.max_batches_per_take = groups.largest();
  return options;
}

CapturePartition Session::capture_partition(std::int64_t rows) const {
  const std::int64_t all = (batching.global_batch + rows - 1) / rows;
  const int max = int(LoadBalancer::max_micro_batches(config.train.balance, all, world.size()));
  return {compute.device->max_captured_micro_batches(), max, config.train.balance != "even" && world.size() > 1};
}

ReducerSpec Session::reducer_spec(std::int64_t gradient_count, const BucketSpec& buckets) const {
  return {gradient_count, buckets, spec.grad_dtype, config.comm.overlap, world.size() == 1 || strict()};
}

bool Session::progress_thread() const { return uses_progress_thread(world, config.comm.progress); }

// One rank of each host copies its part of the replicated tensors (replica_writers()), each rank its own shards.
static std::size_t checkpoint_copy_bytes(const Session& s, const NetworkPlan& planned) {
  if (s.use != Session::Use::train || !s.compute.device->shares_host_memory()) return 0;
  const std::int64_t tensors = 1 + s.spec.optimizer.moment_count() + (s.spec.optimizer.average > 0 ? 1 : 0);
  const bool sharded = s.spec.buckets.sharded();
  const std::int64_t own = sharded ? planned.optimizer.count * tensors / s.spec.buckets.ranks : 0;
  const std::int64_t replicated = planned.layout.stats_count + (sharded ? 0 : planned.layout.count * tensors);
  const std::int64_t written = s.world.local_rank() == 0 ? replicated / s.world.node_count() : 0;
  return std::size_t(own + written) * sizeof(float);
}

// What the process used before it planned its first network. Read once: plans have to be comparable.
static std::size_t bytes_of_program() {
  static const std::size_t bytes = memory_in_use();
  return bytes;
}

NetworkPlan Session::plan(std::int64_t rows) const {
  NetworkSpec trial = spec;
  std::size_t loaders = 0;  // the loaders of training and of evaluation exist at the same time
  const auto row_counts = [&](const ShardIndex& index, std::int64_t global_batch, int device_slots) {
    LoaderOptions options = loader_options();
    options.max_rows = rows;
    options.device_slots = device_slots;
    loaders += Loader::device_bytes(*compute.device, index, options);
    return Sampler(index.selected_rows(), global_batch, rows, 0, false).row_counts();
  };
  if (batching.train_order)
    trial.train_rows = row_counts(data.train, batching.global_batch, capture_partition(rows).device_slots());
  if (batching.valid_order)
    trial.eval_rows = row_counts(data.valid, rows * world.size(), loader_options().device_slots);
  NetworkPlan out = plan_network(*compute.backend, trial);
  out.needs.loaders = loaders;
  if (strict() && use == Use::train)
    out.needs.gradients += 2 * sizeof(double) * std::size_t(out.layout.count + out.layout.stats_count);
  out.needs.checkpoint_copy = checkpoint_copy_bytes(*this, out);
  out.needs.program = compute.device->shares_host_memory() ? bytes_of_program() : 0;
  return out;
}

std::size_t Session::memory_bytes() const {
  const std::size_t free = compute.device->memory_bytes();
  return config.run.memory > 0 ? std::min<std::size_t>(free, config.run.memory) : free;
}

ModelRecord Session::model_record() const {
  const ShardIndex& reference = data.reference();
  std::vector<InputRecord> inputs;
  for (const ShardIndex& i : reference.inputs)
    inputs.push_back({i.x.name, i.sample, i.x.dtype, i.x.channels_first, i.values});
  return {.version = version,
          .function_version = function_text_version,
          .function = function_of(spec),
          .sample = reference.sample,
          .sample_type = reference.x.dtype,
          .channels_first = reference.x.channels_first,
          .inputs = std::move(inputs),
          .parts = reference.x.parts,
          .target_parts = reference.y.parts,
          .target_name = reference.y.name,
          .labels = reference.y.labels,
          .target = reference.y.target,
          .classes = reference.classes,
          .values = reference.values,
          .split_crc32c = data.split_crc32c,
          .network = network_text(spec),
          .tokenizer = data.tokenizer};
}

// Of a processor. Other methods give other roundings.
std::string Session::methods_of_convolutions() const {
  const std::string& network = spec.model.name;
  if (network == "mlp" || network == "gpt2" || network == "llama") return "direct";
  if (config.cpu.autotune && !config.run.deterministic && !strict()) return "timed";
  return compute.backend->filters_convolutions(spec.compute) ? "Winograd" : "direct";
}

std::map<std::string, std::string> Session::provenance() const {
  std::string order = config.data.shuffle == Shuffle::off ? "as stored" : "global";
  if (batching.blocks) order = batching.blocks->str();
  std::map<std::string, std::string> out{{"reproducible", value_text(config, "run.reproducible")},
                                         {"ranks", std::to_string(world.size())},
                                         {"threads", std::to_string(placement.compute_threads)},
                                         {"device", compute.device->describe()},
                                         {"precision", name_of(spec.compute)},
                                         {"fusion", std::to_string(config.model.fusion)},
                                         {"global_batch", std::to_string(batching.global_batch)},
                                         {"micro_batch", std::to_string(batching.micro_batch)},
                                         {"seed", std::to_string(config.run.seed)},
                                         {"order", order},
                                         {"sample", data.train.view.str()},
                                         {"compress", value_text(config, "comm.grad_dtype")},
                                         {"data", std::to_string(data.train.manifest_crc)}};
  if (compute.device->shares_host_memory()) out["convolutions"] = methods_of_convolutions();
  if (data.split_crc32c != 0) out["split"] = std::to_string(data.split_crc32c);
  return out;
}

}  // namespace millrace
