// Fusion level 1, before all other fusions: a slice moves to before the operations that compute each position alone.
#include <algorithm>

#include "millrace/model/graph.hpp"

namespace millrace {
namespace {

// Changes `spec` from all positions of its result to those of the slice, which has the shape `kept`. false: a position
// of its result depends on others, or on its own number.
struct TakePositions {
  const Shape& all;  // of the first source
  const Shape& kept;

  bool operator()(LinearSpec& s) const {
    if (s.src.rank != 2 || s.src[-1] != all[-1]) return false;  // all positions are one vector
    s.src = {block_size(kept, 0) / kept[-1], all[-1]};
    return true;
  }
  bool operator()(LayerNormSpec& s) const { return take(s.src); }
  bool operator()(ActivationSpec& s) const { return take(s.src); }
  bool operator()(AddSpec& s) const { return take(s.src); }
  bool operator()(GatedSpec& s) const { return take(s.src); }
  bool operator()(ScaleSpec& s) const { return take(s.src); }
  bool operator()(PreluSpec& s) const { return take(s.src); }
  bool operator()(ScaleBySpec& s) const { return take(s.src); }
  bool operator()(DropoutSpec& s) const { return (s.whole_rows || s.mode == Mode::infer) && take(s.src); }
  template <class Other>
  bool operator()(Other&) const {
    return false;
  }

 private:
  bool take(Shape& src) const {
    src = kept;
    return true;
  }
};

class Slices {
 public:
  Slices(Graph& graph, const FusionRules& rules) : graph_(graph), rules_(rules) {}

  // Moves the slice to before the node that computes its source. false: it must stay.
  bool move(int at) {
    const Node slice = graph_.nodes[std::size_t(at)];
    const auto* part = std::get_if<SliceSpec>(&slice.spec);
    // The result must be a small part: each source of the node gets a copy of its positions.
    if (!part || part->axis == part->src.rank - 1 || 2 * part->count > part->src[part->axis]) return false;
    if (graph_.single_consumer(slice.src[0]) < 0) return false;
    const int before = graph_.producer(slice.src[0]);
    if (before < 0) return false;
    Node node = graph_.nodes[std::size_t(before)];
    if (auto* attention = std::get_if<AttentionSpec>(&node.spec)) {
      if (!rules_.has_partial_attention() || attention->queries > 0 || part->axis != 1 || part->src.rank != 3)
        return false;
      attention->first_query = part->begin;
      attention->queries = part->count;
      node.dst = slice.dst;
      graph_.nodes[std::size_t(before)] = std::move(node);
      graph_.nodes.erase(graph_.nodes.begin() + at);
      return true;
    }
    const Shape all = value(node.src[0]).shape;
    Shape kept = all;
    kept[part->axis] = part->count;
    if (!std::visit(TakePositions{all, kept}, node.spec)) return false;
    node.dst = slice.dst;
    const bool adds = std::holds_alternative<AddSpec>(node.spec);
    const int data_sources = adds ? 2 : 1;
    graph_.nodes[std::size_t(before)] = std::move(node);
    graph_.nodes.erase(graph_.nodes.begin() + at);
    for (int s = 0, place = before; s < data_sources; ++s) place = read_slice(place, s, *part);
    return true;
  }

 private:
  Value& value(int number) { return graph_.values[std::size_t(number)]; }

  // Source `s` of the node becomes the slice of what it is. Returns where the node then is.
  int read_slice(int place, int s, const SliceSpec& part) {
    const int whole = graph_.nodes[std::size_t(place)].src[std::size_t(s)];
    SliceSpec spec = part;
    spec.src = value(whole).shape;
    spec.dtype = value(whole).dtype;
    int dst = -1;
    for (std::size_t i = 0; i < graph_.nodes.size() && dst < 0; ++i) {
      const auto* other = std::get_if<SliceSpec>(&graph_.nodes[i].spec);
      if (!other || graph_.nodes[i].src[0] != whole || other->axis != spec.axis || other->begin != spec.begin ||
          other->count != spec.count)
        continue;
      dst = graph_.nodes[i].dst;
      if (int(i) < place) {
        graph_.nodes[std::size_t(place)].src[std::size_t(s)] = dst;
        return place;
      }
      graph_.nodes.erase(graph_.nodes.begin() + std::ptrdiff_t(i));
    }
    if (dst < 0) {
      graph_.values.push_back({value(whole).name + ".read", spec.dst(), spec.dtype, value(whole).needs_grad});
      dst = int(graph_.values.size()) - 1;
    }
    graph_.nodes[std::size_t(place)].src[std::size_t(s)] = dst;
    graph_.nodes.insert(graph_.nodes.begin() + place, {value(dst).name, spec, {whole}, dst, {}});
    return place + 1;
  }

  Graph& graph_;
  const FusionRules& rules_;
};

}  // namespace

Graph drop_unread_positions(Graph graph, const FusionRules& rules) {
  Slices slices(graph, rules);
  for (int i = int(graph.nodes.size()) - 1; i >= 0; --i)
    if (slices.move(i)) i = int(graph.nodes.size());  // a slice may have moved before another one, or become one
  return graph;
}

}  // namespace millrace
