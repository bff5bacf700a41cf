// Fusion level 1 as a graph rewrite: a node is merged into the node before it if it is the only user of that node's
// result.
#include <fmt/core.h>

#include <algorithm>

#include "millrace/model/graph.hpp"

namespace millrace {
namespace {

// The node that produces the value, if the value has exactly one consumer; else -1.
int folds_into(const Graph& graph, int value) { return graph.single_consumer(value) < 0 ? -1 : graph.producer(value); }

// Merges `later` into `earlier`. The merged node produces the value of the later node and takes its place, because
// the other inputs of the later node do not exist before that place.
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
    const int norm = folds_into(graph, add.src[std::size_t(side)]);
    if (norm < 0) continue;
    Node& node = graph.nodes[std::size_t(norm)];
    auto* spec = std::get_if<BatchNormSpec>(&node.spec);
    if (!spec || spec->residual || spec->activation != Activation::none) continue;
    // A node must not compute two gradients of one value that differ.
    if (node.src[0] == add.src[std::size_t(1 - side)]) continue;
    spec->residual = true;
    node.src.push_back(add.src[std::size_t(1 - side)]);
    fold(graph, norm, at);
    return true;
  }
  return false;
}

bool fold_activation(Graph& graph, int at) {
  const auto* activation = std::get_if<ActivationSpec>(&graph.nodes[std::size_t(at)].spec);
  if (!activation) return false;
  const int before = folds_into(graph, graph.nodes[std::size_t(at)].src[0]);
  if (before < 0) return false;
  Spec& spec = graph.nodes[std::size_t(before)].spec;
  auto* norm = std::get_if<BatchNormSpec>(&spec);
  auto* linear = std::get_if<LinearSpec>(&spec);
  // A merged layer keeps the argument of such an activation. Alone, the activation can be recomputed from it.
  const bool recomputed_alone =
      graph.mode == Mode::train && graph.recompute == Recompute::selective && backward_reads_src(activation->kind);
  if (norm && norm->activation == Activation::none && activation->kind == Activation::relu)
    norm->activation = Activation::relu;
  else if (linear && linear->activation == Activation::none && !recomputed_alone)
    linear->activation = activation->kind;
  else
    return false;
  fold(graph, before, at);
  return true;
}

// The rules of a backend, but only the fusions that pay.
class PayingFusions : public FusionRules {
 public:
  static constexpr const char* reason = "it does not pay";
  explicit PayingFusions(FusionRules& all) : all_(all) {}
  int max_fusion_level() const override { return all_.max_fusion_level(); }
  std::int64_t padded_channels(const ConvSpec& s) override { return all_.padded_channels(s); }
  bool merges_norm(const BatchNormSpec& s) const override { return all_.merges_norm(s); }
  bool has_partial_attention() const override { return all_.has_partial_attention(); }
  bool applies_norm_gradient() const override { return all_.applies_norm_gradient(); }
  std::string why_not_fused(const Spec& s) override { return all_.pays(s) ? all_.why_not_fused(s) : reason; }

 private:
  FusionRules& all_;
};

}  // namespace

Graph fuse(Graph graph, int level) {
  if (level < 1) return graph;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    if (fold_add(graph, int(i)) || fold_activation(graph, int(i))) --i;  // a node before this one was erased
  return graph;
}

Graph rewrite(Graph graph, FusionRules& rules, int level, std::vector<std::string>& unfused) {
  graph = chunk_logits(std::move(graph));
  if (level >= 1) graph = drop_unread_positions(std::move(graph), rules);
  graph = fuse(std::move(graph), level);
  if (level >= 1) graph = pad_channels(merge_norms(std::move(graph), rules), rules);
  if (level >= 2) {
    graph = fuse_norms(std::move(graph), rules, unfused);
    if (level >= 3) graph = normalise_in_convs(std::move(graph), rules, unfused);
    graph = fuse_linears(std::move(graph), rules, unfused);
  }
  return level >= 1 ? accumulate_gradients(std::move(graph), rules, unfused) : graph;
}

Graph rewrite_for(FusionRules& rules, Graph graph, int wanted, int& level, std::vector<std::string>& notes) {
  const int most = rules.max_fusion_level();
  level = std::min(wanted < 0 ? rules.default_fusion_level() : wanted, most);
  if (wanted > most) notes.push_back(fmt::format("fusion level {} is not supported. level {} is used", wanted, most));
  if (wanted >= 0) return rewrite(std::move(graph), rules, level, notes);
  PayingFusions paying(rules);
  graph = rewrite(std::move(graph), paying, level, notes);
  std::erase_if(notes, [](const std::string& note) { return note.find(PayingFusions::reason) != note.npos; });
  return graph;
}

}  // namespace millrace
