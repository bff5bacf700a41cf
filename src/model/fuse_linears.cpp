// Fusion level 2 for linear layers. The matrix product that computes diff_src of a layer also applies the gradient of
// the activation before it and sums the bias gradient of the previous layer, while the values are in registers. The
// previous layer then runs only its two matrix products. This belongs to level 2 because, as in fuse_norms.cpp, nodes
// are not merged: one node does work of its neighbour and reads what the neighbour saved.
#include <fmt/core.h>

#include "millrace/base/error.hpp"
#include "millrace/model/graph.hpp"

namespace millrace {
namespace {

class LinearFusion {
 public:
  LinearFusion(Graph& graph, FusionRules& rules, std::vector<std::string>& unfused)
      : graph_(graph), rules_(rules), unfused_(unfused) {}

  void run() {
    if (graph_.mode != Mode::train) return;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const int user = graph_.single_consumer(graph_.nodes[i].dst);
      auto* before = std::get_if<LinearSpec>(&graph_.nodes[i].spec);
      auto* behind = user < 0 ? nullptr : std::get_if<LinearSpec>(&graph_.nodes[std::size_t(user)].spec);
      if (before && behind && before->activation != Activation::none && behind->need_diff_src)
        join(int(i), *before, user, *behind);
    }
  }

 private:
  void join(int index, LinearSpec& before, int user, LinearSpec& behind) {
    Node &first = graph_.nodes[std::size_t(index)], &second = graph_.nodes[std::size_t(user)];
    const auto refused = [&](const char* what, const std::string& why) {
      if (!why.empty())
        unfused_.push_back(fmt::format("{}: {} is not fused into {} ({})", first.name, what, second.name, why));
      return !why.empty();
    };
    const std::string gradient = fmt::format("the gradient of {}", name_of(before.activation));
    std::string why = behind.src == before.dst() ? why_not_taken(before) : "it takes all positions as one vector";
    if (why.empty()) why = why_not_made(behind, before.activation, false);
    if (refused(gradient.c_str(), why)) return;
    before.consumes_diff_pre = true;
    behind.produces_diff_pre = before.activation;
    second.previous_linear = index;
    if (!before.bias || refused("the bias gradient", why_not_made(behind, before.activation, true))) return;
    before.consumes_diff_bias = behind.produces_diff_bias = true;
    graph_.values.push_back({first.name + ".diff_bias", {before.out_features}, graph_.dtype, false});
    first.diff_bias = second.src_diff_bias = int(graph_.values.size()) - 1;
  }

  // The backend is asked about each side separately, because what a layer takes from the next layer does not depend on
  // what it produces for the previous one.
  std::string why_not_taken(LinearSpec before) {
    before.produces_diff_pre = Activation::none;
    before.produces_diff_bias = false;
    before.consumes_diff_pre = true;
    return rules_.why_not_fused(before);
  }
  std::string why_not_made(LinearSpec behind, Activation kind, bool bias) {
    behind.consumes_diff_pre = behind.consumes_diff_bias = false;
    behind.produces_diff_pre = kind;
    behind.produces_diff_bias = bias;
    return rules_.why_not_fused(behind);
  }

  Graph& graph_;
  FusionRules& rules_;
  std::vector<std::string>& unfused_;
};

}  // namespace

Graph fuse_linears(Graph graph, FusionRules& rules, std::vector<std::string>& unfused) {
  LinearFusion(graph, rules, unfused).run();
  return graph;
}

}  // namespace millrace
