// Activations, sums, products and dropout.
#include <fmt/core.h>

#include <algorithm>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

Value activated(Context& c, const Call& call, Activation kind) {
  const Value x = call.computed("self");
  return graph_value(c.builder.activation(c.layer_name(call), x.graph, kind), x.axes);
}

template <Activation Kind>
Values activation(Context& c, const Call& call) {
  return {activated(c, call, Kind)};
}

Values gelu(Context& c, const Call& call) {
  const bool tanh = call.text("approximate", "none") == "tanh";
  return {activated(c, call, tanh ? Activation::gelu_tanh : Activation::gelu)};
}

Values leaky_relu(Context& c, const Call& call) {
  if (const double slope = call.real("negative_slope", 0.01); slope != 0.01)
    call.refuse(fmt::format("has the negative slope {}. only 0.01 is supported", slope));
  return {activated(c, call, Activation::leaky_relu)};
}

Values hardtanh(Context& c, const Call& call) {
  if (call.real("min_val", -1) != 0 || call.real("max_val", 1) != 6)
    call.refuse("has other bounds than 0 and 6 (relu6), which is not supported");
  return {activated(c, call, Activation::relu6)};
}

Values elu(Context& c, const Call& call) {
  if (call.real("alpha", 1) != 1 || call.real("scale", 1) != 1 || call.real("input_scale", 1) != 1)
    call.refuse("has factors. only alpha=1 is supported");
  return {activated(c, call, Activation::elu)};
}

// Of the same axes with the same atoms: atoms of one value by those of the other.
Atoms translated(const Atoms& atoms, const Axes& from, const Axes& to) {
  Atoms out;
  for (const int atom : atoms)
    for (std::size_t axis = 0; axis < from.logical.size(); ++axis) {
      const Atoms& list = from.logical[axis];
      const auto at = std::ranges::find(list, atom);
      if (at != list.end() && !to.logical[axis].empty())
        out.push_back(to.logical[axis][std::size_t(at - list.begin())]);
    }
  return out;
}

// The value with axes of extent 1 in front, as broadcasting has them.
Axes with_rank(Axes axes, int rank) {
  while (axes.rank() < rank) axes.insert_axis(0);
  return axes;
}

Value sum_of_values(Context& c, const Call& call, Value a, Value b) {
  if (a.axes.sizes() != b.axes.sizes())
    call.refuse(
        fmt::format("adds {} and {}. only equal extents, and parameters, can be added", a.axes.text(), b.axes.text()));
  if (!align(a.axes, b.axes, false) || translated(a.axes.stored, a.axes, b.axes) != b.axes.stored)
    call.refuse(
        fmt::format("adds two values {} that are stored in different orders, which would need a copy. that is "
                    "not built yet",
                    a.axes.text()));
  const int other = c.shaped(call, b.graph, c.builder.shape(a.graph));
  return graph_value(c.builder.add(c.layer_name(call), a.graph, other), a.axes);
}

