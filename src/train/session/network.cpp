#include "millrace/train/session/network.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

Graph graph_of(const NetworkSpec& spec, std::int64_t rows, Mode mode) {
  ModelBatch batch = spec.batch;
  batch.rows = rows;
  return build_model(spec.model, batch, spec.compute, mode);
}

const Graph& any_graph(const std::vector<CompiledGraph>& train, const std::vector<CompiledGraph>& eval) {
  MR_CHECK(!train.empty() || !eval.empty());
  return train.empty() ? eval.front().graph : train.front().graph;
}

std::vector<CompiledGraph> lower_all(Backend& backend, const NetworkSpec& spec, const std::vector<std::int64_t>& rows,
                                     Mode mode) {
  std::vector<CompiledGraph> out;
  for (const std::int64_t n : rows) out.push_back(compile_graph(backend, graph_of(spec, n, mode), spec.fusion));
  return out;
}

}  // namespace

NetworkPlan plan_network(Backend& backend, const NetworkSpec& spec) {
  auto train = lower_all(backend, spec, spec.train_rows, Mode::train);
  auto eval = lower_all(backend, spec, spec.eval_rows, Mode::infer);
  ParameterLayout layout(any_graph(train, eval));
  OptimizerSpec optimizer = spec.optimizer;
  optimizer.count = spec.buckets.padded(layout.count);
  optimizer.stats_count = layout.stats_count;
  optimizer.segments = layout.segments(any_graph(train, eval), spec.weight_decay, optimizer);
  optimizer.shards = spec.buckets.shards(layout.count);
  optimizer.weight_dtype = spec.buckets.sharded() ? DType::f32 : spec.compute;  // divided: rounded when gathered
  NetworkMemory needs;
  const std::size_t count = std::size_t(train.empty() ? layout.count : optimizer.count),
                    stats = std::size_t(layout.stats_count) * sizeof(float);
  needs.parameters = count * (4 + (spec.compute == DType::f32 ? 0 : size_of(spec.compute))) + stats;
  if (!train.empty()) {
    needs.gradients = count * (4 + (spec.grad_dtype == DType::f32 ? 0 : size_of(spec.grad_dtype))) + stats;
    if (spec.buckets.sharded()) needs.gradients += std::size_t(square_sum_count(optimizer)) * sizeof(double);
    needs.moments = count / std::size_t(spec.buckets.ranks) * 4 * std::size_t(spec.optimizer.moment_count());
  }
  for (const auto* programs : {&train, &eval})
    for (const CompiledGraph& p : *programs) {
      needs.arena = std::max(needs.arena, p.plan.arena_bytes);
      needs.packed_weights += p.plan.packed_weight_bytes;
    }
  return {std::move(train), std::move(eval), std::move(layout), std::move(optimizer), needs};
}

Network::Network(ExecutionContext& compute, const NetworkSpec& spec)
    : Network(compute, spec, plan_network(*compute.backend, spec)) {}

