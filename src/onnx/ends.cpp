// Where values enter and leave the model: normalisation, and its inverse.
#include <algorithm>

#include "onnx/operations.hpp"

namespace millrace {
namespace {

// Multiplies or adds one number for each channel, unless all of them are `neutral`.
std::string by_channel(Assembler& a, const char* type, const std::string& name, const std::string& x,
                       const std::vector<float>& values, OnnxShape shape) {
  const float neutral = *type == 'M' ? 1.0f : 0.0f;
  if (std::ranges::all_of(values, [&](float v) { return v == neutral; })) return x;
  const bool equal = std::ranges::all_of(values, [&](float v) { return v == values[0]; });
  return a.add(type, name, {x, equal ? a.constant(values[0]) : a.constant(values, shape)});
}

// log(1 + x) to full precision, also near 0: log(u) x / (u - 1) with u = 1 + x, and x where u is 1.
std::string add_log1p(Assembler& a, const std::string& name, const std::string& x) {
  const std::string one = a.constant(1), u = a.add("Add", name + ".plus_1", {x, one});
  const std::string log = a.add("Mul", name + ".product", {a.add("Log", name + ".log", {u}), x});
  const std::string quotient = a.add("Div", name + ".quotient", {log, a.add("Sub", name + ".rounded", {u, one})});
  return a.add("Where", name, {a.add("Equal", name + ".is_1", {u, one}), x, quotient});
}

// exp(x) - 1 to full precision, also near 0: 2 sinh(x / 2) exp(x / 2).
std::string add_expm1(Assembler& a, const std::string& name, const std::string& x) {
  const std::string half = a.add("Mul", name + ".half", {x, a.constant(0.5f)});
  const std::string product =
      a.add("Mul", name + ".product", {a.add("Sinh", name + ".sinh", {half}), a.add("Exp", name + ".exp", {half})});
  return a.add("Mul", name, {product, a.constant(2)});
}

std::string select_values(Assembler& a, const InputSpec& s, const std::string& name, std::string x, Order order) {
  const int rank = s.src.rank;
  if (!s.channels.empty())
    x = a.add("Gather", name + ".channels", {x, a.integers(s.channels)},
              {{"axis", std::int64_t(axis_in(order, rank - 1, rank))}});
  if (s.subvolume.empty()) return x;
  OnnxShape begins, ends, axes;  // a box in the middle
  for (std::size_t i = 0; i < s.subvolume.size(); ++i) {
    const int axis = int(i) + 1;
    begins.push_back((s.src[axis] - s.subvolume[i]) / 2);
    ends.push_back(begins.back() + s.subvolume[i]);
    axes.push_back(axis_in(order, axis, rank));
  }
  return a.add("Slice", name + ".subvolume", {x, a.integers(begins), a.integers(ends), a.integers(axes)});
}

}  // namespace

void add_node(Assembler& a, const Node& node, const InputSpec& s) {
  const Order order = a.channels_first() && s.src.rank > 2 ? Order::first : Order::last;
  const std::string name = node.src[0] == Graph::x ? "input" : node.name;
  std::string x = a.add_input(name, OnnxType::f32, extents_in(order, s.src));
  x = select_values(a, s, name, x, order);
  std::vector<float> factors, offsets, gains, shifts;
  for (const InputChannel& c : input_channels(s)) {
    factors.push_back(c.factor);
    offsets.push_back(c.offset);
    gains.push_back(c.gain);
    shifts.push_back(c.shift);
  }
  OnnxShape shape{std::int64_t(factors.size())};
  if (order == Order::first) shape.insert(shape.end(), std::size_t(s.src.rank) - 2, 1);
  x = by_channel(a, "Mul", name + ".scaled", x, factors, shape);
  x = by_channel(a, "Add", name + ".moved", x, offsets, shape);
  if (s.transform == Transform::log1p) {
    x = add_log1p(a, name + ".log1p", x);
    x = by_channel(a, "Mul", name + ".standardised", x, gains, shape);
    x = by_channel(a, "Add", name + ".centred", x, shifts, shape);
  }
  a.set(node.dst, x, order);
}

void add_output(Assembler& a, const OnnxOutput& output) {
  const Shape& shape = a.shape(output.value);
  const Order order = shape.rank > 3 ? Order::first : a.order(output.value);
  std::string x = a.get(output.value, order);
  OnnxShape extents = extents_in(order, shape);
  const auto channels = std::int64_t(output.factor.size());
  const bool apart = channels > 1 && shape[-1] != channels;  // the channels of a flattened map
  if (apart) x = a.reshape(output.name + ".channels", x, {0, -1, channels});
  x = by_channel(a, "Mul", output.name + ".scaled", x, output.factor, {channels});
  x = by_channel(a, "Add", output.name + ".moved", x, output.shift, {channels});
  if (output.expm1) x = add_expm1(a, output.name + ".expm1", x);
  x = by_channel(a, "Mul", output.name + ".unit", x, {output.gain}, {});
  x = by_channel(a, "Add", output.name + ".origin", x, {output.lift}, {});
  if (output.row.rank > 0) {
    extents = output.row.extents();
    extents.insert(extents.begin(), 0);
  }
  if (apart || extents != extents_in(order, shape)) x = a.reshape(output.name + ".rows", x, extents);
  a.add_output(output.name, x, extents);
}

}  // namespace millrace
