// Convolutions, linear layers, norms and pools.
#include <numeric>

#include "onnx/operations.hpp"

namespace millrace {
namespace {

std::vector<OnnxAttribute> window_attributes(const Window& w, bool dilated = true) {
  const auto axes = [&](const std::array<std::int64_t, 3>& a) { return OnnxShape(a.begin(), a.begin() + w.rank); };
  OnnxShape pads = axes(w.pad);
  pads.insert(pads.end(), w.pad.begin(), w.pad.begin() + w.rank);
  std::vector<OnnxAttribute> out{{"kernel_shape", axes(w.kernel)}, {"strides", axes(w.stride)}, {"pads", pads}};
  if (dilated) out.push_back({"dilations", axes(w.dilation)});
  return out;
}

// (outputs, kernel..., inputs) with the inputs second.
Arrangement inputs_second(int rank) {
  OnnxShape axes(static_cast<std::size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  std::rotate(axes.begin() + 1, axes.end() - 1, axes.end());
  return {.axes = axes};
}

std::vector<std::string> with_bias(Assembler& a, const Node& node, std::vector<std::string> inputs, bool bias) {
  if (bias) inputs.push_back(a.weight(node.weight[1]));
  return inputs;
}

// A layer that reads all values of a sample. Its weights are reordered in place of the values.
std::string flatten_weight(Assembler& a, const Node& node, Order order) {
  const Shape& src = a.shape(node.src[0]);
  if (order == Order::last || src.rank <= 2) return a.weight(node.weight[0]);
  OnnxShape view = src.extents();
  view[0] = a.graph().parameters[std::size_t(node.weight[0])].shape[0];
  Arrangement arrangement = inputs_second(src.rank);
  arrangement.view = view;
  arrangement.shape = {view[0], src.row_count()};
  return a.weight(node.weight[0], arrangement);
}

std::string add_gemm(Assembler& a, const Node& node, const LinearSpec& s) {
  const int src = node.src[0];
  std::string flat = a.get(src);
  if (a.shape(src).rank > 2) flat = a.add("Flatten", node.name + ".flat", {flat}, {{"axis", std::int64_t(1)}});
  return a.add("Gemm", node.name, with_bias(a, node, {flat, flatten_weight(a, node, a.order(src))}, s.bias),
               {{"transB", std::int64_t(1)}});
}

// A layer at each position. A matrix that other layers use too is not written a second time.
std::string add_matmul(Assembler& a, const Node& node, const LinearSpec& s) {
  const int parameter = node.weight[0];
  const std::string matrix = a.is_shared(parameter)
                                 ? a.transpose(node.name + ".transposed", a.weight(parameter), {1, 0})
                                 : a.weight(parameter, {.axes = {1, 0}});
  const std::string product =
      a.add("MatMul", s.bias ? node.name + ".product" : node.name, {a.get(node.src[0], Order::last), matrix});
  return s.bias ? a.add("Add", node.name, {product, a.weight(node.weight[1])}) : product;
}

std::string add_rms_norm(Assembler& a, const Node& node, const LayerNormSpec& s) {
  const std::string x = a.get(node.src[0], Order::last);
  const std::string squares = a.add("Mul", node.name + ".squares", {x, x});
  const std::string mean =
      a.add("ReduceMean", node.name + ".mean", {squares}, {{"axes", OnnxShape{-1}}, {"keepdims", std::int64_t(1)}});
  const std::string moved = a.add("Add", node.name + ".epsilon", {mean, a.constant(s.epsilon)});
  const std::string root = a.add("Sqrt", node.name + ".root", {moved});
  const std::string unit = a.add("Div", node.name + ".unit", {x, root});
  return s.weight ? a.add("Mul", node.name, {unit, a.weight(node.weight[0])}) : unit;
}

}  // namespace

void add_node(Assembler& a, const Node& node, const ConvSpec& s) {
  auto attributes = window_attributes(s.window);
  attributes.push_back({"group", s.groups});
  const std::vector<std::string> inputs{a.get(node.src[0], Order::first),
                                        a.weight(node.weight[0], inputs_second(s.src.rank))};
  a.set(node.dst, a.add("Conv", node.name, with_bias(a, node, inputs, s.bias), attributes), Order::first);
}

void add_node(Assembler& a, const Node& node, const TransposedConvSpec& s) {
  auto attributes = window_attributes(s.window);
  attributes.push_back({"group", s.groups});
  attributes.push_back({"output_padding", OnnxShape(std::size_t(s.window.rank), s.output_pad)});
  const std::vector<std::string> inputs{a.get(node.src[0], Order::first),
                                        a.weight(node.weight[0], inputs_second(s.src.rank))};
  a.set(node.dst, a.add("ConvTranspose", node.name, with_bias(a, node, inputs, s.bias), attributes), Order::first);
}

void add_node(Assembler& a, const Node& node, const LinearSpec& s) {
  const bool positions = a.shape(node.dst).rank > 2;
  std::string result = positions ? add_matmul(a, node, s) : add_gemm(a, node, s);
  if (s.activation != Activation::none) result = add_activation(a, node.name + ".act", result, s.activation);
  a.set(node.dst, result, Order::last);
}

void add_node(Assembler& a, const Node& node, const BatchNormSpec& s) {
  const auto [mean, variance] = a.statistics(node.stats);
  a.set(node.dst,
        a.add("BatchNormalization", node.name,
              {a.get(node.src[0], Order::first), a.weight(node.weight[0]), a.weight(node.weight[1]), mean, variance},
              {{"epsilon", s.epsilon}}),
        Order::first);
}

// ONNX has instance norm, of which a group is one channel with more positions.
void add_node(Assembler& a, const Node& node, const GroupNormSpec& s) {
  const int rank = s.src.rank;
  const std::string x = a.get(node.src[0], Order::first);
  const std::string groups = a.reshape(node.name + ".groups", x, {0, s.groups, -1});
  const OnnxShape channels{s.groups};
  const std::vector<float> ones(std::size_t(s.groups), 1), zeros(std::size_t(s.groups), 0);
  const std::string unit =
      a.add("InstanceNormalization", node.name + ".unit",
            {groups, a.constant(ones, channels), a.constant(zeros, channels)}, {{"epsilon", s.epsilon}});
  const std::string back = a.reshape(node.name + ".channels", unit, extents_in(Order::first, s.src));
  if (!s.affine) return a.set(node.dst, back, Order::first);
  const std::string scaled =
      a.add("Mul", node.name + ".scaled", {back, a.channel_weight(node.weight[0], rank, Order::first)});
  a.set(node.dst, a.add("Add", node.name, {scaled, a.channel_weight(node.weight[1], rank, Order::first)}),
        Order::first);
}

void add_node(Assembler& a, const Node& node, const LayerNormSpec& s) {
  if (s.kind == LayerNormSpec::Kind::rms) return a.set(node.dst, add_rms_norm(a, node, s), Order::last);
  const std::vector<float> ones(std::size_t(s.channels()), 1);
  const std::string weight = s.weight ? a.weight(node.weight[0]) : a.constant(ones, {s.channels()});
  const std::vector<std::string> inputs{a.get(node.src[0], Order::last), weight};
  a.set(node.dst,
        a.add("LayerNormalization", node.name, with_bias(a, node, inputs, s.bias),
              {{"axis", std::int64_t(-1)}, {"epsilon", s.epsilon}}),
        Order::last);
}

void add_node(Assembler& a, const Node& node, const PoolSpec& s) {
  const std::string x = a.get(node.src[0], Order::first);
  std::string result = x;
  if (s.kind == PoolSpec::Kind::global) {
    const std::string mean = a.add("GlobalAveragePool", node.name + ".mean", {x});
    result = a.add("Flatten", node.name, {mean}, {{"axis", std::int64_t(1)}});
  } else if (s.kind == PoolSpec::Kind::max) {
    auto attributes = window_attributes(s.window);
    if (s.ceil_mode) attributes.push_back({"ceil_mode", std::int64_t(1)});
    result = a.add("MaxPool", node.name, {x}, attributes);
  } else {
    if (s.window.dilation != Window{}.dilation) a.refuse(node, "average pooling with a dilation");
    auto attributes = window_attributes(s.window, false);
    attributes.push_back({"count_include_pad", std::int64_t(1)});
    result = a.add("AveragePool", node.name, {x}, attributes);
  }
  a.set(node.dst, result, Order::first);
}

}  // namespace millrace
