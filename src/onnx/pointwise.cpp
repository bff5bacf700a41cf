// Activations, sums and products, and copies of blocks.
#include <cmath>
#include <numbers>

#include "millrace/base/error.hpp"
#include "onnx/operations.hpp"

namespace millrace {
namespace {

// x * share(x), where share is the result of a node.
std::string times(Assembler& a, const std::string& name, const std::string& x, const std::string& share) {
  return a.add("Mul", name, {x, share});
}

// 0.5 x (1 + erf(x / sqrt 2)).
std::string add_gelu(Assembler& a, const std::string& name, const std::string& x) {
  const std::string scaled = a.add("Mul", name + ".scaled", {x, a.constant(float(1 / std::numbers::sqrt2))});
  const std::string erf = a.add("Erf", name + ".erf", {scaled});
  const std::string sum = a.add("Add", name + ".sum", {erf, a.constant(1)});
  return a.add("Mul", name, {a.add("Mul", name + ".half", {x, a.constant(0.5f)}), sum});
}

// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
std::string add_gelu_tanh(Assembler& a, const std::string& name, const std::string& x) {
  const std::string square = a.add("Mul", name + ".square", {x, x});
  const std::string cubic = a.add("Mul", name + ".cubic", {square, a.constant(0.044715f)});
  const std::string factor = a.add("Add", name + ".factor", {cubic, a.constant(1)});
  const std::string inner = a.add("Mul", name + ".inner", {x, factor});
  const float root = float(std::sqrt(2 * std::numbers::inv_pi));
  const std::string tanh = a.add("Tanh", name + ".tanh", {a.add("Mul", name + ".scaled", {inner, a.constant(root)})});
  const std::string sum = a.add("Add", name + ".sum", {tanh, a.constant(1)});
  return a.add("Mul", name, {a.add("Mul", name + ".half", {x, a.constant(0.5f)}), sum});
}

// The value in the order in which it is kept, as the result of a node that changes each element by itself.
void keep_order(Assembler& a, const Node& node, const std::string& result) {
  a.set(node.dst, result, a.order(node.src[0]));
}

}  // namespace

std::string add_activation(Assembler& a, const std::string& name, const std::string& x, Activation kind) {
  switch (kind) {
    case Activation::none:
      return x;
    case Activation::relu:
      return a.add("Relu", name, {x});
    case Activation::gelu:
      return add_gelu(a, name, x);
    case Activation::gelu_tanh:
      return add_gelu_tanh(a, name, x);
    case Activation::tanh:
      return a.add("Tanh", name, {x});
    case Activation::silu:
      return times(a, name, x, a.add("Sigmoid", name + ".sigmoid", {x}));
    case Activation::sigmoid:
      return a.add("Sigmoid", name, {x});
    case Activation::leaky_relu:
      return a.add("LeakyRelu", name, {x}, {{"alpha", 0.01f}});
    case Activation::elu:
      return a.add("Elu", name, {x}, {{"alpha", 1.0f}});
    case Activation::relu6:
      return a.add("Clip", name, {x, a.constant(0), a.constant(6)});
    case Activation::hardsigmoid:
      return a.add("HardSigmoid", name, {x}, {{"alpha", 1.0f / 6}, {"beta", 0.5f}});
    case Activation::hardswish:
      return a.add("HardSwish", name, {x});
  }
  fail(Exit::internal, "internal error: an activation has no form in ONNX");
}

void add_node(Assembler& a, const Node& node, const ActivationSpec& s) {
  keep_order(a, node, add_activation(a, node.name, a.get(node.src[0]), s.kind));
}

void add_node(Assembler& a, const Node& node, const DropoutSpec&) { keep_order(a, node, a.get(node.src[0])); }

void add_node(Assembler& a, const Node& node, const AddSpec&) {
  const Order order = a.order(node.src[0]);
  keep_order(a, node, a.add("Add", node.name, {a.get(node.src[0]), a.get(node.src[1], order)}));
}

void add_node(Assembler& a, const Node& node, const GatedSpec& s) {
  const auto halves = a.split(node.name + ".halves", a.get(node.src[0], Order::last), -1, {s.channels(), s.channels()});
  const std::string gate = add_activation(a, node.name + ".gate", halves[0], s.kind);
  a.set(node.dst, a.add("Mul", node.name, {gate, halves[1]}), Order::last);
}

void add_node(Assembler& a, const Node& node, const ScaleSpec& s) {
  const std::string factors = a.channel_weight(node.weight[0], s.src.rank, a.order(node.src[0]));
  keep_order(a, node, a.add("Mul", node.name, {a.get(node.src[0]), factors}));
}

void add_node(Assembler& a, const Node& node, const PreluSpec& s) {
  const std::string x = a.get(node.src[0]);
  if (s.slopes == 0) return keep_order(a, node, a.add("LeakyRelu", node.name, {x}, {{"alpha", s.slope}}));
  const std::string slopes =
      s.slopes == 1 ? a.weight(node.weight[0]) : a.channel_weight(node.weight[0], s.src.rank, a.order(node.src[0]));
  keep_order(a, node, a.add("PRelu", node.name, {x, slopes}));
}

void add_node(Assembler& a, const Node& node, const ScaleBySpec& s) {
  const Order order = a.order(node.src[0]);
  std::string factors = a.get(node.src[1], order);
  if (s.src.rank > 2) {
    OnnxShape extents(std::size_t(s.src.rank), 1);
    extents[0] = 0;
    extents[order == Order::first ? 1 : std::size_t(s.src.rank) - 1] = s.src[-1];
    factors = a.reshape(node.name + ".factors", factors, extents);
  }
  keep_order(a, node, a.add("Mul", node.name, {a.get(node.src[0]), factors}));
}

void add_node(Assembler& a, const Node& node, const ConcatSpec& s) {
  const Order order = a.order(node.src[0]);
  const std::int64_t axis = axis_in(order, s.axis, s.src.rank);
  keep_order(a, node, a.add("Concat", node.name, {a.get(node.src[0]), a.get(node.src[1], order)}, {{"axis", axis}}));
}

void add_node(Assembler& a, const Node& node, const SliceSpec& s) {
  if (node.src[0] == Graph::x) return;  // the bytes of one of several inputs, which is an input of the model
  const std::int64_t axis = axis_in(a.order(node.src[0]), s.axis, s.src.rank);
  keep_order(a, node,
             a.add("Slice", node.name,
                   {a.get(node.src[0]), a.integers({s.begin}), a.integers({s.begin + s.count}), a.integers({axis})}));
}

void add_node(Assembler& a, const Node& node, const ReshapeSpec& s) {
  const std::string x = a.get(node.src[0], Order::last);
  a.set(node.dst, a.reshape(node.name, x, extents_in(Order::last, s.to)), Order::last);
}

// ONNX's half_pixel is PyTorch's align_corners=False.
void add_node(Assembler& a, const Node& node, const UpsampleSpec& s) {
  std::vector<float> factors(std::size_t(s.src.rank), float(s.factor));
  factors[0] = 1;
  factors[1] = 1;
  const bool linear = s.kind == UpsampleSpec::Kind::linear;
  std::vector<OnnxAttribute> attributes{
      {"mode", std::string(linear ? "linear" : "nearest")},
      {"coordinate_transformation_mode", std::string(linear ? "half_pixel" : "asymmetric")}};
  if (!linear) attributes.push_back({"nearest_mode", std::string("floor")});
  const std::string x = a.get(node.src[0], Order::first);
  a.set(node.dst, a.add("Resize", node.name, {x, "", a.constant(factors, {s.src.rank})}, attributes), Order::first);
}

}  // namespace millrace
