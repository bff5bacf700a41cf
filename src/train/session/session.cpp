#include "millrace/train/session/session.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/config/keys.hpp"
#include "millrace/data/index/class_names.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/train/session/make_compute.hpp"
#include "train/session/input_options.hpp"

namespace millrace {
namespace {

DataOptions data_options(const DataConfig& feed, const std::vector<std::string>& paths, bool valid) {
  DataOptions out;
  out.paths = paths;
  out.x = feed.x, out.y = feed.y;
  out.layout = feed.layout;
  out.scale = feed.scale, out.offset = feed.offset, out.transform = feed.transform;
  out.decode.resize = feed.resize, out.decode.crop = feed.crop;
  out.manifest_cache = feed.manifest_cache;
  out.view = feed, out.validation_part = valid && feed.holdout > 0;
  out.faults = feed;
  return out;
}

// What the files to train on leave of the copies' budget.
LocalCacheOptions rest_of(LocalCacheOptions staging, const ShardIndex& train) {
  if (staging.budget == 0) return staging;
  std::uint64_t taken = 0;
  for (const Shard& s : train.shards) taken += s.file_bytes;
  if (taken >= staging.budget) return {};
  staging.budget -= taken;
  return staging;
}

void require_same_values(const ShardIndex& train, const ShardIndex& valid) {
  if (train.x_parts == valid.x_parts && train.scale == valid.scale && train.offset == valid.offset &&
      train.channel_scale == valid.channel_scale && train.channel_offset == valid.channel_offset)
    return;
  fail(Exit::data, "data.valid stores its values * ", valid.scale, " + ", valid.offset, ", data.train * ", train.scale,
       " + ", train.offset, ". both need the same (of every data set that is joined): write them so, or give ",
       "data.scale and data.offset");
}

void require_same_samples(const ShardIndex& train, const ShardIndex& valid) {
  if (const std::string other = first_class_mismatch(valid.class_names, train.class_names); !other.empty())
    fail(Exit::data, "in data.valid ", other, " in data.train. pack both from folders or tables with the same classes");
  if (train.sample == valid.sample && train.x_dtype == valid.x_dtype && train.labels == valid.labels &&
      train.target == valid.target && train.channels_first == valid.channels_first)
    return;
  const auto words = [](const ShardIndex& index) {
    return cat(index.sample.str(), " ", name_of(index.x_dtype), " samples, channels ",
               index.channels_first ? "first" : "last");
  };
  fail(Exit::data, "data.valid holds ", words(valid), ", data.train ", words(train),
       ". both need the same shape, type, layout and kind of targets");
}

ModelSpec model_spec(const RunConfig& c, const ShardIndex& data) {
  ModelSpec m;
  m.name = value_text(c, "model.name");
  m.depth = c.model.depth, m.width = c.model.width, m.stem = value_text(c, "model.stem");
  m.hidden = c.model.hidden;
  m.activation = activation_from(c.model.activation);
  m.dropout = float(c.model.dropout), m.label_smoothing = float(c.model.label_smoothing);
  m.layers = c.model.layers;
  m.seed = c.run.seed;
  if (c.model.loss == Loss::cross_entropy && !data.labels)
    fail(Exit::config, "model.loss: cross_entropy needs class labels, data.y holds targets");
  if (c.model.loss == Loss::mse && data.labels)
    fail(Exit::config, "model.loss: mse needs float targets, data.y holds class labels");
  if (data.labels && data.classes < 1)
    fail(Exit::data,
         "no sample has a label: every y is negative. a file of tokens is its own target: set data.sample = tokens");
  m.mean_squared_error = !data.labels;
  m.tokens = data.view.sample == SampleKind::tokens;
  m.outputs = data.labels ? data.classes : data.target.count();
  m.input = input_spec(c.data, data, c.run.seed);
  return m;
}

OptimizerSpec::Kind optimizer_kind(OptimizerName name) {
  using enum OptimizerSpec::Kind;
  switch (name) {
    case OptimizerName::sgd:
      return sgd;
    case OptimizerName::adamw:
      return adamw;
    case OptimizerName::lars:
      return lars;
    case OptimizerName::lamb:
      return lamb;
  }
  return sgd;
}

OptimizerSpec optimizer_spec(const OptimOptions& o) {
  OptimizerSpec s;
  s.kind = optimizer_kind(o.name);
  s.momentum = float(o.momentum), s.nesterov = o.nesterov, s.trust_coefficient = float(o.trust_coefficient);
  s.beta1 = float(o.beta1), s.beta2 = float(o.beta2), s.epsilon = float(o.epsilon);
  s.clip = float(o.clip);
  return s;
}

}  // namespace

DType dtype_of(Precision p) {
  return p == Precision::fp32 ? DType::f32 : p == Precision::bf16 ? DType::bf16 : DType::f16;
}

// What run.device = auto means, the same on all ranks: one on the processor and one on a GPU could not sum. Why no GPU
// is taken, or empty.
static std::string why_not_cuda(World& world) {
  std::string why_not;
  cuda_usable(world, &why_not);
  const auto all = world.gather(why_not);
  const auto without = std::count_if(all.begin(), all.end(), [](const auto& why) { return !why.empty(); });
  if (without > 0 && without < world.size())
    world.agree(Exit::config, why_not.empty() ? "" : cat("run.device: ", why_not, "; other ranks have a GPU"));
  return why_not.substr(0, why_not.find(". "));
}

ExecutionContext make_execution_context(World& world, const RunConfig& config, Placement* placement) {
  ExecutionOptions options;
  options.placement = plan_placement(world, config.run.threads, std::max(0, config.data.workers));
  options.deterministic = config.run.deterministic;
  options.collective.timeout_seconds = config.comm.timeout;
  options.collective.progress = config.comm.progress;
  options.collective.delay_seconds_per_mb = config.test.all_reduce_delay;
  options.cuda = config.cuda;
  options.cuda.collective_backend = config.comm.backend;
  if (!options.placement.warning.empty()) log::warn(options.placement.warning);
  if (placement) *placement = options.placement;
  const std::string why = config.run.device == DeviceChoice::automatic ? why_not_cuda(world) : "";
  const bool cuda = config.run.device != DeviceChoice::cpu && why.empty();
  ExecutionContext compute = cuda ? make_cuda_context(world, options) : make_cpu_context(world, options);
  compute.why = why;
  return compute;
}

Session::Session(World& w, const RunConfig& c, Use u) : world(w), config(c), use(u) {
  if (c.data.train.empty() && u == Use::train)
    fail(Exit::config, "data.train is not set. give the HDF5 files to train on");
  if (c.data.valid.empty() && u == Use::evaluate)
    fail(Exit::config, "data.valid is not set. give the HDF5 files to evaluate on");
  compute = make_execution_context(w, c, &placement);
  const DType dtype = dtype_of(c.run.precision);
  const std::string note = compute.backend->precision_note(dtype);
  if (!note.empty()) log::warn(note);

  has_valid = !c.data.valid.empty() && (c.train.evaluate || u == Use::evaluate);
  if (!c.data.train.empty()) train_data = index_shards(w, data_options(c.data, c.data.train, false));
  if (has_valid) valid_data = index_shards(w, data_options(c.data, c.data.valid, true));
  if (has_valid && !c.data.train.empty())
    require_same_samples(train_data, valid_data), require_same_values(train_data, valid_data);
  ShardIndex& reference = c.data.train.empty() ? valid_data : train_data;  // classes, mean and std come from here
  if (c.data.on_error == OnError::skip && !reference.labels)
    fail(Exit::config, "data.on_error: skip marks a sample by the label -1, but data.y holds targets. set it to stop");
  if (needs_statistics(c.data, reference)) {
    if (!reference.statistics_rejected_reason.empty())
      log::info(cat("mean and std in the files are ", reference.statistics_rejected_reason, ": measured anew"));
    measure_statistics(w, reference, 10000, c.data);
  }
  train_data.normalized_targets = valid_data.normalized_targets = c.data.normalize;
  if (has_valid && valid_data.view.sample == SampleKind::pair)  // whose targets are normalised as the input is
    valid_data.mean = reference.mean, valid_data.std = reference.std;
  if ((c.data.resize > 0 || c.data.crop > 0) && !train_data.encoded() && !valid_data.encoded())
    fail(Exit::config, "data.resize and data.crop are for encoded images, the samples are ", reference.sample.str(),
         " values. leave them away");
  if (c.data.augment && use == Use::train)
    train_data.decode.min_area = c.data.random_resized_crop, train_data.decode.seed = c.run.seed;
  if (has_valid && valid_data.labels && valid_data.classes > reference.classes)
    fail(Exit::data, "data.valid has label ", valid_data.classes - 1, ", data.train only ", reference.classes,
         " classes");

  if (c.train.global_batch < 1) fail(Exit::config, "train.global_batch: ", c.train.global_batch, " is below 1");
  global_batch = c.data.train.empty() ? c.train.global_batch : std::min(c.train.global_batch, train_data.rows);
  const std::int64_t even = (global_batch + w.size() - 1) / w.size();
  // What can move between ranks are whole micro-batches: several of them, then.
  const std::int64_t usual = c.train.balance == "even" || w.size() == 1 ? even : std::max<std::int64_t>(1, even / 8);
  micro_batch = c.train.micro_batch > 0 ? std::min(c.train.micro_batch, global_batch) : usual;
  if ((global_batch + micro_batch - 1) / micro_batch < w.size())
    log::warn(cat("train.global_batch ", global_batch, " makes fewer micro-batches of ", micro_batch,
                  " than there are ranks (", w.size(), "): some ranks have nothing to do. lower train.micro_batch"));

  spec.model = model_spec(c, reference);
  spec.batch = {0, reference.sample, reference.x_dtype, reference.target, reference.labels};
  spec.compute = dtype;
  spec.fusion = c.model.fusion;
  spec.optimizer = optimizer_spec(c.optim);
  spec.weight_decay = float(c.optim.weight_decay);
  spec.grad_dtype = w.size() == 1 ? DType::f32 : c.comm.grad_dtype;
  spec.seed = c.run.seed;
  spec.buckets.elements = std::int64_t(c.comm.bucket_size / sizeof(float));
  if (u == Use::train && c.optim.zero) spec.buckets.ranks = w.size(), spec.buckets.rank = w.rank();
  if (u == Use::train) {
    if (c.data.shuffle != Shuffle::block && (c.data.shuffle_window > 0 || c.data.shuffle_block > 0))
      fail(Exit::config, "data.shuffle_window and data.shuffle_block do nothing without data.shuffle = block");
    if (c.data.shuffle == Shuffle::block) {
      blocks = block_shuffle(train_data, c.data.shuffle_block, c.data.shuffle_window, c.data.chunk_cache);
      if (!blocks->problem.empty()) log::warn(blocks->problem);
      train_order = std::make_unique<Sampler>(global_batch, micro_batch,
                                              std::make_shared<const BlockOrder>(blocks->layout, c.run.seed));
    } else {
      train_order = std::make_unique<Sampler>(train_data.rows, global_batch, micro_batch, c.run.seed,
                                              c.data.shuffle == Shuffle::global);
    }
    epochs = {train_data.rows, global_batch, {}};
    balance = std::make_unique<LoadBalancer>(w, c.train.balance, train_order->micro_batches(0));
    if (c.train.balance == "auto" && w.size() > 1 && train_order->micro_batches(0) <= w.size())
      log::warn(cat("train.balance: a rank has one micro-batch of ", micro_batch,
                    " a step, nothing can move. lower train.micro_batch"));
    spec.train_rows = train_order->row_counts();
    train_source = make_source(w, train_data, c.data.reader, c.data,
                               {c.data.chunk_cache, c.data.shuffle == Shuffle::off}, c.data.cache);
  }
  if (has_valid) {
    valid_order = std::make_unique<Sampler>(valid_data.rows, micro_batch * w.size(), micro_batch, 0, false);
    spec.eval_rows = valid_order->row_counts();
    valid_source = make_source(w, valid_data, c.data.reader, c.data, {c.data.chunk_cache, true},
                               rest_of(c.data.cache, train_data));
  }
}

std::size_t Session::memory_bytes() const {
  const std::size_t free = compute.device->memory_bytes();
  return config.run.memory > 0 ? std::min<std::size_t>(free, config.run.memory) : free;
}

NetworkPlan Session::plan(std::int64_t rows) const {
  NetworkSpec trial = spec;
  std::size_t loaders = 0;  // one trains and, at times, one evaluates
  const auto row_counts = [&](const ShardIndex& data, std::int64_t global, int device_slots) {
    LoaderOptions options = loader_options();
    options.max_rows = rows, options.device_slots = device_slots;
    loaders += Loader::device_bytes(*compute.device, data, options);
    return Sampler(data.rows, global, rows, 0, false).row_counts();
  };
  if (train_order) trial.train_rows = row_counts(train_data, global_batch, capture_partition(rows).device_slots());
  if (valid_order) trial.eval_rows = row_counts(valid_data, rows * world.size(), loader_options().device_slots);
  NetworkPlan out = plan_network(*compute.backend, trial);
  out.needs.loaders = loaders;
  return out;
}

LoaderOptions Session::loader_options() const {
  LoaderOptions options;
  options.workers = config.data.workers < 0 ? placement.workers : config.data.workers;
  options.prefetch = config.data.prefetch;
  options.max_rows = micro_batch;
  return options;
}

LoaderOptions Session::step_loader_options() const {
  LoaderOptions options = loader_options();
  const CapturePartition groups = capture_partition(micro_batch);
  options.device_slots = groups.device_slots(), options.max_batches_per_take = groups.largest();
  return options;
}

CapturePartition Session::capture_partition(std::int64_t rows) const {
  const std::int64_t all = (global_batch + rows - 1) / rows;
  const int most = int(LoadBalancer::most(config.train.balance, all, world.size()));
  return {compute.device->max_captured_micro_batches(), most, config.train.balance != "even" && world.size() > 1};
}

std::int64_t Session::total_steps() const {
  if (config.train.steps > 0) return config.train.steps;
  const std::int64_t each = epochs.steps_per_epoch(),
                     even = std::int64_t(std::llround(config.train.epochs * double(each)));
  return epochs.origin.step + even - epochs.origin.epoch * each;
}

std::function<std::optional<MicroBatch>()> Session::micro_batches(std::int64_t from, std::int64_t to) const {
  balance->plan_from(from);
  return [this, to, step = from, index = std::size_t(0),
          share = std::vector<MicroBatch>()]() mutable -> std::optional<MicroBatch> {
    while (index == share.size()) {
      if (step >= to) return std::nullopt;
      train_order->share(epochs.epoch(step), epochs.step_in_epoch(step), balance->plan(step), share);
      index = 0, ++step;
    }
    return share[index++];
  };
}

int Session::accumulation() const { return int(train_order->share(0, 0, 0, world.size()).size()); }

ReducerSpec Session::reducer_spec(std::int64_t count) const {
  return {count, spec.buckets, spec.grad_dtype, config.comm.overlap, world.size() == 1};
}

bool Session::progress_thread() const { return uses_progress_thread(world, config.comm.progress); }

std::map<std::string, std::string> Session::provenance() const {
  return {{"ranks", std::to_string(world.size())},
          {"threads", std::to_string(placement.compute_threads)},
          {"device", compute.device->describe()},
          {"precision", name_of(spec.compute)},
          {"fusion", std::to_string(config.model.fusion)},
          {"global_batch", std::to_string(global_batch)},
          {"micro_batch", std::to_string(micro_batch)},
          {"seed", std::to_string(config.run.seed)},
          {"order", blocks                                ? blocks->str()
                    : config.data.shuffle == Shuffle::off ? "as stored"
                                                          : "global"},
          {"sample", train_data.view.str()},
          {"compress", value_text(config, "comm.grad_dtype")},
          {"data", std::to_string(train_data.manifest_crc)}};
}

}  // namespace millrace
