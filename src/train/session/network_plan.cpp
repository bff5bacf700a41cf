// What a Network needs, before anything is allocated: its compiled graphs, their order of parameters, and their sizes.
#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/train/session/network.hpp"
#include "train/session/parameter_rules.hpp"

namespace millrace {
namespace {

const Graph& any_graph(const std::vector<CompiledGraph>& train, const std::vector<CompiledGraph>& eval) {
  MR_CHECK(!train.empty() || !eval.empty());
  return train.empty() ? eval.front().graph : train.front().graph;
}

std::vector<CompiledGraph> compile_all(Backend& backend, const NetworkSpec& spec, const std::vector<std::int64_t>& rows,
                                       Mode mode) {
  std::vector<CompiledGraph> out;
  for (const std::int64_t n : rows) out.push_back(compile_graph(backend, graph_of(spec, n, mode), spec.fusion));
  return out;
}

NetworkMemory memory_of(const NetworkSpec& spec, const NetworkPlan& plan) {
  const bool training = !plan.train.empty();
  const auto count = std::size_t(plan.buckets.padded(plan.layout.count));
  const std::size_t stats = std::size_t(plan.layout.stats_count) * sizeof(float);
  const auto bytes_of_16bit = [&](DType type) { return type == DType::f32 ? 0 : count * size_of(type); };
  NetworkMemory out;
  out.parameters = plan.master_count() * sizeof(float) + bytes_of_16bit(spec.compute) + stats;
  if (training) {
    out.gradients = count * sizeof(float) + bytes_of_16bit(spec.grad_dtype) + stats;
    if (plan.norm_channels > 0) out.gradients += NormExchange::bytes(plan.norm_channels, spec.ranks);
    if (plan.optimizer.loss_positions > 0) out.gradients += NetworkPlan::loss_weight_bytes;
    if (plan.buckets.sharded()) out.gradients += std::size_t(square_sum_count(plan.optimizer)) * sizeof(double);
    out.moments = count / std::size_t(plan.buckets.ranks) * sizeof(float) * std::size_t(spec.optimizer.moment_count());
    out.moments += std::size_t(NewtonSchulz::workspace(plan.optimizer).count()) * sizeof(float);
    if (spec.optimizer.average > 0) out.moments += WeightAverage::bytes(plan.buckets, plan.layout.count);
  }
  for (const auto* graphs : {&plan.train, &plan.eval})
    for (const CompiledGraph& compiled : *graphs) {
      out.arena = std::max(out.arena, compiled.plan.arena_bytes);
      out.packed_weights += compiled.plan.packed_weight_bytes;
    }
  if (plan.eval.empty() || spec.model.tokens)
    return out;  // of language, only the loss and the accuracy are of interest
  const Graph& graph = plan.eval.front().graph;
  for (const int loss : graph.losses())
    out.metrics += 8 * std::size_t(metric_count(graph.nodes[std::size_t(loss)].spec));
  return out;
}

void synchronise_norms(Graph& graph, int ranks) {
  bool found = false;
  for (Node& node : graph.nodes)
    if (auto* norm = std::get_if<BatchNormSpec>(&node.spec)) {
      norm->synchronised = ranks > 1;
      found = true;
    }
  if (!found) fail(Exit::config, "model.sync_batch_norm: the network has no batch norm. remove the key");
}

// The channels of the widest norm.
std::int64_t most_channels(const Graph& graph) {
  std::int64_t most = 0;
  for (const RunningStats& norm : graph.stats) most = std::max(most, norm.channels);
  return most;
}

}  // namespace

const Graph& NetworkPlan::any_graph() const { return millrace::any_graph(train, eval); }

// Elements of the master weights that a rank stores.
std::size_t NetworkPlan::master_count() const {
  const std::int64_t whole = buckets.whole(layout.count);
  return std::size_t(whole + (buckets.padded(layout.count) - whole) / buckets.ranks);
}

Graph graph_of(const NetworkSpec& spec, std::int64_t rows, Mode mode) {
  ModelBatch batch = spec.batch;
  batch.rows = rows;
  Graph graph = build_model(spec.model, batch, spec.compute, mode);
  graph.recompute = spec.recompute;
  graph.logits_memory = spec.logits_memory;
  if (spec.sync_batch_norm && mode == Mode::train) synchronise_norms(graph, spec.ranks);
  return mode == Mode::infer && !spec.outputs.empty() ? keep_outputs(std::move(graph), spec.outputs) : graph;
}

BucketSpec complete_buckets(const NetworkSpec& spec, const ParameterLayout& layout) {
  BucketSpec out = spec.buckets;
  out.f32_count = layout.f32_count;
  if (spec.train_rows.empty()) out.ranks = 1;
  return out;
}

// Norms of imported networks bring their momentum. Neighbours with the same one are one part.
std::vector<OptimizerSpec::StatsPart> own_momenta(const Graph& graph, const ParameterLayout& layout, float others) {
  std::vector<OptimizerSpec::StatsPart> out;
  for (std::size_t i = 0; i < graph.stats.size(); ++i) {
    const ParameterLayout::Slot& slot = layout.stats[i];
    const float momentum = graph.stats[i].momentum > 0 ? graph.stats[i].momentum : others;
    if (out.empty() || out.back().momentum != momentum) out.push_back({slot.begin, 0, momentum});
    out.back().count = slot.end - out.back().begin;
  }
  return out;
}

OptimizerSpec complete_optimizer(const NetworkSpec& spec, const Graph& graph, const ParameterLayout& layout,
                                 const BucketSpec& buckets) {
  OptimizerSpec out = spec.optimizer;
  out.count = buckets.padded(layout.count);
  out.stats_count = layout.stats_count;
  out.own_momenta = own_momenta(graph, layout, out.stats_momentum);
  out.segments = layout.segments(parameter_rules(graph, out.kind, spec.weight_decay, spec.groups), out);
  out.shards = buckets.shards(layout.count);
  out.whole_master = buckets.whole(layout.count);
  out.weight_dtype = spec.compute;
  if (spec.weighted_loss) out.loss_positions = terms_of_row(graph.nodes.back().spec);
  return out;
}

NetworkPlan plan_network(Backend& backend, const NetworkSpec& spec) {
  auto train = compile_all(backend, spec, spec.train_rows, Mode::train);
  auto eval = compile_all(backend, spec, spec.eval_rows, Mode::infer);
  ParameterLayout layout(any_graph(train, eval));
  const BucketSpec buckets = complete_buckets(spec, layout);
  const OptimizerSpec optimizer = complete_optimizer(spec, any_graph(train, eval), layout, buckets);
  NetworkPlan out{std::move(train), std::move(eval), std::move(layout), optimizer, buckets, {}, 0};
  if (spec.sync_batch_norm && spec.ranks > 1 && !out.train.empty()) out.norm_channels = most_channels(out.any_graph());
  out.needs = memory_of(spec, out);
  return out;
}

}  // namespace millrace
