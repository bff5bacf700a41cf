// Computes the logits of a large vocabulary, their loss and their gradients in chunks of rows: see
// LinearCrossEntropySpec.
#include <algorithm>

#include "millrace/model/graph.hpp"

namespace millrace {
namespace {

// Libraries choose kernels for sources that begin at a multiple of this many bytes.
constexpr std::int64_t row_alignment = 256;

// The largest number of rows that divides all rows and whose logits need at most `most` bytes; if there is none, the
// smallest one. nullopt: chunks of the source would not be aligned.
std::optional<std::int64_t> chunk_rows(const LinearSpec& linear, const CrossEntropySpec& loss, std::int64_t most) {
  const std::int64_t rows = loss.src[0], element = std::int64_t(size_of(loss.dtype));
  const std::int64_t row_bytes = loss.src.row_count() * element, src_row_bytes = linear.src.count() / rows * element;
  std::optional<std::int64_t> smallest;
  for (std::int64_t chunk = rows / 2; chunk >= 1; --chunk) {
    if (rows % chunk != 0 || chunk * src_row_bytes % row_alignment != 0) continue;
    if (chunk * row_bytes <= most) return chunk;
    smallest = chunk;
  }
  return smallest;
}

}  // namespace

Graph chunk_logits(Graph graph) {
  Node& last = graph.nodes.back();
  const auto* loss = std::get_if<CrossEntropySpec>(&last.spec);
  if (!loss || loss->mix || graph.logits_memory <= 0 || graph.single_consumer(last.src[0]) < 0) return graph;
  if (loss->src.count() * std::int64_t(size_of(loss->dtype)) <= graph.logits_memory) return graph;
  const int before = graph.producer(last.src[0]);
  const Node layer = graph.nodes[std::size_t(before)];
  // Two losses would write the gradient of one source in their forward passes.
  if (std::ranges::any_of(graph.losses(), [&](int i) { return graph.nodes[std::size_t(i)].src[0] == layer.src[0]; }))
    return graph;
  const auto* linear = std::get_if<LinearSpec>(&layer.spec);
  if (!linear || linear->activation != Activation::none) return graph;
  const auto chunk = chunk_rows(*linear, *loss, graph.logits_memory);
  if (!chunk) return graph;
  last.spec = LinearCrossEntropySpec{*linear, *loss, *chunk};
  last.name = layer.name;
  last.src[0] = layer.src[0];
  last.weight = layer.weight;
  graph.nodes.erase(graph.nodes.begin() + before);
  return graph;
}

}  // namespace millrace
