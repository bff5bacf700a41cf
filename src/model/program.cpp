#include "millrace/model/program.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

char* at(void* base, std::size_t offset) { return static_cast<char*>(base) + offset; }

}  // namespace

// set_readers() changes src only. A convolution that shares values with a norm also points to the source of the norm.
bool can_leave_out_input(const Graph& graph, const Op& op) {
  const Node& input = graph.nodes.front();
  const auto needs_copy = [&](const Node& node) {
    return (node.dst < 0 && node.src[0] == input.dst) ||
           (node.norm >= 0 && graph.nodes[std::size_t(node.norm)].src[0] == input.dst);
  };
  return std::holds_alternative<InputSpec>(input.spec) && op.is_copy() &&
         std::ranges::count(graph.outputs, input.dst) == 0 && std::ranges::none_of(graph.nodes, needs_copy);
}

struct Program::Binding {
  const ProgramMemory& memory;
  std::vector<Tensor> diffs, extras;  // by value: its gradient, and scratch for a further contribution to it
};

void* Program::region(const ProgramMemory& memory, int number) const {
  return number < 0 ? nullptr : at(memory.arena, compiled_.plan.regions[std::size_t(number)].offset);
}

Program::Program(CompiledGraph compiled, const ParameterLayout& layout, const ProgramMemory& memory)
    : compiled_(std::move(compiled)), layout_(layout) {
  const Graph& graph = compiled_.graph;
  Binding binding{memory, {}, {}};
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    values_.push_back({region(memory, compiled_.value_region[v]), value.dtype, value.shape});
    binding.diffs.push_back({region(memory, compiled_.diff_region[v]), value.dtype, value.shape});
    binding.extras.push_back({region(memory, compiled_.extra_region[v]), value.dtype, value.shape});
  }
  const std::size_t n = graph.nodes.size();
  args_.resize(n);
  for (const Node& node : graph.nodes)
    labels_.push_back(
        {node.name + " forward", node.name + " recompute", node.name + " backward", node.name + " weights"});
  unused_stats_ = static_cast<float*>(region(memory, compiled_.unused_stats_region));
  additions_.resize(n);
  first_user_.assign(graph.parameters.size(), -1);
  std::int64_t metrics = 0;  // of the losses before this one
  for (const int loss : graph.losses()) {
    if (memory.metrics) args_[std::size_t(loss)].metrics = static_cast<std::uint64_t*>(memory.metrics) + metrics;
    metrics += metric_count(graph.nodes[std::size_t(loss)].spec);
  }
  for (std::size_t i = n; i-- > 0;) {
    OpArgs& args = args_[i];
    args.state = memory.state;
    args.ranks = memory.ranks;
    args.workspace = region(memory, compiled_.workspace_region);
    args.saved = region(memory, compiled_.saved_region[i]);
    if (const auto offset = compiled_.packed_weight_offset[i]) args.packed_weights = at(memory.packed_weights, *offset);
    if (memory.cache) args.cache = at(memory.cache, compiled_.cache_offset[i]);
    bind_values(i, binding);
    bind_weights(i, memory);
    bind_norm(i, memory);
  }
  find_final_parameters();
}

void Program::bind_values(std::size_t i, Binding& binding) {
  const Graph& graph = compiled_.graph;
  const Node& node = graph.nodes[i];
  OpArgs& args = args_[i];
  if (node.dst >= 0) {
    args.dst = values_[std::size_t(node.dst)];
    args.diff_dst = binding.diffs[std::size_t(node.dst)];
  }
  for (std::size_t s = 0; s < node.src.size(); ++s) {
    const std::size_t v = std::size_t(node.src[s]);
    args.src[s] = values_[v];
    const GradientStore store = compiled_.gradient_stores[i][s];
    if (store == GradientStore::none) continue;
    args.diff_src[s] = store == GradientStore::add_pass ? binding.extras[v] : binding.diffs[v];
    if (store != GradientStore::add_pass) continue;
    OpArgs sum;
    sum.src[0] = sum.dst = binding.diffs[v];
    sum.src[1] = binding.extras[v];
    sum.workspace = args.workspace;
    sum.state = binding.memory.state;
    additions_[i].push_back({int(v), sum});
  }
  const auto shared = [&](int value) { return value < 0 ? Tensor{} : values_[std::size_t(value)]; };
  args.sums = shared(node.sums);
  args.residual_sums = shared(node.residual_sums);
  args.moments = shared(node.moments);
  args.diff_sums = shared(node.diff_sums);
  args.affine = shared(node.affine);
  args.diff_affine = shared(node.diff_affine);
  args.diff_bias = shared(node.diff_bias);
  args.src_diff_bias = shared(node.src_diff_bias);
  if (node.previous_linear >= 0)
    args.src_saved = region(binding.memory, compiled_.saved_region[std::size_t(node.previous_linear)]);
}

