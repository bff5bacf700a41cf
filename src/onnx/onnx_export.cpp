#include "millrace/onnx/onnx_export.hpp"

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"
#include "onnx/operations.hpp"

namespace millrace {
namespace {

// Files of Protocol Buffers are smaller than 2 GiB. The rest is for what is not a weight.
constexpr std::int64_t most_weight_bytes = 1'900'000'000;

void require_room(const Graph& graph) {
  std::int64_t bytes = 0;
  for (const Parameter& p : graph.parameters) bytes += p.shape.count() * std::int64_t(sizeof(float));
  if (bytes > most_weight_bytes)
    fail(Exit::config,
         "--format onnx: the weights have {}, but a file in this format holds 2 GiB at most. use --format "
         "safetensors",
         format_bytes(std::uint64_t(bytes)));
}

}  // namespace

OnnxModel make_onnx_model(const OnnxNetwork& network, const OnnxWeights& weights) {
  require_room(network.graph);
  std::vector<int> values;
  for (const OnnxOutput& output : network.outputs) values.push_back(output.value);
  const Graph graph = keep_outputs(network.graph, values);  // without what the losses alone read
  const OnnxNetwork kept{graph, network.outputs, network.channels_first};
  Assembler a(kept, weights);
  for (const Node& node : graph.nodes)
    std::visit(
        [&](const auto& spec) {
          if constexpr (requires { add_node(a, node, spec); })
            add_node(a, node, spec);
          else
            a.refuse(node, "not supported");
        },
        node.spec);
  for (const OnnxOutput& output : kept.outputs) add_output(a, output);
  return a.finish();
}

}  // namespace millrace