Network::Network(ExecutionContext& compute, const NetworkSpec& spec, NetworkPlan plan)
    : compute_(compute),
      graph_(any_graph(plan.train, plan.eval)),
      layout_(std::move(plan.layout)),
      needs_(plan.needs),
      dtype_(spec.compute) {
  Device& device = *compute.device;
  if (needs_.total() > device.memory_bytes())
    fail(Exit::config, "the network needs ", format_bytes(needs_.total()), " (", format_bytes(needs_.arena),
         " of them for activations), ", device.name(), " has ", format_bytes(device.memory_bytes()),
         ". lower train.micro_batch");
  const bool training = !plan.train.empty(), sharded = training && spec.buckets.sharded();
  const std::size_t count = std::size_t(training ? plan.optimizer.count : layout_.count),
                    stats_bytes = std::max<std::size_t>(64, std::size_t(layout_.stats_count) * 4);
  const auto buffer = [&](std::size_t bytes) {
    return Buffer(device, MemoryKind::device, std::max<std::size_t>(bytes, 64));
  };
  if (sharded) shared_master_ = compute.collective->allocate(count * 4);
  if (!sharded) master_ = buffer(count * 4);
  master_data_ = sharded ? static_cast<float*>(shared_master_.data) : master_.as<float>();
  if (dtype_ != DType::f32) weights_ = buffer(count * size_of(dtype_));
  running_ = buffer(stats_bytes);
  arena_ = buffer(needs_.arena);
  packed_weights_ = buffer(needs_.packed_weights);
  state_ = buffer(sizeof(StepState));
  pushed_ = Buffer(device, MemoryKind::pinned, 2 * sizeof(StepState));
  captured_ = Buffer(device, MemoryKind::pinned, 2 * sizeof(StepState));
  for (auto& event : state_ready_) event = device.make_event();

  std::vector<float> master(std::size_t(layout_.count)), running(std::size_t(layout_.stats_count));
  layout_.initialise(graph_, spec.seed, master.data(), running.data());
  device.copy_to_device(Stream::compute, master_data_, master.data(), master.size() * 4);
  device.copy_to_device(Stream::compute, running_.data(), running.data(), running.size() * 4);
  device.synchronize();

  if (training) {
    gradient = compute.collective->allocate(count * 4);
    stats = compute.collective->allocate(stats_bytes);
    if (spec.grad_dtype != DType::f32) grad_16bit = compute.collective->allocate(count * size_of(spec.grad_dtype));
    optimizer_ = compute.backend->make_optimizer(plan.optimizer);
    if (sharded) {
      buckets_ = spec.buckets;
      square_sums_ = square_sum_count(plan.optimizer);
      squares_ = compute.collective->allocate(std::size_t(square_sums_) * sizeof(double));
      weight_all_gather_ = std::make_unique<WeightAllGather>(*compute.collective, *compute.backend, spec.buckets,
                                                             layout_.count, shared_master_, weights_.data(), dtype_);
    }
    const std::size_t kept = count / std::size_t(sharded ? spec.buckets.ranks : 1);
    for (int i = 0; i < plan.optimizer.moment_count(); ++i) moments_.push_back(buffer(kept * 4));
    optimizer_args_ = {master_data_,
                       weights_.data(),
                       static_cast<float*>(gradient.data),
                       moment(0),
                       moment(1),
                       running_.as<float>(),
                       static_cast<float*>(stats.data),
                       state_.as<StepState>(),
                       static_cast<double*>(squares_.data)};
  }

  ProgramMemory memory{arena_.data(),
                       packed_weights_.data(),
                       master_data_,
                       dtype_ == DType::f32 ? master_data_ : weights_.data(),
                       static_cast<float*>(gradient.data),
                       running_.as<float>(),
                       static_cast<float*>(stats.data),
                       state_.as<StepState>()};
  for (auto* side : {&plan.train, &plan.eval})
    for (CompiledGraph& compiled : *side) {
      const std::int64_t rows = compiled.graph.rows;
      const std::size_t packed_weights = compiled.plan.packed_weight_bytes;
      auto& programs = side == &plan.train ? train_ : eval_;
      programs[rows].program = std::make_unique<Program>(std::move(compiled), layout_, memory);
      memory.packed_weights = static_cast<char*>(memory.packed_weights) + packed_weights;
    }
  weights_changed();
  push_state();
}

Program& Network::repacked_program(std::map<std::int64_t, Prepared>& programs, std::int64_t rows) {
  MR_CHECK(!weight_all_gather_ || complete_ == version_, "weights of other ranks are missing");
  const auto found = programs.find(rows);
  MR_CHECK(found != programs.end(), "no program for ", rows, " rows");
  Prepared& prepared = found->second;
  if (prepared.version != version_) prepared.program->repack_weights(), prepared.version = version_;
  return *prepared.program;
}

Program& Network::step_program(std::int64_t rows) {
  const auto found = train_.find(rows);
  MR_CHECK(found != train_.end(), "no program for ", rows, " rows");
  found->second.version = version_;
  return *found->second.program;
}

void Network::complete_weights() {
  if (!weight_all_gather_ || complete_ == version_) return;
  weight_all_gather_->begin();
  weight_all_gather_->finish();
  gathered();
}

void Network::write_step(int slot) { pushed_.as<StepState>()[slot] = host_state_; }

void Network::push_step(int slot) {
  compute_.device->copy_to_device(Stream::compute, state_.data(), pushed_.as<StepState>() + slot,
                                  StepState::host_bytes());
}

void Network::push_state() {
  compute_.device->copy_to_device(Stream::compute, state_.data(), &host_state_, sizeof(StepState));
  compute_.device->synchronize();
}

void Network::copy_state_to_host(int slot) {
  compute_.device->copy_to_host(Stream::compute, captured_.as<StepState>() + slot, state_.data(), sizeof(StepState));
  state_ready_[std::size_t(slot)]->record(Stream::compute);
}

const StepState& Network::read_state(int slot) {
  state_ready_[std::size_t(slot)]->synchronize();
  return captured_.as<StepState>()[slot];
}

void Network::optimizer_step(TimestampSeries marks) {
  for (int part = 0; part < optimizer_->phases(); ++part) {
    if (part > 0 && weight_all_gather_) {
      marks.record();
      compute_.collective->all_reduce_async(squares_, 0, std::size_t(square_sums_), DType::f64, squares_tag);
      compute_.collective->finish();
      marks.record();
    }
    optimizer_->run(part, optimizer_args_);
  }
}

void Network::clear_statistics() {
  if (stats.data) compute_.device->fill_zero(Stream::compute, stats.data, std::size_t(layout_.stats_count) * 4);
}

void Network::weights_changed() {
  if (dtype_ != DType::f32) compute_.backend->convert(weights_.data(), dtype_, master_data_, DType::f32, layout_.count);
  complete_ = ++version_;
}

}  // namespace millrace
