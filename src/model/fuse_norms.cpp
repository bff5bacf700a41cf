// Fusion level 2 for batch norms. A convolution that writes or reads the tensor of a norm also computes the norm's sums
// over it, so the norm itself needs only one pass over the tensor in each direction. Nodes are not merged; they share
// small values.
#include <fmt/core.h>

#include "millrace/base/error.hpp"
#include "millrace/model/graph.hpp"

namespace millrace {
namespace {

class NormFusion {
 public:
  NormFusion(Graph& graph, FusionRules& rules, std::vector<std::string>& unfused)
      : graph_(graph), rules_(rules), unfused_(unfused) {}

  void run() {
    if (graph_.mode != Mode::train) return;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!std::holds_alternative<BatchNormSpec>(graph_.nodes[i].spec)) continue;
      sums_from_before(graph_.nodes[i], 0, &BatchNormSpec::consumes_sums, &Node::sums);
      if (std::get<BatchNormSpec>(graph_.nodes[i].spec).residual_norm)
        sums_from_before(graph_.nodes[i], 1, &BatchNormSpec::consumes_residual_sums, &Node::residual_sums);
      diff_sums_from_behind(graph_.nodes[i], int(i));
    }
  }

 private:
  bool agreed(const Node& conv, bool ConvSpec::*fusion, const Node& norm, const char* what) {
    ConvSpec asked = std::get<ConvSpec>(conv.spec);
    asked.produces_sums = asked.produces_diff_sums = false;
    asked.*fusion = true;
    const std::string why = rules_.why_not_fused(asked);
    if (!why.empty())
      unfused_.push_back(fmt::format("{}: {} are not fused into {} ({})", norm.name, what, conv.name, why));
    return why.empty();
  }

  int shared_value(const Node& norm, const char* what, std::int64_t rows = 2) {
    const std::int64_t channels = std::get<BatchNormSpec>(norm.spec).src[-1];
    graph_.values.push_back({fmt::format("{}.{}", norm.name, what), {rows, channels}, DType::f32, false});
    return int(graph_.values.size()) - 1;
  }

  void sums_from_before(Node& norm, std::size_t src, bool BatchNormSpec::*consumes, int Node::*sums) {
    const int producer = graph_.producer(norm.src[src]);
    if (producer < 0 || graph_.single_consumer(norm.src[src]) < 0) return;
    Node& before = graph_.nodes[std::size_t(producer)];
    auto* conv = std::get_if<ConvSpec>(&before.spec);
    if (!conv || !agreed(before, &ConvSpec::produces_sums, norm, "sums")) return;
    conv->produces_sums = std::get<BatchNormSpec>(norm.spec).*consumes = true;
    before.sums = norm.*sums = shared_value(norm, src == 0 ? "sums" : "residual_sums", 4);
  }

  void diff_sums_from_behind(Node& norm, int index) {
    auto& spec = std::get<BatchNormSpec>(norm.spec);
    const int user = graph_.single_consumer(norm.dst);
    Node* behind = user < 0 ? nullptr : &graph_.nodes[std::size_t(user)];
    auto* conv = behind ? std::get_if<ConvSpec>(&behind->spec) : nullptr;
    if (!conv || !conv->need_diff_src || spec.residual || spec.pool || spec.activation == Activation::none) return;
    if (!agreed(*behind, &ConvSpec::produces_diff_sums, norm, "gradient sums")) return;
    conv->produces_diff_sums = spec.consumes_diff_sums = true;
    conv->norm_activation = spec.activation;
    behind->norm = index;
    behind->moments = norm.moments = shared_value(norm, "moments");
    behind->diff_sums = norm.diff_sums = shared_value(norm, "diff_sums");
  }

  Graph& graph_;
  FusionRules& rules_;
  std::vector<std::string>& unfused_;
};

}  // namespace

Graph fuse_norms(Graph graph, FusionRules& rules, std::vector<std::string>& unfused) {
  NormFusion(graph, rules, unfused).run();
  return graph;
}

}  // namespace millrace
