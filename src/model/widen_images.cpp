// Images of one or three channels, which engines of 16 bits read slowly: the input pass, which writes them anyway, adds
// channels of zeros. The weights stay as they are.
#include <algorithm>

#include "millrace/model/graph.hpp"

namespace millrace {

Graph widen_images(Graph graph, Backend& backend) {
  for (Node& node : graph.nodes) {
    auto* conv = std::get_if<ConvSpec>(&node.spec);
    if (!conv || conv->need_diff_src || conv->groups > 1) continue;
    const int image = node.src[0];
    const auto before =
        std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& other) { return other.dst == image; });
    auto* input = before == graph.nodes.end() ? nullptr : std::get_if<InputSpec>(&before->spec);
    const auto reads = [&](const Node& other) { return std::count(other.src.begin(), other.src.end(), image) > 0; };
    if (!input || std::count_if(graph.nodes.begin(), graph.nodes.end(), reads) != 1) continue;
    input->zero_channels = conv->zero_channels = backend.zero_channels(*conv);
    conv->src = graph.values[std::size_t(image)].shape = input->dst();
  }
  return graph;
}

}  // namespace millrace
