// Fusion level 2 for linear layers: the product that makes a layer's diff_src goes on through the activation before it,
// and sums the bias gradient of that layer, while the values are in registers. The layer before then runs its two
// products alone. Level 2, not 1: as with the norms' sums nodes stay where they are, but one does its neighbour's work
// and reads what that one saved.
#include "millrace/base/error.hpp"
#include "millrace/model/graph.hpp"

namespace millrace {
namespace {

class LinearFusion {
 public:
  LinearFusion(Graph& graph, Backend& backend, std::vector<std::string>& unfused)
      : graph_(graph), backend_(backend), kept_(unfused) {}

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
      if (!why.empty()) kept_.push_back(cat(first.name, ": ", what, " stays out of ", second.name, " (", why, ")"));
      return !why.empty();
    };
    const std::string gradient = cat("the gradient of ", name_of(before.activation));
    std::string why = why_not_taken(before);
    if (why.empty()) why = why_not_made(behind, before.activation, false);
    if (refused(gradient.c_str(), why)) return;
    before.consumes_diff_pre = true;
    behind.produces_diff_pre = before.activation;
    second.previous_linear = index;
    if (!before.bias || refused("the gradient of the bias", why_not_made(behind, before.activation, true))) return;
    before.consumes_diff_bias = behind.produces_diff_bias = true;
    graph_.values.push_back({first.name + ".diff_bias", {before.out_features}, graph_.dtype, false});
    first.diff_bias = second.src_diff_bias = int(graph_.values.size()) - 1;
  }

  // Each side is asked for alone: what a layer takes from behind does not touch what it makes for the one before.
  std::string why_not_taken(LinearSpec before) {
    before.produces_diff_pre = Activation::none;
    before.produces_diff_bias = false;
    before.consumes_diff_pre = true;
    return backend_.why_not_fused(before);
  }
  std::string why_not_made(LinearSpec behind, Activation kind, bool bias) {
    behind.consumes_diff_pre = behind.consumes_diff_bias = false;
    behind.produces_diff_pre = kind;
    behind.produces_diff_bias = bias;
    return backend_.why_not_fused(behind);
  }

  Graph& graph_;
  Backend& backend_;
  std::vector<std::string>& kept_;
};

}  // namespace

Graph fuse_linears(Graph graph, Backend& backend, std::vector<std::string>& unfused) {
  LinearFusion(graph, backend, unfused).run();
  return graph;
}

}  // namespace millrace
