// Where a value has several readers, its gradient is the sum of what they compute. The first reader that runs backward
// writes it. A later one adds to it while its own result is still in registers, if its operation can; otherwise it
// writes to scratch memory, and a pass of its own adds that. The gradient of a sum is that of its summands, so they
// share its memory where they can: along a residual network all blocks add to the same tensor. All of this is decided
// here.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "millrace/base/error.hpp"
#include "millrace/model/graph.hpp"

namespace millrace {
namespace {

bool accumulates(const Spec& spec) {
  return std::visit(
      [](const auto& s) {
        if constexpr (requires { s.accumulates_diff_src; }) return s.accumulates_diff_src;
        return false;
      },
      spec);
}

// The same operation with accumulates_diff_src and no other fusion that the backend was asked about before; nullopt: it
// can only write its gradient.
std::optional<Spec> accumulating(const Spec& spec) {
  if (const auto* conv = std::get_if<ConvSpec>(&spec)) {
    ConvSpec asked = *conv;
    asked.produces_sums = false;
    asked.accumulates_diff_src = true;
    return asked;
  }
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) {
    LinearSpec asked = *linear;
    asked.consumes_diff_pre = asked.consumes_diff_bias = false;
    asked.accumulates_diff_src = true;
    return asked;
  }
  if (const auto* norm = std::get_if<LayerNormSpec>(&spec)) {
    LayerNormSpec asked = *norm;
    asked.accumulates_diff_src = true;
    return asked;
  }
  return std::nullopt;
}

void accumulate(Spec& spec) {
  if (auto* conv = std::get_if<ConvSpec>(&spec)) conv->accumulates_diff_src = true;
  if (auto* linear = std::get_if<LinearSpec>(&spec)) linear->accumulates_diff_src = true;
  if (auto* norm = std::get_if<LayerNormSpec>(&spec)) norm->accumulates_diff_src = true;
}

// Decides which sources of an addition share the memory of their gradient with the result. stores: of the addition i.
// Of two sources, the one that was computed later is read first in the backward pass. It may share too if nothing adds
// to the memory before that, and if no other reader adds to its own gradient, which the other source would see.
void share(const Graph& graph, std::size_t i, GradientStores& stores) {
  const Node& node = graph.nodes[i];
  const auto can = [&](std::size_t s) {
    const int producer = graph.producer(node.src[s]);
    return stores[s] == GradientStore::write && producer >= 0 &&
           !std::holds_alternative<ReshapeSpec>(graph.nodes[std::size_t(producer)].spec);
  };
  if (!can(0) && !can(1)) return;
  const std::size_t made_first =
      !can(1) || (can(0) && graph.producer(node.src[0]) < graph.producer(node.src[1])) ? 0 : 1;
  const std::size_t made_last = 1 - made_first;
  stores[made_first] = GradientStore::shared;
  if (!can(made_last) || graph.single_consumer(node.src[made_last]) < 0) return;
  const int producer = graph.producer(node.src[made_last]);
  if (std::holds_alternative<AddSpec>(graph.nodes[std::size_t(producer)].spec)) return;  // its sources may be added to
  // From its producer on, which must not add to the gradient that it still reads.
  for (int reader = producer; reader < int(i); ++reader)
    if (std::ranges::count(graph.nodes[std::size_t(reader)].src, node.src[made_first]) > 0) return;
  stores[made_last] = GradientStore::shared;
}

}  // namespace

std::vector<GradientStores> gradient_stores(const Graph& graph) {
  std::vector<GradientStores> out(graph.nodes.size(), GradientStores{});
  std::vector<bool> written(graph.values.size(), false);
  if (graph.mode != Mode::train) return out;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    for (std::size_t s = 0; s < node.src.size(); ++s) {
      const std::size_t v = std::size_t(node.src[s]);
      if (!graph.values[v].needs_grad) continue;
      out[i][s] = !written[v]              ? GradientStore::write
                  : accumulates(node.spec) ? GradientStore::accumulate
                                           : GradientStore::add_pass;
      MR_CHECK(written[v] || !accumulates(node.spec), "{} adds to a gradient that nothing wrote", node.name);
      written[v] = true;
    }
    const auto* norm = std::get_if<BatchNormSpec>(&node.spec);
    if (norm && norm->produces_diff_affine) out[i][0] = GradientStore::shared;
    if (std::holds_alternative<AddSpec>(node.spec)) share(graph, i, out[i]);
  }
  return out;
}

int count_stores(const std::vector<GradientStores>& stores, GradientStore kind) {
  int count = 0;
  for (const GradientStores& of_node : stores)
    for (const GradientStore store : of_node) count += store == kind;
  return count;
}

Graph accumulate_gradients(Graph graph, FusionRules& rules, std::vector<std::string>& unfused) {
  const auto stores = gradient_stores(graph);
  std::map<std::string, int> refused;  // by reason: how many
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    if (stores[i][0] != GradientStore::add_pass) continue;
    const auto asked = accumulating(graph.nodes[i].spec);
    if (!asked) continue;
    const std::string why = rules.why_not_fused(*asked);
    if (why.empty())
      accumulate(graph.nodes[i].spec);
    else
      ++refused[why];
  }
  for (const auto& [why, count] : refused)
    unfused.push_back(
        fmt::format("{} gradients of tensors with several readers are added by passes of their own ({})", count, why));
  return graph;
}

}  // namespace millrace
