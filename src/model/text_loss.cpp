// Lines such as `loss cross_entropy y=class weight=0.5`.
#include <fmt/format.h>

#include <algorithm>

#include "model/text_layers.hpp"

namespace millrace {
namespace {

std::string names_of(const std::vector<LossTarget>& targets) {
  std::string out;
  for (const LossTarget& t : targets) out += (out.empty() ? "" : ", ") + t.name;
  return out;
}

const LossTarget& target_of(TextLine& line, const std::vector<LossTarget>& targets) {
  std::string name = line.take("y");
  if (name.empty() && targets.size() == 1) return targets[0];
  if (name.starts_with('/')) name.erase(0, 1);
  const bool unnamed = targets.size() == 1 && targets[0].name.empty();  // of a checkpoint of an older version
  const auto found = unnamed ? targets.begin() : std::ranges::find(targets, name, &LossTarget::name);
  if (found != targets.end()) return *found;
  if (name.empty())
    line.refuse("data.y names several data sets. choose one of them with y= (" + names_of(targets) + ")");
  line.refuse(fmt::format("data.y has no data set '{}'. it has {}", name, names_of(targets)));
}

// With a last axis of `last` elements, or of more unless `exactly`.
struct NeededShape {
  Shape before_last;
  std::int64_t last;
  bool exactly, tokens;
};
void require_shape(const TextLine& line, const Shape& made, const NeededShape& of, const std::string& target) {
  const std::int64_t width = made.rank > 0 ? made[-1] : 0;
  Shape needed = of.before_last;
  needed.dims[std::size_t(needed.rank++)] = of.exactly ? of.last : std::max(of.last, width);
  if (made == needed) return;
  const std::string layer = needed.rank == 2 ? fmt::format("linear {}", of.last)
                            : of.tokens      ? fmt::format("linear {} axis=last", of.last)
                                             : fmt::format("conv {} 1 bias=on", of.last);
  line.refuse(fmt::format("reads a result of {}, but '{}' needs {}. put `{}` before it", made.str(), target,
                          needed.str(), layer));
}

CrossEntropySpec cross_entropy(TextLine& line, const LossTarget& target, float factor) {
  if (target.classes == 0)
    line.refuse(fmt::format("'{}' holds floating-point targets, not labels. use mse, mae or smooth_l1", target.name));
  CrossEntropySpec out;
  out.label_smoothing = float(line.real("label_smoothing", 0, 0, 0.999));
  out.term.factor = factor;
  return out;
}

PointwiseLossSpec pointwise(TextLine& line, const LossTarget& target, PointwiseLossSpec::Kind kind, float factor) {
  PointwiseLossSpec out{.kind = kind, .src = {}};
  if (target.classes > 0 && !out.binary())
    line.refuse(fmt::format("'{}' holds labels. use cross_entropy, or store it as floating point", target.name));
  if (target.classes > 2)
    line.refuse(fmt::format("'{}' has labels up to {}, but this loss needs 0 and 1. use cross_entropy", target.name,
                            target.classes - 1));
  if (kind == PointwiseLossSpec::Kind::smooth_l1) out.beta = float(line.real("beta", 1, 1e-6, 1e6));
  out.term.factor = factor;
  return out;
}

}  // namespace

bool has_loss_lines(const std::vector<std::string>& layers) {
  return std::ranges::any_of(layers, [](const std::string& line) { return TextLine(line).kind == "loss"; });
}

bool has_input_lines(const std::vector<std::string>& layers) {
  return std::ranges::any_of(layers, [](const std::string& line) { return TextLine(line).kind == "input"; });
}

std::string make_loss(GraphBuilder& g, TextLine& line, const std::string& name, int src, const ModelSpec& spec) {
  using Kind = PointwiseLossSpec::Kind;
  if (src == Graph::x) line.refuse("the samples are tokens, which only `embedding WIDTH` accepts");
  const std::string& kind = line.word(0, "a loss");
  if (line.words.size() > 1)
    line.refuse(fmt::format("has a word too many, '{}'. options are KEY=VALUE", line.words[1]));
  const LossTarget& target = target_of(line, spec.targets);
  const float factor = float(line.real("weight", 1, 1e-9, 1e9));
  const bool whole = spec.targets.size() == 1, labels = target.classes > 0;
  const auto part = [&] {
    return whole ? -1 : g.target_part(name + ".target", target.begin, target.count, labels ? DType::i32 : DType::f32);
  };
  const Shape rows{g.shape(Graph::y)[0]}, made = g.shape(src);
  if (kind == "cross_entropy") {
    CrossEntropySpec loss = cross_entropy(line, target, factor);
    require_shape(line, made, {whole ? g.shape(g.labels()) : rows, target.classes, false, spec.tokens}, target.name);
    g.loss(std::move(loss), src, name, part());
    return target.name;
  }
  for (const Kind one : {Kind::mse, Kind::mae, Kind::smooth_l1, Kind::binary_cross_entropy})
    if (kind == name_of(one)) {
      const PointwiseLossSpec loss = pointwise(line, target, one, factor);
      if (whole && labels && g.shape(Graph::y).rank > 1)
        line.refuse(fmt::format("'{}' has several labels a sample. use cross_entropy", target.name));
      require_shape(line, made, {rows, target.count, true, false}, target.name);
      g.loss(loss, src, name, part());
      return target.name;
    }
  line.refuse(fmt::format("unknown loss '{}'. use cross_entropy, mse, mae, smooth_l1 or binary_cross_entropy", kind));
}

}  // namespace millrace
