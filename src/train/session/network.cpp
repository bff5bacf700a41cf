#include "millrace/train/session/network.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

constexpr std::size_t min_buffer_bytes = 64;

}  // namespace

Network::Network(ExecutionContext& compute, const NetworkSpec& spec)
    : Network(compute, spec, plan_network(*compute.backend, spec)) {}

Network::Network(ExecutionContext& compute, const NetworkSpec& spec, NetworkPlan plan)
    : compute_(compute),
      graph_(plan.any_graph()),
      layout_(std::move(plan.layout)),
      needs_(plan.needs),
      dtype_(spec.compute),
      buckets_(plan.buckets),
      averages_(spec.optimizer.average > 0) {
  require_memory();
  allocate(plan);
  initialise_weights(spec.seed);
  if (!plan.train.empty()) prepare_training(spec, plan);
  prepare_programs(plan);
  weights_changed();
  push_state();
}

void Network::require_memory() const {
  const Device& device = *compute_.device;
  if (needs_.total() > device.memory_bytes())
    fail(Exit::config, "the network needs {} ({} of them for activations), but {} has only {}. lower train.micro_batch",
         format_bytes(needs_.total()), format_bytes(needs_.arena), device.name(), format_bytes(device.memory_bytes()));
}

Buffer Network::device_buffer(std::size_t bytes) const {
  return Buffer(*compute_.device, MemoryKind::device, std::max(bytes, min_buffer_bytes));
}

void Network::allocate(const NetworkPlan& plan) {
  const std::size_t master_bytes = plan.master_count() * sizeof(float);
  const std::size_t weight_bytes =
      dtype_ == DType::f32 ? 0 : std::size_t(buckets_.padded(layout_.count)) * size_of(dtype_);
  if (buckets_.sharded()) {
    shared_master_ = compute_.collective->allocate(master_bytes);
    if (weight_bytes > 0) shared_weights_ = compute_.collective->allocate(weight_bytes);
    master_data_ = static_cast<float*>(shared_master_.data);
    weights_data_ = shared_weights_.data;
  } else {
    master_ = device_buffer(master_bytes);
    if (weight_bytes > 0) weights_ = device_buffer(weight_bytes);
    master_data_ = master_.as<float>();
    weights_data_ = weights_.data();
  }
  running_ = device_buffer(std::size_t(layout_.stats_count) * sizeof(float));
  arena_ = device_buffer(needs_.arena);
  packed_weights_ = device_buffer(needs_.packed_weights);
  state_ = device_buffer(sizeof(StepState));
  if (needs_.metrics > 0) metrics_ = device_buffer(needs_.metrics);
  pushed_ = Buffer(*compute_.device, MemoryKind::pinned, 2 * sizeof(StepState));
  state_copies_ = Buffer(*compute_.device, MemoryKind::pinned, 2 * sizeof(StepState));
  for (auto& event : state_ready_) event = compute_.device->make_event();
}

void Network::initialise_weights(std::uint64_t seed) {
  Device& device = *compute_.device;
  std::vector<float> master(std::size_t(layout_.count));
  std::vector<float> running(std::size_t(layout_.stats_count));
  layout_.initialise(graph_, seed, master.data(), running.data());
  for (const StoredRange& r : buckets_.stored(layout_.count, whole_master())) {
    const std::int64_t end = std::min(r.end, layout_.count);
    if (end > r.begin)
      device.copy_to_device(Stream::compute, master_data_ + r.offset, master.data() + r.begin,
                            std::size_t(end - r.begin) * sizeof(float));
  }
  device.copy_to_device(Stream::compute, running_.data(), running.data(), running.size() * sizeof(float));
  device.synchronize();
}

