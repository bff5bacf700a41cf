// Fusion level 1 for batch norms whose neighbours only some backends have kernels for. Synchronised norms take in only
// a ReLU6.
#include "millrace/model/graph.hpp"

namespace millrace {
namespace {

// relu(norm(a) + norm2(b)), as in the first block of each stage of a residual network: norm2, which nothing else reads,
// becomes part of the norm that adds it.
bool merge_residual_norm(Graph& graph, int at, const FusionRules& rules) {
  Node& node = graph.nodes[std::size_t(at)];
  const auto* spec = std::get_if<BatchNormSpec>(&node.spec);
  if (!spec || !spec->residual || spec->synchronised) return false;
  const int other = graph.single_consumer(node.src[1]) < 0 ? -1 : graph.producer(node.src[1]);
  if (other < 0) return false;
  const Node& residual = graph.nodes[std::size_t(other)];
  const auto* norm = std::get_if<BatchNormSpec>(&residual.spec);
  if (!norm || norm->residual || norm->activation != Activation::none || norm->epsilon != spec->epsilon) return false;
  BatchNormSpec merged = *spec;
  merged.residual_norm = true;
  if (!rules.merges_norm(merged)) return false;
  node.spec = merged;
  node.src[1] = residual.src[0];
  node.weight.insert(node.weight.end(), residual.weight.begin(), residual.weight.end());
  node.residual_stats = residual.stats;
  graph.nodes.erase(graph.nodes.begin() + other);
  return true;
}

// The norm and what it feeds become one node, which takes the place of the second.
void replace_both(Graph& graph, int norm, int next, const BatchNormSpec& merged) {
  Node node = graph.nodes[std::size_t(norm)];
  node.spec = merged;
  node.dst = graph.nodes[std::size_t(next)].dst;
  graph.nodes[std::size_t(next)] = std::move(node);
  graph.nodes.erase(graph.nodes.begin() + norm);
}

// maxpool(relu(norm(x))), as in the stem of a residual network, where nothing else reads the result of the norm.
bool merge_pool(Graph& graph, int at, const FusionRules& rules) {
  const Node& pool = graph.nodes[std::size_t(at)];
  const auto* pooling = std::get_if<PoolSpec>(&pool.spec);
  if (!pooling || pooling->kind != PoolSpec::Kind::max || pooling->ceil_mode || graph.single_consumer(pool.src[0]) < 0)
    return false;
  const int before = graph.producer(pool.src[0]);
  const auto* norm = before < 0 ? nullptr : std::get_if<BatchNormSpec>(&graph.nodes[std::size_t(before)].spec);
  if (!norm || norm->residual || norm->synchronised || norm->activation != Activation::relu) return false;
  BatchNormSpec merged = *norm;
  merged.pool = pooling->window;
  std::int64_t taps = 1;
  for (int axis = 0; axis < merged.pool->rank; ++axis) taps *= merged.pool->kernel[std::size_t(axis)];
  if (taps > BatchNormSpec::max_taps || !rules.merges_norm(merged)) return false;
  replace_both(graph, before, at, merged);
  return true;
}

// relu6(norm(x)), with or without a residual. fuse() does the same with a ReLU, for all backends.
bool merge_relu6(Graph& graph, int at, const FusionRules& rules) {
  const Node& node = graph.nodes[std::size_t(at)];
  const auto* activation = std::get_if<ActivationSpec>(&node.spec);
  if (!activation || activation->kind != Activation::relu6 || graph.single_consumer(node.src[0]) < 0) return false;
  const int before = graph.producer(node.src[0]);
  const auto* norm = before < 0 ? nullptr : std::get_if<BatchNormSpec>(&graph.nodes[std::size_t(before)].spec);
  if (!norm || norm->activation != Activation::none) return false;
  BatchNormSpec merged = *norm;
  merged.activation = Activation::relu6;
  if (!rules.merges_norm(merged)) return false;
  replace_both(graph, before, at, merged);
  return true;
}

}  // namespace

Graph merge_norms(Graph graph, const FusionRules& rules) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    if (merge_residual_norm(graph, int(i), rules) || merge_pool(graph, int(i), rules) ||
        merge_relu6(graph, int(i), rules))
      --i;  // a node before this one was erased
  return graph;
}

}  // namespace millrace
