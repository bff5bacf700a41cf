// Fusion level 3. The result of a norm with ReLU is not stored: the convolution that reads it computes it from the
// source of the norm, while it reads that. The norm only computes a scale and a bias for each channel. In the backward
// pass the norm needs no result either, because the convolution has computed the gradient sums (level 2).
#include <fmt/core.h>

#include "millrace/base/error.hpp"
#include "millrace/model/graph.hpp"

namespace millrace {

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
  return graph;
}

}  // namespace millrace