void Program::bind_weights(std::size_t i, const ProgramMemory& memory) {
  const Graph& graph = compiled_.graph;
  const Node& node = graph.nodes[i];
  OpArgs& args = args_[i];
  for (std::size_t w = 0; w < node.weight.size(); ++w) {
    const std::size_t p = std::size_t(node.weight[w]);
    const Parameter& parameter = graph.parameters[p];
    const auto begin = layout_.parameters[p].begin;
    const DType dtype = graph.dtype_of(parameter);
    args.weight[w] = dtype == DType::f32
                         ? Tensor{memory.master + begin, dtype, parameter.shape}
                         : Tensor{at(memory.weights, std::size_t(begin) * size_of(dtype)), dtype, parameter.shape};
    if (memory.gradient) args.diff_weight[w] = {memory.gradient + begin, DType::f32, parameter.shape};
    if (first_user_[p] < 0) first_user_[p] = int(i);
  }
}

// Binds the statistics of a batch norm. For a convolution that computes the gradient sums of the norm before it, binds
// what it reads of that norm.
void Program::bind_norm(std::size_t i, const ProgramMemory& memory) {
  const Graph& graph = compiled_.graph;
  const Node& node = graph.nodes[i];
  OpArgs& args = args_[i];
  if (node.norm >= 0) {
    const Node& norm = graph.nodes[std::size_t(node.norm)];
    args.norm_src = values_[std::size_t(norm.src[0])];
    if (node.affine >= 0) args.src[0] = args.norm_src;
    for (const std::size_t w : {0, 1}) {
      const std::size_t p = std::size_t(norm.weight[w]);
      args.weight[2 + w] = {memory.master + layout_.parameters[p].begin, DType::f32, graph.parameters[p].shape};
    }
  }
  // The running values lie behind the parameters.
  const auto bind = [&](int index, Tensor& stats, std::size_t weight) {
    if (index < 0) return;
    const auto& slot = layout_.stats[std::size_t(index)];
    const std::int64_t channels = slot.count / 2;
    if (memory.stats) stats = {memory.stats + slot.begin, DType::f32, {2, channels}};
    args.weight[weight] = {memory.running + slot.begin, DType::f32, {channels}};
    args.weight[weight + 1] = {memory.running + slot.begin + channels, DType::f32, {channels}};
  };
  bind(node.stats, args.stats, node.weight.size());
  bind(node.residual_stats, args.residual_stats, node.weight.size() + 2);
}

// The gradient of a parameter is final after the backward pass of its first user in forward order, because that user
// runs last in the backward pass.
void Program::find_final_parameters() {
  const Graph& graph = compiled_.graph;
  final_params_after_.resize(graph.nodes.size());
  std::vector<bool> seen(graph.parameters.size(), false);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    for (int p : graph.nodes[i].weight)
      if (!seen[std::size_t(p)]) {
        seen[std::size_t(p)] = true;
        final_params_after_[i].push_back(p);
      }
}

const Tensor& Program::prediction() const {
  for (const Node& node : compiled_.graph.nodes)
    if (node.dst < 0) return value(node.src[0]);
  MR_CHECK(false, "the graph has no loss");
}

void Program::repack_weights() {
  for (std::size_t i = 0; i < args_.size(); ++i) repack(i);
}

// An operation without packed weights has nothing to do, and gets no label: each label is a breadcrumb of the GPU.
void Program::repack(std::size_t i) {
  if (!compiled_.packed_weight_offset[i]) return;
  const ScopedLabel here(*compiled_.device, labels_[i].repack.c_str());
  compiled_.ops[i]->repack(args_[i]);
}

void Program::await_weights(std::size_t i, ParamReadyHook& gate) {
  for (const int p : compiled_.graph.nodes[i].weight) {
    const auto& slot = layout_.parameters[std::size_t(p)];
    gate.wait_for(slot.begin, slot.end);
  }
}