void Network::prepare_training(const NetworkSpec& spec, const NetworkPlan& plan) {
  Collective& collective = *compute_.collective;
  const auto count = std::size_t(plan.optimizer.count);
  gradient = collective.allocate(count * sizeof(float));
  stats = collective.allocate(std::max(min_buffer_bytes, std::size_t(layout_.stats_count) * sizeof(float)));
  if (plan.optimizer.loss_positions > 0) loss_weight = collective.allocate(NetworkPlan::loss_weight_bytes);
  if (plan.norm_channels > 0)
    norm_exchange_ = std::make_unique<NormExchange>(compute_.exchange ? *compute_.exchange : collective,
                                                    plan.norm_channels, spec.ranks, spec.rank);
  if (spec.grad_dtype != DType::f32) grad_16bit = collective.allocate(count * size_of(spec.grad_dtype));
  optimizer_ = compute_.backend->make_optimizer(plan.optimizer);
  std::size_t moment_elements = count;
  if (buckets_.sharded()) {
    square_sums_ = square_sum_count(plan.optimizer);
    squares_ = collective.allocate(std::size_t(square_sums_) * sizeof(double));
    weight_all_gather_ = std::make_unique<WeightAllGather>(collective, *compute_.backend, buckets_, layout_.count,
                                                           shared_master_, shared_weights_, dtype_);
    moment_elements = count / std::size_t(buckets_.ranks);
  }
  for (int i = 0; i < plan.optimizer.moment_count(); ++i)
    moments_.push_back(device_buffer(moment_elements * sizeof(float)));
  if (averages_) average_ = std::make_unique<WeightAverage>(compute_, buckets_, layout_.count, master_data_);
  optimizer_args_ = {.master = master_data_,
                     .weights = weights_data_,
                     .gradient = static_cast<float*>(gradient.data),
                     .moment1 = moment(0),
                     .moment2 = moment(1),
                     .running = running_.as<float>(),
                     .stats = static_cast<float*>(stats.data),
                     .state = state_.as<StepState>(),
                     .average = average(),
                     .sums = static_cast<double*>(squares_.data),
                     .loss_weight = static_cast<const double*>(loss_weight.data),
                     .updates = static_cast<float*>(gradient.data)};
  if (plan.optimizer.gathers_updates()) update_buckets_ = buckets_.with_matrices(layout_.count, plan.optimizer);
}

ProgramMemory Network::program_memory() const {
  return {.arena = arena_.data(),
          .packed_weights = packed_weights_.data(),
          .master = master_data_,
          .weights = dtype_ == DType::f32 ? master_data_ : weights_data_,
          .gradient = static_cast<float*>(gradient.data),
          .running = running_.as<float>(),
          .stats = static_cast<float*>(stats.data),
          .state = state_.as<StepState>(),
          .metrics = metrics_.data(),
          .ranks = norm_exchange_.get()};
}

void Network::prepare_programs(NetworkPlan& plan) {
  ProgramMemory memory = program_memory();
  // All programs share the memory, but each has its own packed weights.
  const auto prepare = [&](std::vector<CompiledGraph>& graphs, std::map<std::int64_t, Prepared>& programs) {
    for (CompiledGraph& compiled : graphs) {
      const std::int64_t rows = compiled.graph.rows;
      const std::size_t packed_bytes = compiled.plan.packed_weight_bytes;
      programs[rows].program = std::make_unique<Program>(std::move(compiled), layout_, memory);
      memory.packed_weights = static_cast<char*>(memory.packed_weights) + packed_bytes;
    }
  };
  prepare(plan.train, train_);
  prepare(plan.eval, eval_);
}

Program& Network::repacked_program(std::map<std::int64_t, Prepared>& programs, std::int64_t rows) {
  MR_CHECK(!weight_all_gather_ || complete_ == version_, "the weights of other ranks have not been all-gathered");
  const auto found = programs.find(rows);
  MR_CHECK(found != programs.end(), "no program for {} rows", rows);
  Prepared& prepared = found->second;
  if (prepared.version != version_) {
    prepared.program->repack_weights();
    prepared.version = version_;
  }
  return *prepared.program;
}

Program& Network::step_program(std::int64_t rows) {
  const auto found = train_.find(rows);
  MR_CHECK(found != train_.end(), "no program for {} rows", rows);
  found->second.version = version_;
  return *found->second.program;
}

void Network::complete_weights() {
  if (!weight_all_gather_ || complete_ == version_) return;
  weight_all_gather_->begin();
  weight_all_gather_->finish();
  gathered();
}

void Network::optimizer_step(TimestampSeries timestamps) {
  for (int phase = 0; phase < optimizer_->phases(); ++phase) {
    if (phase > 0 && weight_all_gather_) {
      timestamps.record();
      if (phase == 2 && !update_buckets_.empty())
        for (const Bucket& b : update_buckets_)
          compute_.collective->all_gather_async(gradient, std::size_t(b.begin), std::size_t(b.end - b.begin),
                                                DType::f32, updates_tag);
      else
        compute_.collective->all_reduce_async(squares_, 0, std::size_t(square_sums_), DType::f64, squares_tag);
      compute_.collective->finish();
      timestamps.record();
    }
    optimizer_->run(phase, optimizer_args_);
  }
}

void Network::swap_averages() {
  if (!average_) return;
  average_->swap();
  weights_changed();
  if (weight_all_gather_) complete_ = version_ - 1;  // only this rank's shards were exchanged
}

void Network::restart_averages() {
  if (average_) average_->reset();
}

void Network::weights_changed() {
  ++version_;
  if (dtype_ != DType::f32)
    for (const StoredRange& r : buckets_.stored(layout_.count, whole_master()))
      compute_.backend->convert(static_cast<std::byte*>(weights_data_) + std::size_t(r.begin) * size_of(dtype_), dtype_,
                                master_data_ + r.offset, DType::f32, r.end - r.begin);
  if (whole_master() >= layout_.count) complete_ = version_;
}

}  // namespace millrace
