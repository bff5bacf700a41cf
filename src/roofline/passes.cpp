#include "millrace/roofline/passes.hpp"

#include "millrace/model/recompute.hpp"
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
    {PassKind::layer_norm, "layer norm", "layer_norm"},
    {PassKind::attention, "attention", "attention"},
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
  Walk(const Graph& graph, bool first, const batch_norm::OnChipMemory& on_chip)
      : graph_(graph), first_(first), on_chip_(on_chip), stores_(gradient_stores(graph)) {}

  std::vector<Pass> run() {
    for (const Node& node : graph_.nodes) forward(node, Phase::forward);
    for (const BackwardStep& step : schedule_backward(graph_).steps)
      if (step.work == NodeWork::recompute)
        forward(graph_.nodes[std::size_t(step.node)], Phase::backward);
      else
        backward(std::size_t(step.node));
    return std::move(out_);
  }

 private:
  void forward(const Node& node, Phase phase) {
    OpPasses of(graph_, node, first_, on_chip_, out_);
    of.phase = phase;
    std::visit([&](const auto& spec) { forward_passes(spec, of); }, node.spec);
  }
  void backward(std::size_t index) {
    const Node& node = graph_.nodes[index];
    OpPasses of(graph_, node, first_, on_chip_, out_);
    of.phase = Phase::backward;
    of.stores = stores_[index];
    std::visit([&](const auto& spec) { backward_passes(spec, of); }, node.spec);
    for (std::size_t s = 0; s < node.src.size(); ++s) {
      if (stores_[index][s] != GradientStore::add_pass) continue;
      const Value& value = graph_.values[std::size_t(node.src[s])];
      of.add(PassKind::gradient_add, 3 * tensor_bytes(value.shape, value.dtype));
    }
  }

  const Graph& graph_;
  const bool first_;
  const batch_norm::OnChipMemory on_chip_;
  const std::vector<GradientStores> stores_;
  std::vector<Pass> out_;
};

}  // namespace

const char* name_of(PassKind kind) { return name(kind).text; }
const char* json_key(PassKind kind) { return name(kind).key; }

std::vector<Pass> micro_batch_passes(const Graph& graph, bool first, const batch_norm::OnChipMemory& on_chip) {
  return Walk(graph, first, on_chip).run();
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
