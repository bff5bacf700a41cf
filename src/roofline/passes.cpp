#include "millrace/roofline/passes.hpp"

#include "roofline/op_passes.hpp"

namespace millrace::roofline {
namespace {

struct Name {
  PassKind kind;
  const char *text, *key;
};
constexpr Name names[] = {
    {PassKind::input, "input", "input"},
    {PassKind::conv_forward, "convolution forward", "conv_forward"},
    {PassKind::norm_statistics, "batch norm statistics", "norm_statistics"},
    {PassKind::norm_apply, "batch norm apply", "norm_apply"},
    {PassKind::linear_forward, "linear forward", "linear_forward"},
    {PassKind::conv_data_gradient, "convolution dgrad", "conv_data_gradient"},
    {PassKind::conv_weight_gradient, "convolution wgrad", "conv_weight_gradient"},
    {PassKind::norm_gradient_sums, "batch norm backward sums", "norm_gradient_sums"},
    {PassKind::norm_gradient_apply, "batch norm backward apply", "norm_gradient_apply"},
    {PassKind::linear_data_gradient, "linear data gradient", "linear_data_gradient"},
    {PassKind::linear_weight_gradient, "linear weight gradient", "linear_weight_gradient"},
    {PassKind::gradient_add, "gradient adds", "gradient_add"},
    {PassKind::activation, "activations", "activation"},
    {PassKind::add, "adds", "add"},
    {PassKind::dropout, "dropout", "dropout"},
    {PassKind::pool, "pooling", "pool"},
    {PassKind::embedding, "embedding", "embedding"},
    {PassKind::loss, "loss", "loss"},
    {PassKind::bias, "bias gradients", "bias"},
    {PassKind::padding, "padding of channels", "padding"},
    {PassKind::weights, "weights, converted", "weights"},
    {PassKind::optimizer, "optimizer", "optimizer"},
    {PassKind::gradient_conversion, "gradients, converted", "gradient_conversion"},
    {PassKind::state, "state and breadcrumbs", "state"},
};
static_assert(std::size(names) == pass_kinds);

const Name& name(PassKind kind) {
  const Name& found = names[std::size_t(kind)];
  MR_CHECK(found.kind == kind);
  return found;
}

class Walk {
 public:
  Walk(const Graph& graph, bool first, const UnbuiltFusions& unbuilt)
      : graph_(graph), first_(first), unbuilt_(unbuilt), written_(graph.values.size(), false) {}

  std::vector<Pass> run() {
    for (const Node& node : graph_.nodes) {
      OpPasses of(graph_, node, first_, unbuilt_, out_);
      std::visit([&](const auto& spec) { forward_passes(spec, of); }, node.spec);
    }
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) backward(graph_.nodes[i]);
    return std::move(out_);
  }

 private:
  // As in Program: the first operation that runs backward writes the gradient of a value, the others are added to it.
  void backward(const Node& node) {
    if (node.dst >= 0 && !graph_.values[std::size_t(node.dst)].needs_grad) return;
    std::vector<int> added;
    for (const int src : node.src) {
      if (!graph_.values[std::size_t(src)].needs_grad) continue;
      if (written_[std::size_t(src)]) added.push_back(src);
      written_[std::size_t(src)] = true;
    }
    OpPasses of(graph_, node, first_, unbuilt_, out_);
    of.phase = Phase::backward;
    of.adds_data_gradient = !added.empty() && unbuilt_.add_in_data_gradient && multiplies(node.spec);
    std::visit([&](const auto& spec) { backward_passes(spec, of); }, node.spec);
    if (of.adds_data_gradient) return;
    for (const int src : added) {
      const Value& value = graph_.values[std::size_t(src)];
      of.add(PassKind::gradient_add, 3 * tensor_bytes(value.shape, value.dtype));
    }
  }

  static bool multiplies(const Spec& spec) {
    return std::holds_alternative<ConvSpec>(spec) || std::holds_alternative<LinearSpec>(spec);
  }

  const Graph& graph_;
  const bool first_;
  const UnbuiltFusions unbuilt_;
  std::vector<bool> written_;  // by value: an operation has computed a part of its gradient
  std::vector<Pass> out_;
};

}  // namespace

const char* name_of(PassKind kind) { return name(kind).text; }
const char* json_key(PassKind kind) { return name(kind).key; }

std::vector<Pass> micro_batch_passes(const Graph& graph, bool first, const UnbuiltFusions& unbuilt) {
  return Walk(graph, first, unbuilt).run();
}

std::vector<Pass> repack_passes(const Graph& graph) {
  std::vector<Pass> out;
  for (const Node& node : graph.nodes) {
    OpPasses of(graph, node, true, {}, out);
    std::visit([&](const auto& spec) { weight_copies(spec, of); }, node.spec);
  }
  return out;
}

}  // namespace millrace::roofline
