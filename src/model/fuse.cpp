// Fusion as graph rewrites: a node is folded into the one before it when that one's result has no other user.
#include <algorithm>

#include "millrace/model/graph.hpp"

namespace millrace {
namespace {

int user_count(const Graph& graph, int value) {
  int users = 0;
  for (const auto& node : graph.nodes) users += int(std::count(node.src.begin(), node.src.end(), value));
  return users;
}

Node* producer(Graph& graph, int value) {
  for (auto& node : graph.nodes)
    if (node.dst == value) return &node;
  return nullptr;
}

int position(const Graph& graph, const Node* node) { return int(node - graph.nodes.data()); }

// Folds `later` into `earlier`: the earlier node makes the later one's value, at the later one's place (its other
// inputs exist only then).
void fold(Graph& graph, int earlier, int later) {
  Node merged = graph.nodes[std::size_t(earlier)];
  merged.dst = graph.nodes[std::size_t(later)].dst;
  graph.nodes[std::size_t(later)] = std::move(merged);
  graph.nodes.erase(graph.nodes.begin() + earlier);
}

bool fold_add(Graph& graph, int at) {
  const Node add = graph.nodes[std::size_t(at)];
  if (!std::holds_alternative<AddSpec>(add.spec) || add.src[0] == add.src[1]) return false;
  for (int side = 0; side < 2; ++side) {
    Node* norm = producer(graph, add.src[std::size_t(side)]);
    if (!norm || user_count(graph, norm->dst) != 1) continue;
    auto* spec = std::get_if<BatchNormSpec>(&norm->spec);
    if (!spec || spec->residual || spec->activation != Activation::none) continue;
    spec->residual = true;
    norm->src.push_back(add.src[std::size_t(1 - side)]);
    fold(graph, position(graph, norm), at);
    return true;
  }
  return false;
}

bool fold_activation(Graph& graph, int at) {
  const auto* activation = std::get_if<ActivationSpec>(&graph.nodes[std::size_t(at)].spec);
  if (!activation) return false;
  Node* before = producer(graph, graph.nodes[std::size_t(at)].src[0]);
  if (!before || user_count(graph, before->dst) != 1) return false;
  auto* norm = std::get_if<BatchNormSpec>(&before->spec);
  auto* linear = std::get_if<LinearSpec>(&before->spec);
  if (norm && norm->activation == Activation::none && activation->kind == Activation::relu)
    norm->activation = Activation::relu;
  else if (linear && linear->activation == Activation::none)
    linear->activation = activation->kind;
  else
    return false;
  fold(graph, position(graph, before), at);
  return true;
}

}  // namespace

Graph fuse(Graph graph, int level) {
  if (level < 1) return graph;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    if (fold_add(graph, int(i)) || fold_activation(graph, int(i)))
      --i;  // the list got shorter by one before this place
  return graph;
}

}  // namespace millrace
