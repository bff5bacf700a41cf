// `millrace plan`: describes a run without training.
#include <fmt/core.h>

#include <sstream>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"
#include "millrace/config/keys.hpp"
#include "millrace/data/load/loader.hpp"
#include "millrace/train/session/memory_fit.hpp"
#include "millrace/train/session/session.hpp"
#include "train/checkpoint/load_weights.hpp"
#include "train/session/parameter_rules.hpp"

namespace millrace {
namespace {

void describe_network(std::ostringstream& out, const Graph& graph, const CompiledGraph& compiled) {
  out << fmt::format("  {:<26} {:<14} {:<20} {:>12} {:>10} {:>10}  {}\n", "layer", "operation", "result", "parameters",
                     "MFLOP", "bytes", "implementation");
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    std::int64_t parameters = 0;
    for (int p : node.weight) parameters += graph.parameters[std::size_t(p)].shape.count();
    const bool loss = node.dst < 0;
    const Value* value = loss ? nullptr : &graph.values[std::size_t(node.dst)];
    out << fmt::format("  {:<26} {:<14} {:<20} {:12} {:10.2f} {:>10}  {}\n", node.name, name_of(node.spec),
                       loss ? "-" : value->shape.str().c_str(), parameters, flops_of(node.spec) * 1e-6,
                       loss ? "-" : format_bytes(std::size_t(value->shape.count()) * size_of(value->dtype)).c_str(),
                       compiled.ops[i]->implementation());
  }
  const Cost cost = compiled.cost();
  const bool partly = compiled.only_what_pays && compiled.fusion_level > 1;
  out << "  fusion level " << compiled.fusion_level << (partly ? " where it pays, else 1" : "") << ": at least "
      << format_bytes(std::size_t(cost.bytes)) << " read and written per micro-batch, forward and backward\n";
  const int accumulated = count_stores(compiled.gradient_stores, GradientStore::accumulate);
  const int passes = count_stores(compiled.gradient_stores, GradientStore::add_pass);
  if (accumulated + passes > 0)
    out << fmt::format(
        "  gradients of tensors with several readers: {} added by the layers, {} by passes of their own\n", accumulated,
        passes);
  if (const int count = compiled.schedule.recomputed_count(); count > 0) {
    double flops = 0;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i)
      if (compiled.schedule.recomputes(int(i))) flops += flops_of(graph.nodes[i].spec);
    out << fmt::format("  recomputed in the backward pass: {} of {} operations, {:.2f} MFLOP\n", count,
                       graph.nodes.size(), flops * 1e-6);
  }
  for (const std::string& note : compiled.notes) out << "  not fused: " << note << "\n";
}

}  // namespace

std::string describe_plan(World& world, const RunConfig& config) {
  Session s(world, config, Session::Use::train);
  const MemoryFit fitted = check_memory_fit(s);
  const NetworkPlan& plan = fitted.plan;
  const Graph& graph = plan.train.front().graph;
  std::ostringstream out;
  out << "data: " << s.data.train.selected_rows() << " samples of " << s.data.train.sample.str() << " "
      << name_of(s.data.train.x.dtype) << " in " << s.data.train.shards.size() << " files, "
      << s.data.train_source->describe();
  if (s.data.has_valid) out << "; validation " << s.data.valid.selected_rows();
  if (s.batching.blocks) out << "\norder: " << s.batching.blocks->str();
  if (config.data.shuffle == Shuffle::global)
    if (const std::string advice = block_shuffle_advice(s.data.train, config.data.chunk_cache); !advice.empty())
      out << "\n" << advice;
  out << "\nranks: " << world.size() << " on " << world.node_count() << " hosts; " << s.placement.str() << "\n";
  out << "global batch " << s.batching.global_batch << " = " << world.size() << " ranks x micro-batch "
      << s.batching.micro_batch << " x " << s.accumulation() << " accumulated; " << s.batching.epochs.steps_per_epoch()
      << " steps per epoch, " << s.total_steps() << " in total\n";
  out << "micro-batch sizes: " << graph.rows;
  for (std::size_t p = 1; p < plan.train.size(); ++p) out << ", " << plan.train[p].graph.rows;
  out << " rows\n\nnetwork " << value_text(config, "model.name") << " in " << name_of(s.spec.compute)
      << ", one micro-batch forward:\n";
  describe_network(out, graph, plan.train.front());
  out << "  " << graph.parameter_count() << " parameters; " << format_count(graph.forward_flops())
      << "FLOP forward, about " << format_count(3 * graph.forward_flops()) << "FLOP forward and backward\n"
      << describe_muon(graph, plan.optimizer) << describe_groups(graph, s.spec.groups);
  if (const ModelOptions& m = config.model; !m.weights.empty())
    out << "  model.weights: " << describe_weights(world, s.spec, m.weights, m.weights_skip) << "\n";
  out << "\nmemory per rank:\n";
  const NetworkMemory& m = plan.needs;
  for (const auto& [what, bytes] : {std::pair<const char*, std::size_t>{"parameters", m.parameters},
                                    {"gradients", m.gradients},
                                    {"moments", m.moments},
                                    {"activations and workspace", m.arena},
                                    {"weight copies of the backend", m.packed_weights},
                                    {"metrics of an evaluation", m.metrics},
                                    {"batches read ahead", m.loaders},
                                    {"copy for checkpoints", m.checkpoint_copy},
                                    {"total", m.total()}})
    out << "  " << what << ": " << format_bytes(bytes) << "\n";
  if (m.program > 0) out << "  beside it, the program and its libraries: " << format_bytes(m.program) << "\n";
  out << "  " << s.compute.device->name() << " has " << format_bytes(s.memory_bytes()) << " available\n";
  if (!fitted.problem.empty()) out << "does not fit: " << fitted.problem << "\n";
  const ReducerSpec reducer = s.reducer_spec(plan.layout.count, plan.buckets);
  const auto buckets = reducer.buckets.split(reducer.count);
  out << "\ncommunication: " << s.compute.collective->describe() << "; " << buckets.size() << " buckets of up to "
      << format_bytes(std::size_t(buckets.front().end - buckets.front().begin) * size_of(reducer.grad_dtype)) << " as "
      << name_of(reducer.grad_dtype) << ", the last layers first"
      << (reducer.buckets.sharded()
              ? fmt::format("; each rank reduces and updates its shard of each, then weights are all-gathered as {}",
                            name_of(s.spec.compute))
              : "")
      << "\n";
  return out.str();
}

}  // namespace millrace