// A learned vector at each position, the same for all rows.
Value with_positions(Context& c, const Call& call, Value x, Value positions) {
  const bool token = x.kind == Value::Kind::class_token;
  if (!token) x = c.plain(call, x);
  const int rank = x.axes.rank();
  positions.axes = with_rank(positions.axes, rank);
  Sizes sizes = x.axes.sizes();
  sizes[0] = 1;
  if (positions.axes.sizes() != sizes || !x.axes.begins_with_rows())
    call.refuse(fmt::format("adds a parameter {} to {}. only one value for each element of a sample is supported",
                            positions.axes.text(), x.axes.text()));
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

Values add(Context& c, const Call& call) {
  if (call.real("alpha", 1) != 1) call.refuse("has a factor alpha, which is not supported");
  const Value a = call.value("self");
  if (a.kind == Value::Kind::ignored) return {a};  // the count of batches of a norm
  if (call.is_number("other")) {
    if (call.real("other", 0) != 0) call.refuse("adds a number, which is not supported");
    return {a};
  }
  const Value b = call.value("other");
  if (b.kind == Value::Kind::parameter) return {with_positions(c, call, a, b)};
  if (a.kind == Value::Kind::parameter) return {with_positions(c, call, b, a)};
  return {sum_of_values(c, call, c.plain(call, a), c.plain(call, b))};
}

// The axes of the factor that are not 1 must be stored innermost in x. Returns their atoms there.
Atoms channels_of_factor(const Call& call, Axes& x, Axes& factor, bool with_rows) {
  factor = with_rank(factor, x.rank());
  bool fits = factor.rank() == x.rank() && align(x, factor, true);
  for (int axis = 0; fits && axis < x.rank(); ++axis)
    fits = factor.size(axis) == 1 ? axis > 0 || !with_rows : factor.size(axis) == x.size(axis);
  Atoms stored = factor.stored;
  if (with_rows && !stored.empty()) stored.erase(stored.begin());
  const Atoms out = fits ? translated(stored, factor, x) : Atoms{};
  if (!fits || out.empty() || !is_suffix(out, x.stored))
    call.refuse(
        fmt::format("multiplies {} by {}. only a factor for each channel, or each row and channel, is supported",
                    x.text(), factor.text()));
  return out;
}

Value scaled(Context& c, const Call& call, Value x, Value factor) {
  const Atoms channels = channels_of_factor(call, x.axes, factor.axes, false);
  const int src = c.channels_last(call, x, channels);
  const int out = c.builder.scale(c.layer_name(call, factor.tensor), src, 1);
  c.attach(call, {Context::as_stored(factor)});
  return graph_value(out, x.axes);
}

Value scaled_by_row(Context& c, const Call& call, Value x, Value factor) {
  if (x.axes.count(x.axes.stored) < factor.axes.count(factor.axes.stored)) std::swap(x, factor);
  const Atoms channels = channels_of_factor(call, x.axes, factor.axes, true);
  const Shape factors{c.rows, x.axes.count(channels)};
  const int src = c.channels_last(call, x, channels);
  const int out = c.builder.scale_by(c.layer_name(call), src, c.shaped(call, factor.graph, factors));
  return graph_value(out, x.axes);
}

// Stochastic depth: a factor 0 or 1 / keep for each row.
Value masked(Context& c, const Call& call, const Value& x, const Value& mask) {
  if (mask.keep >= 1) return x;
  if (std::abs(mask.factor * mask.keep - 1) > 1e-6)
    call.refuse("drops rows without dividing by the probability to keep them, which is not supported");
  const int out = c.builder.dropout(c.layer_name(call), x.graph, float(1 - mask.keep), c.spec.seed, true);
  return graph_value(out, x.axes);
}

Values multiply(Context& c, const Call& call) {
  Value a = call.value("self");
  if (call.is_number("other")) {
    if (call.real("other", 1) != 1) call.refuse("multiplies by a number, which is not supported");
    return {a};
  }
  Value b = call.value("other");
  if (a.kind != Value::Kind::graph) std::swap(a, b);
  a = c.plain(call, a);
  if (b.kind == Value::Kind::row_mask) return {masked(c, call, a, b)};
  if (b.kind == Value::Kind::parameter) return {scaled(c, call, a, b)};
  return {scaled_by_row(c, call, a, c.plain(call, b))};
}

Values divide(Context& c, const Call& call) {
  Value x = call.value("self");
  if (!call.is_number("other")) call.refuse("divides by a tensor, which is not supported");
  const double by = call.real("other", 1);
  if (x.kind == Value::Kind::row_mask) {
    x.factor /= by;
    x.memory = -1;
    return {x};
  }
  if (by != 1) call.refuse("divides by a number, which is not supported");
  return {c.plain(call, x)};
}

// dropout(input) and dropout_(self)
const char* input_of(const Call& call) { return call.has("input") ? "input" : "self"; }

Values dropout(Context& c, const Call& call) {
  const Value x = call.computed(input_of(call));
  const double p = call.real("p", 0.5);
  if (!call.flag("train", true) || p == 0) return {x};
  if (p < 0 || p >= 1) call.refuse("drops everything");
  return {graph_value(c.builder.dropout(c.layer_name(call), x.graph, float(p), c.spec.seed), x.axes)};
}

Values feature_dropout(Context&, const Call& call) {
  if (call.flag("train", true) && call.real("p", 0.5) != 0)
    call.refuse("drops whole channels, which is not supported. use nn.Dropout in the place of nn.Dropout2d, or p=0");
  return {call.computed(input_of(call))};
}

// Rows of numbers that a later node draws.
Values blank(Context&, const Call& call) {
  Value out;
  out.kind = Value::Kind::blank;
  out.axes = Axes::contiguous(call.integers("size"));
  return {out};
}

Values bernoulli(Context&, const Call& call) {
  Value out = call.value("self");
  if (out.kind != Value::Kind::blank || out.axes.count(out.axes.stored) != rows_symbol || !out.axes.begins_with_rows())
    call.refuse("draws random numbers that are not one for each row (stochastic depth). that is not supported");
  out.kind = Value::Kind::row_mask;
  out.keep = call.real("p", 0.5);
  if (!(out.keep > 0 && out.keep <= 1)) call.refuse("keeps no row");
  out.memory = -1;
  return {out};
}

}  // namespace

void add_pointwise(Operations& all) {
  all["relu"] = activation<Activation::relu>;
  all["silu"] = activation<Activation::silu>;
  all["tanh"] = activation<Activation::tanh>;
  all["sigmoid"] = activation<Activation::sigmoid>;
  all["hardswish"] = activation<Activation::hardswish>;
  all["relu6"] = activation<Activation::relu6>;
  all["hardsigmoid"] = activation<Activation::hardsigmoid>;
  all["hardtanh"] = hardtanh;
  all["gelu"] = gelu;
  all["leaky_relu"] = leaky_relu;
  all["elu"] = elu;
  all["add"] = add;
  all["mul"] = multiply;
  all["div"] = divide;
  all["dropout"] = dropout;
  all["feature_dropout"] = feature_dropout;
  all["empty"] = all["new_empty"] = blank;
  all["bernoulli"] = bernoulli;
}

}  // namespace millrace::pt2
