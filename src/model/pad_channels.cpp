// Pads images with channels of zeros, because 16-bit convolutions read images of one or three channels slowly. The
// input pass writes the images anyway, so the padding costs no further pass. The weights stay unchanged. Images may be
// mixed between the input pass and the convolution.
#include "millrace/model/graph.hpp"

namespace millrace {

Graph pad_channels(Graph graph, FusionRules& rules) {
  for (Node& node : graph.nodes) {
    auto* conv = std::get_if<ConvSpec>(&node.spec);
    if (!conv || conv->need_diff_src || conv->groups > 1) continue;
    const int image = node.src[0];
    int before = graph.producer(image), raw = image;
    auto* mix = before < 0 ? nullptr : std::get_if<MixSpec>(&graph.nodes[std::size_t(before)].spec);
    if (mix) before = graph.producer(raw = graph.nodes[std::size_t(before)].src[0]);
    auto* input = before < 0 ? nullptr : std::get_if<InputSpec>(&graph.nodes[std::size_t(before)].spec);
    if (!input || graph.single_consumer(image) < 0 || graph.single_consumer(raw) < 0) continue;
    input->padded_channels = conv->padded_channels = rules.padded_channels(*conv);
    conv->src = graph.values[std::size_t(image)].shape = graph.values[std::size_t(raw)].shape = input->dst();
    if (mix) mix->src = input->dst();
  }
  return graph;
}

}  // namespace millrace
