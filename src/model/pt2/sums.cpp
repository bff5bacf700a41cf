// Sums and differences, and numbers in the place of masked elements.
#include <fmt/core.h>

#include <algorithm>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

// The second value with its elements in the order of the first, which has the same extents.
Value in_order_of(Context& c, const Call& call, Value& a, Value b) {
  if (!align(a.axes, b.axes, false)) {
    a = c.contiguous(call, a);
    b = c.contiguous(call, b);
    if (!a.axes.view_across(a.axes.sizes()) || !b.axes.view_across(b.axes.sizes()) || !align(a.axes, b.axes, false))
      call.refuse(fmt::format("combines two values {} whose axes are divided in different ways", a.axes.text()));
  }
  return c.ordered(call, b, translated(a.axes.stored, a.axes, b.axes));
}

// Both with the same extents.
void repeat_to_fit(Context& c, const Call& call, Value& a, Value& b) {
  while (a.axes.rank() < b.axes.rank()) a.axes.insert_axis(0);
  while (b.axes.rank() < a.axes.rank()) b.axes.insert_axis(0);
  const Sizes of_a = a.axes.sizes(), of_b = b.axes.sizes();
  Sizes to = of_a;
  for (std::size_t axis = 0; axis < to.size(); ++axis)
    if (to[axis] == 1) to[axis] = of_b[axis];
  a = expanded(c, call, a, to);
  b = expanded(c, call, b, to);
}

}  // namespace

void fit_together(Context& c, const Call& call, Value& a, Value& b) {
  repeat_to_fit(c, call, a, b);
  b = in_order_of(c, call, a, b);
}

Value sum_of_values(Context& c, const Call& call, Value a, Value b) {
  fit_together(c, call, a, b);
  const int other = c.shaped(call, b.graph, c.builder.shape(a.graph));
  return graph_value(c.builder.add(c.layer_name(call), a.graph, other), a.axes);
}

namespace {

// Whether the parameter has one value for each element of a sample.
bool has_each_element(const Value& x, const Value& parameter) {
  if (parameter.picked || !parameter.axes.selected.empty() || parameter.axes.rank() > x.axes.rank()) return false;
  if (x.kind == Value::Kind::class_token && x.axes.stored.size() != 3) return false;
  Sizes sizes = x.axes.sizes();
  sizes[0] = 1;
  return with_rank(parameter.axes, x.axes.rank()).sizes() == sizes && x.axes.begins_with_rows() && sizes.size() > 1;
}

// A learned vector at each position, the same for all rows.
Value with_positions(Context& c, const Call& call, Value x, Value positions) {
  if (!has_each_element(x, positions)) return with_bias(c, call, x, positions);
  const bool token = x.kind == Value::Kind::class_token;
  if (!token) x = c.plain(call, x);
  const int rank = x.axes.rank();
  positions.axes = with_rank(positions.axes, rank);
  if (!align(x.axes, positions.axes, true)) call.refuse("adds a parameter whose axes are divided in another way");
  const Atoms of_sample(x.axes.stored.begin() + 1, x.axes.stored.end());
  const Atoms order = translated(of_sample, x.axes, positions.axes);
  const std::int64_t width = x.axes.count({of_sample.back()});
  const int src = token || c.builder.shape(x.graph).rank > 2
                      ? x.graph
                      : c.shaped(call, x.graph, {c.rows, x.axes.count(of_sample) / width, width});
  const int out = c.builder.position_embedding(c.layer_name(call, positions.tensor), src, token);
  std::vector<Context::Source> sources{{positions, order}};
  if (token) {
    Value vector;
    vector.tensor = x.tensor;
    vector.axes = Axes::contiguous({width});
    sources.push_back(Context::as_stored(vector));
  }
  c.attach(call, sources);
  return graph_value(out, x.axes);
}

}  // namespace

// value + factor * other, of what is a number, a constant, a parameter or a value.
Value sum_with(Context& c, const Call& call, const Value& a, const char* other, double factor) {
  if (call.is_number(other)) return affine(c, call, a, 1, factor * call.real(other, 0));
  const Value b = call.value(other);
  if (const auto constant = c.as_constant(b)) {
    Constant offset = constant->copy();
    for (double& v : *offset.data) v *= factor;
    return affine(c, call, a, Constant::filled({}, 1), offset);
  }
  if (b.kind == Value::Kind::parameter || a.kind == Value::Kind::parameter) {
    if (b.kind == a.kind) call.refuse("adds two parameters, which is not supported");
    if (factor != 1) call.refuse("adds a parameter with a factor, which is not supported");
    return b.kind == Value::Kind::parameter ? with_positions(c, call, a, b) : with_positions(c, call, b, a);
  }
  if (const auto constant = c.as_constant(a)) return affine(c, call, b, Constant::filled({}, factor), *constant);
  return sum_of_values(c, call, c.plain(call, a), affine(c, call, b, factor, 0));
}

