// Graphs for a part of the positions, with caches of the earlier ones.
#include <fmt/core.h>

#include "millrace/base/error.hpp"
#include "millrace/model/graph.hpp"

namespace millrace {
namespace {

// Whether a node computes each position of its result from the same position of its sources, or keeps what it needs of
// earlier ones in a cache.
struct WorksOnParts {
  const Shape& src;  // the value; the src of a LinearSpec has other extents
  bool operator()(const EmbeddingSpec&) const { return true; }
  bool operator()(const PositionEmbeddingSpec& s) const { return !s.class_token && s.src.rank == 3; }
  bool operator()(const RotarySpec&) const { return true; }
  bool operator()(const AttentionSpec& s) const { return s.causal && !s.documents; }
  bool operator()(const LinearSpec& s) const { return s.src.row_count() == src[-1]; }  // else over all positions
  bool operator()(const LayerNormSpec&) const { return true; }
  bool operator()(const ActivationSpec&) const { return true; }
  bool operator()(const GatedSpec&) const { return true; }
  bool operator()(const ScaleSpec&) const { return true; }
  bool operator()(const PreluSpec&) const { return true; }
  bool operator()(const AddSpec&) const { return true; }
  bool operator()(const DropoutSpec&) const { return true; }
  bool operator()(const ConcatSpec& s) const { return s.axis == s.src.rank - 1 && s.src.rank > 2; }
  bool operator()(const SliceSpec& s) const { return s.axis == s.src.rank - 1 && s.src.rank > 2; }
  bool operator()(const CrossEntropySpec&) const { return true; }
  template <class Other>
  bool operator()(const Other&) const {
    return false;
  }
};

}  // namespace

std::string why_not_cached(const Graph& whole) {
  for (const Node& node : whole.nodes) {
    const Shape& src = whole.values[std::size_t(node.src[0])].shape;
    if (!std::visit(WorksOnParts{src}, node.spec))
      return fmt::format("layer '{}' ({}) needs all positions at once", node.name, name_of(node.spec));
  }
  return "";
}

Graph with_cache(Graph part, const Graph& whole) {
  const std::int64_t window = whole.values[Graph::x].shape[1];
  MR_CHECK(part.parameters.size() == whole.parameters.size(), "the graph of a part has other parameters");
  part.parameters = whole.parameters;
  for (Node& node : part.nodes) {
    if (auto* s = std::get_if<AttentionSpec>(&node.spec)) s->window = window;
    if (auto* s = std::get_if<RotarySpec>(&node.spec)) s->window = window;
    if (auto* s = std::get_if<PositionEmbeddingSpec>(&node.spec)) s->window = window;
  }
  return part;
}

}  // namespace millrace
