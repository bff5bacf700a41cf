#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/model/graph.hpp"

namespace millrace {

std::vector<int> Graph::losses() const {
  std::vector<int> out;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].dst < 0) out.push_back(int(i));
  return out;
}

Graph keep_outputs(Graph graph, std::vector<int> outputs) {
  MR_CHECK(graph.mode == Mode::infer, "a training needs losses");
  std::vector<bool> needed(graph.values.size());
  for (const int value : outputs) needed[std::size_t(value)] = true;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (node.dst < 0 || !needed[std::size_t(node.dst)]) {
      graph.nodes.erase(graph.nodes.begin() + std::ptrdiff_t(i));
      continue;
    }
    for (const int value : node.src) needed[std::size_t(value)] = true;
  }
  graph.outputs = std::move(outputs);
  return graph;
}

int GraphBuilder::target_part(const std::string& name, std::int64_t begin, std::int64_t count, DType dtype) {
  // Only bits are moved, so the type of four bytes does not matter.
  const SliceSpec spec{shape(Graph::y), 1, begin, count, DType::f32, graph_.mode};
  const int value = node(name, spec, {Graph::y}, spec.dst());
  graph_.values[std::size_t(value)].dtype = dtype;
  return value;
}

int GraphBuilder::source_of_loss(const std::string& name, int src) {
  if (losses_.size() >= StepState::max_losses)
    fail(Exit::config, "model: the network has too many losses (at most {} are possible). use fewer",
         StepState::max_losses);
  // A loss writes the gradient of its source in its forward pass, so two of them cannot have the same one.
  const bool taken = std::ranges::any_of(losses_, [&](const Node& other) { return other.src[0] == src; });
  return taken ? activation(name + ".copy", src, Activation::none) : src;
}

void GraphBuilder::loss(CrossEntropySpec spec, int logits, const std::string& name, int target) {
  logits = source_of_loss(name, logits);
  spec.src = shape(logits);
  spec.dtype = graph_.dtype;
  spec.mode = graph_.mode;
  spec.mix = mix_;
  spec.term.number = int(losses_.size());
  std::vector<int> src{logits, target};
  if (mix_) src.push_back(Graph::ids);
  losses_.push_back({name, std::move(spec), std::move(src), -1, {}, -1});
}

void GraphBuilder::loss(PointwiseLossSpec spec, int prediction, const std::string& name, int target) {
  prediction = source_of_loss(name, prediction);
  spec.src = shape(prediction);
  spec.targets = graph_.values[std::size_t(target < 0 ? Graph::y : target)].dtype;
  spec.dtype = graph_.dtype;
  spec.mode = graph_.mode;
  spec.term.number = int(losses_.size());
  losses_.push_back({name, spec, {prediction, target}, -1, {}, -1});
}

Graph GraphBuilder::finish() {
  for (Node& loss : losses_) {
    if (loss.src[1] < 0) loss.src[1] = std::holds_alternative<CrossEntropySpec>(loss.spec) ? labels_ : Graph::y;
    graph_.nodes.push_back(std::move(loss));
  }
  return std::move(graph_);
}

}  // namespace millrace