namespace {

Values add(Context& c, const Call& call) {
  Value a = call.value("self");
  if (a.kind == Value::Kind::ignored && call.is_number("other")) {  // the count of batches of a norm
    a.tensor = -1;
    return {a};
  }
  if (a.kind == Value::Kind::uniform && call.is_number("other")) {  // of stochastic depth
    a.keep += call.real("alpha", 1) * call.real("other", 0);
    return {a};
  }
  if (a.kind == Value::Kind::parameter && call.is_number("other")) {
    a.kind = Value::Kind::shifted;
    a.shift = call.real("other", 0) * call.real("alpha", 1);
    return {a};
  }
  return {sum_with(c, call, a, "other", call.real("alpha", 1))};
}
Values subtract(Context& c, const Call& call) {
  return {sum_with(c, call, call.value("self"), "other", -call.real("alpha", 1))};
}
Values subtract_from(Context& c, const Call& call) {
  return {sum_with(c, call, affine(c, call, call.value("self"), -call.real("alpha", 1), 0), "other", 1)};
}
Values negate(Context& c, const Call& call) { return {affine(c, call, call.value("self"), -1, 0)}; }

// A number where the mask is set, otherwise the value.
Value filled(Context& c, const Call& call, const Value& x, const Constant& mask, double value) {
  Constant scale = mask.copy(), offset = mask.copy();
  for (double& v : *scale.data) v = v == 0;
  for (double& v : *offset.data) v = v == 0 ? 0 : value;
  return affine(c, call, x, scale, offset);
}
double number_of(const Call& call, const char* name) {
  if (call.is_number(name)) return call.real(name, 0);
  const Constant x = call.constant(name);
  if (x.count() != 1) call.refuse(fmt::format("has a '{}' of several numbers, which is not supported", name));
  return x.values()[0];
}
Values masked_fill(Context& c, const Call& call) {
  return {filled(c, call, call.value("self"), call.constant("mask"), number_of(call, "value"))};
}
// Whether a result of both has other extents than x.
bool widens(const Sizes& other, const Sizes& x) {
  return other.size() > x.size() || !std::equal(other.rbegin(), other.rend(), x.rbegin(),
                                                [](auto own, auto of_x) { return own == 1 || own == of_x; });
}
// A value that the condition does not change, because it holds everywhere. It may be a parameter.
bool holds_for(const Call& call, const Constant& condition, const Value& x) {
  const std::vector<double> values = condition.values();
  if (!std::ranges::all_of(values, [](double v) { return v != 0; })) return false;
  Sizes sizes = x.axes.sizes();
  if (!call.is_number("other") && widens(call.value("other").axes.sizes(), sizes)) return false;
  for (std::int64_t& size : sizes)  // rows that are joined with other axes are those of no constant
    if (size == rows_symbol) size = 1;
  return std::ranges::none_of(sizes, [](std::int64_t size) { return size != 0 && size % rows_symbol == 0; }) &&
         !widens(condition.sizes, sizes);
}
Values where(Context& c, const Call& call) {
  Constant condition = call.constant("condition").copy();
  if (!call.is_number("self") && holds_for(call, condition, call.value("self"))) {
    Value copy = call.value("self");
    copy.memory = -1;
    return {copy};
  }
  if (!call.is_number("self") && call.value("self").kind == Value::Kind::graph) {
    for (double& v : *condition.data) v = v == 0;
    return {filled(c, call, call.value("self"), condition, number_of(call, "other"))};
  }
  return {filled(c, call, call.value("other"), condition, number_of(call, "self"))};
}

}  // namespace

void add_sums(Operations& all) {
  all["add"] = add;
  all["sub"] = subtract;
  all["rsub"] = subtract_from;
  all["neg"] = negate;
  all["masked_fill"] = masked_fill;
  all["where"] = where;
}

}  // namespace millrace::pt2