void Program::forward(const Tensor& x, const Tensor& y, const Tensor& ids, bool first, ParamReadyHook* gate,
                      TimestampSeries around_input) {
  const Graph& graph = compiled_.graph;
  MR_CHECK(x.shape == graph.values[Graph::x].shape, "the batch has the shape {}, the program expects {}", x.shape.str(),
           graph.values[Graph::x].shape.str());
  set_readers(Graph::x, x.data);
  set_readers(Graph::y, y.data);
  set_readers(Graph::ids, ids.data);
  if (compiled_.leaves_out_input) set_readers(graph.nodes.front().dst, x.data);
  for (std::size_t i = 0; i < args_.size(); ++i) {
    OpArgs& args = args_[i];
    args.stats_mode = first ? GradMode::write : GradMode::add;
    if (gate) {
      await_weights(i, *gate);
      repack(i);
    }
    if (graph.nodes[i].dst < 0) set_modes(i, first);  // a loss may compute gradients of weights in its forward pass
    const ScopedLabel here(*compiled_.device, labels_[i].forward.c_str());
    if (i == 0) around_input.record();
    if (i == 0 && !has_input_pass()) around_input.record();
    if (runs(int(i))) compiled_.ops[i]->forward(args);
    if (i == 0 && has_input_pass()) around_input.record();
  }
}

void Program::set_readers(int value, void* data) {
  for (std::size_t i = 0; i < args_.size(); ++i) {
    const Node& node = compiled_.graph.nodes[i];
    for (std::size_t s = 0; s < node.src.size(); ++s)
      if (node.src[s] == value) args_[i].src[s].data = data;
  }
}

void Program::set_modes(std::size_t i, bool first) {
  const auto& weight = compiled_.graph.nodes[i].weight;
  for (std::size_t w = 0; w < weight.size(); ++w)
    args_[i].mode[w] = first && first_user_[std::size_t(weight[w])] == int(i) ? GradMode::write : GradMode::add;
}

void Program::backward_node(int i, bool first) {
  const ScopedLabel here(*compiled_.device, labels_[std::size_t(i)].backward.c_str());
  set_modes(std::size_t(i), first);
  compiled_.ops[std::size_t(i)]->backward(args_[std::size_t(i)]);
  for (const Addition& addition : additions_[std::size_t(i)])
    compiled_.gradient_adders[std::size_t(addition.value)]->forward(addition.args);
}

// The statistics of the micro-batch may already be on their way to the other ranks.
void Program::recompute_node(int i) {
  const ScopedLabel here(*compiled_.device, labels_[std::size_t(i)].recompute.c_str());
  OpArgs args = args_[std::size_t(i)];
  for (Tensor* stats : {&args.stats, &args.residual_stats})
    if (stats->data) stats->data = unused_stats_;
  args.stats_mode = GradMode::write;
  compiled_.ops[std::size_t(i)]->forward(args);
}

void Program::backward(bool first, GradReadyHook* sink) {
  for (const BackwardStep& step : compiled_.schedule.steps) {
    if (step.work == NodeWork::recompute) {
      recompute_node(step.node);
      continue;
    }
    backward_node(step.node, first);
    announce_gradients(step.node, sink);
  }
}

void Program::announce_gradients(int node, GradReadyHook* sink) {
  if (!sink) return;
  for (const int p : final_params_after_[std::size_t(node)]) {
    const auto& slot = layout_.parameters[std::size_t(p)];
    sink->on_gradient_ready(slot.begin, slot.end);
  }
}

std::optional<OpArgs> Program::args_without_rows(int node) const {
  const auto* norm = std::get_if<BatchNormSpec>(&compiled_.graph.nodes[std::size_t(node)].spec);
  OpArgs args = args_[std::size_t(node)];
  if (!norm || !norm->synchronised || !args.ranks) return std::nullopt;
  args.without_rows = true;
  return args;
}

void Program::forward_without_rows(ParamReadyHook* gate) {
  for (std::size_t i = 0; i < args_.size(); ++i) {
    if (gate) await_weights(i, *gate);
    if (const auto args = args_without_rows(int(i))) {
      const ScopedLabel here(*compiled_.device, labels_[i].forward.c_str());
      compiled_.ops[i]->forward(*args);
    }
  }
}

void Program::backward_without_rows(GradReadyHook* sink) {
  for (const BackwardStep& step : compiled_.schedule.steps) {
    if (step.work == NodeWork::recompute) continue;
    if (const auto args = args_without_rows(step.node)) {
      const ScopedLabel here(*compiled_.device, labels_[std::size_t(step.node)].backward.c_str());
      compiled_.ops[std::size_t(step.node)]->backward(*args);
    }
    announce_gradients(step.node, sink);
  }
}

void Program::run_node(int node, bool backward) {
  if (backward) return backward_node(node, true);
  if (runs(node)) compiled_.ops[std::size_t(node)]->forward(args_[std::size_t(node)]);
}

}  // namespace millrace
