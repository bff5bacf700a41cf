// Fusion level 3. The result of a norm with ReLU or ReLU6 is not stored: the convolution that reads it computes it from
// the source of the norm, while it reads that. The norm only computes values for each channel. In the backward pass the
// norm needs no result either, because the convolution has computed the gradient sums (level 2). On the CPU the
// convolution before the norm also computes the gradient of the norm, so that this is not stored either.
#include <fmt/core.h>

#include "millrace/base/error.hpp"
#include "millrace/model/graph.hpp"

namespace millrace {
namespace {

// The gradient of a norm is not stored either, if the convolution before it can compute it: the gradient that the
// convolution behind has written is then read in its place.
void apply_norm_gradients(Graph& graph, FusionRules& rules, std::vector<std::string>& unfused) {
  for (Node& norm : graph.nodes) {
    auto* spec = std::get_if<BatchNormSpec>(&norm.spec);
    if (!spec || !spec->consumes_diff_sums) continue;
    const int before = graph.single_consumer(norm.src[0]) < 0 ? -1 : graph.producer(norm.src[0]);
    Node* node = before < 0 ? nullptr : &graph.nodes[std::size_t(before)];
    auto* conv = node ? std::get_if<ConvSpec>(&node->spec) : nullptr;
    if (!conv) continue;
    ConvSpec asked = *conv;
    asked.normalises_diff_dst = true;
    if (const std::string why = rules.why_not_fused(asked); !why.empty()) {
      unfused.push_back(fmt::format("{}: its gradient is stored, not computed by {} ({})", norm.name, node->name, why));
      continue;
    }
    conv->normalises_diff_dst = spec->produces_diff_affine = true;
    graph.values.push_back({norm.name + ".diff_affine", {4, spec->src[-1]}, DType::f32, false});
    node->diff_affine = norm.diff_affine = int(graph.values.size()) - 1;
  }
}

}  // namespace

Graph normalise_in_convs(Graph graph, FusionRules& rules, std::vector<std::string>& unfused) {
  for (Node& conv : graph.nodes) {
    auto* spec = std::get_if<ConvSpec>(&conv.spec);
    if (!spec || !spec->produces_diff_sums) continue;
    Node& norm = graph.nodes[std::size_t(conv.norm)];
    ConvSpec asked = *spec;
    asked.normalises_src = true;
    if (const std::string why = rules.why_not_fused(asked); !why.empty()) {
      unfused.push_back(fmt::format("{}: its result is stored, not computed by {} ({})", norm.name, conv.name, why));
      continue;
    }
    spec->normalises_src = std::get<BatchNormSpec>(norm.spec).produces_affine = true;
    graph.values.push_back({norm.name + ".affine", {2, spec->src[-1]}, graph.dtype, false});
    conv.affine = norm.affine = int(graph.values.size()) - 1;
  }
  if (rules.applies_norm_gradient()) apply_norm_gradients(graph, rules, unfused);
  return graph;
}

}  // namespace millrace
