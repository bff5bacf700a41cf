// Activations, sums, products and dropout.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

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
  const double slope = call.real("negative_slope", 0.01);
  if (slope == 0.01) return {activated(c, call, Activation::leaky_relu)};
  const Value x = call.computed("self");
  return {graph_value(c.builder.leaky_relu(c.layer_name(call), x.graph, float(slope)), x.axes)};
}

// One slope, or one for each channel: the axis behind the rows.
Values prelu(Context& c, const Call& call) {
  Value x = call.computed("self");
  const Value weight = call.parameter("weight");
  const std::int64_t slopes = weight.axes.count(weight.axes.stored);
  if (x.axes.rank() < 2) call.refuse(fmt::format("has slopes for {}, which has no channels", x.axes.text()));
  const int src = slopes == 1 ? x.graph : c.channels_last(call, x, x.axes.logical[1]);
  const int out = c.builder.prelu(c.layer_name(call, weight.tensor), src, slopes);
  c.attach(call, {Context::as_stored(weight)});
  return {graph_value(out, x.axes)};
}

Values elu(Context& c, const Call& call) {
  if (call.real("alpha", 1) != 1 || call.real("scale", 1) != 1 || call.real("input_scale", 1) != 1)
    call.refuse("has factors. only alpha=1 is supported");
  return {activated(c, call, Activation::elu)};
}

// The atoms in x of the axes of the factor that are not 1; empty: there are none, or the extents do not fit.
Atoms channels_of_factor(Axes& x, Axes& factor, bool with_rows) {
  factor = with_rank(factor, x.rank());
  bool fits = factor.rank() == x.rank() && align(x, factor, true);
  for (int axis = 0; fits && axis < x.rank(); ++axis)
    fits = factor.size(axis) == 1 ? axis > 0 || !with_rows : factor.size(axis) == x.size(axis);
  Atoms stored = factor.stored;
  if (with_rows && !stored.empty()) stored.erase(stored.begin());
  return fits ? translated(stored, factor, x) : Atoms{};
}

Value scaled(Context& c, const Call& call, Value x, Value factor) {
  if (!factor.axes.selected.empty()) call.refuse("multiplies by a part of a parameter, which is not supported");
  const Atoms channels = factor.picked ? Atoms{} : channels_of_factor(x.axes, factor.axes, false);
  if (channels.empty())
    call.refuse(fmt::format("multiplies {} by a parameter {}. only a factor for each channel is supported",
                            x.axes.text(), factor.axes.text()));
  const int src = c.channels_last(call, x, channels);
  const int out = c.builder.scale(c.layer_name(call, factor.tensor), src, 1);
  c.attach(call, {Context::as_stored(factor)});
  return graph_value(out, x.axes);
}

Value product_of_values(Context& c, const Call& call, Value x, Value factor) {
  if (x.axes.count(x.axes.stored) < factor.axes.count(factor.axes.stored)) std::swap(x, factor);
  Value a = x, b = factor;
  const Atoms channels = channels_of_factor(a.axes, b.axes, true);
  if (!channels.empty() && is_suffix(channels, a.axes.stored) && channels.size() + 1 < a.axes.stored.size()) {
    const Shape factors{c.rows, a.axes.count(channels)};
    const int src = c.channels_last(call, a, channels);
    return graph_value(c.builder.scale_by(c.layer_name(call), src, c.shaped(call, b.graph, factors)), a.axes);
  }
  fit_together(c, call, x, factor);
  const Shape all{c.rows, c.builder.shape(x.graph).row_count()};
  const int left = c.shaped(call, x.graph, all), right = c.shaped(call, factor.graph, all);
  return graph_value(c.builder.scale_by(c.layer_name(call), left, right), x.axes);
}

Value raised(Context& c, const Call& call, Value x, double exponent) {
  x = c.plain(call, x);
  return graph_value(c.builder.power(c.layer_name(call), x.graph, float(exponent)), x.axes);
}

Values multiply(Context& c, const Call& call) {
  Value a = call.value("self");
  if (call.is_number("other")) return {affine(c, call, a, call.real("other", 1), 0)};
  Value b = call.value("other");
  if (a.kind != Value::Kind::graph) std::swap(a, b);
  const Constant nothing = Constant::filled({}, 0);
  if (const auto constant = c.as_constant(b)) return {affine(c, call, a, *constant, nothing)};
  a = c.plain(call, a);
  if (b.kind == Value::Kind::row_mask) return {with_dropped_rows(c, call, a, b)};
  if (b.kind == Value::Kind::parameter) return {scaled(c, call, a, b)};
  if (b.kind == Value::Kind::shifted) {
    const Value product = scaled(c, call, a, b);
    return {sum_of_values(c, call, product, affine(c, call, a, b.shift, 0))};
  }
  return {product_of_values(c, call, a, c.plain(call, b))};
}

Values divide(Context& c, const Call& call) {
  Value x = call.value("self");
  if (!call.text("rounding_mode", "").empty()) call.refuse("rounds its result, which is not supported");
  if (!call.is_number("other") && !c.as_constant(call.value("other")))
    return {product_of_values(c, call, c.plain(call, x), raised(c, call, call.value("other"), -1))};
  Constant by = call.is_number("other") ? Constant::filled({}, call.real("other", 1)) : call.constant("other").copy();
  if (x.kind == Value::Kind::row_mask && by.count() == 1) {
    x.factor /= by.values()[0];
    x.memory = -1;
    return {x};
  }
  if (x.kind == Value::Kind::graph && by.count() == 1 && only_masks_rows(c, call)) {
    x.factor /= by.values()[0];
    return {x};
  }
  for (double& v : *by.data) v = 1 / v;
  return {affine(c, call, x, by, Constant::filled({}, 0))};
}

Values square_root(Context& c, const Call& call) { return {raised(c, call, call.value("self"), 0.5)}; }
Values inverse_root(Context& c, const Call& call) { return {raised(c, call, call.value("self"), -0.5)}; }
Values reciprocal(Context& c, const Call& call) { return {raised(c, call, call.value("self"), -1)}; }

Values power(Context& c, const Call& call) {
  const Value x = call.computed("self");
  const double exponent = call.is_number("exponent") ? call.real("exponent", 0) : 0;
  if (exponent == 1) return {x};
  if (!call.is_number("exponent")) call.refuse("raises to a power that is no number, which is not supported");
  if (exponent != 2 && exponent != 3) return {raised(c, call, x, exponent)};
  const Value square = product_of_values(c, call, x, x);
  return {exponent == 2 ? square : product_of_values(c, call, square, x)};
}
Values square(Context& c, const Call& call) {
  const Value x = call.computed("self");
  return {product_of_values(c, call, x, x)};
}

// sign 1: max(x, bound) = x + relu(bound - x). sign -1: min(x, bound) = x - relu(x - bound). Elements within the bound
// stay exactly as they are.
Value bounded(Context& c, const Call& call, const Value& x, double bound, double sign) {
  constexpr double most = std::numeric_limits<float>::max();
  if (bound * sign <= -most) return x;  // all finite values are within it
  if (!(std::abs(bound) <= most)) call.refuse(fmt::format("has the bound {}, which is not supported", bound));
  const auto positive = [&](const Value& v) {
    return graph_value(c.builder.activation(c.layer_name(call), v.graph, Activation::relu), v.axes);
  };
  if (bound == 0) return affine(c, call, positive(affine(c, call, x, sign, 0)), sign, 0);
  const Value beyond = positive(affine(c, call, x, -sign, sign * bound));
  return sum_of_values(c, call, x, affine(c, call, beyond, sign, 0));
}

// max(x, low), and then min(x, high).
Values clamp(Context& c, const Call& call) {
  Value x = call.computed("self");
  if (call.has("min")) x = bounded(c, call, x, call.real("min", 0), 1);
  if (call.has("max")) x = bounded(c, call, x, call.real("max", 0), -1);
  return {x};
}

Values hardtanh(Context& c, const Call& call) {
  const double low = call.real("min_val", -1), high = call.real("max_val", 1);
  if (low == 0 && high == 6) return {activated(c, call, Activation::relu6)};
  return {bounded(c, call, bounded(c, call, call.computed("self"), low, 1), high, -1)};
}

// sqrt(sum of x^2) over axes.
Values vector_norm(Context& c, const Call& call) {
  const Value x = call.computed("self");
  if (call.real(call.has("p") ? "p" : "ord", 2) != 2 || !call.has("dim"))
    call.refuse("is another norm than the square root of a sum of squares over named axes, which is not supported");
  std::int64_t count = 1;
  for (const std::int64_t dim : call.integers("dim")) count *= x.axes.size(axis_number(dim, x.axes.rank()));
  const Value mean = mean_over(c, call, product_of_values(c, call, x, x));
  return {raised(c, call, affine(c, call, mean, double(count), 0), 0.5)};
}

// input + value * tensor1 * tensor2
Values add_product(Context& c, const Call& call) {
  Value a = call.value("tensor1"), b = call.value("tensor2");
  if (a.kind != Value::Kind::graph) std::swap(a, b);
  const Value product = b.kind == Value::Kind::parameter
                            ? scaled(c, call, c.plain(call, a), b)
                            : product_of_values(c, call, c.plain(call, a), c.plain(call, b));
  return {sum_with(c, call, affine(c, call, product, call.real("value", 1), 0), "self", 1)};
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

// Of whole channels.
Values feature_dropout(Context& c, const Call& call) {
  Value x = call.computed(input_of(call));
  const double p = call.real("p", 0.5);
  if (!call.flag("train", true) || p == 0) return {x};
  if (p < 0 || p >= 1) call.refuse("drops everything");
  if (x.axes.rank() < 3 || !x.axes.begins_with_rows())
    call.refuse(fmt::format("drops channels of {}, which is no image or volume", x.axes.text()));
  const int src = c.channels_last(call, x, x.axes.logical[1]);
  return {graph_value(c.builder.dropout(c.layer_name(call), src, float(p), c.spec.seed, false, true), x.axes)};
}

// Rows of numbers that a later node draws.
Values blank(Context&, const Call& call) {
  Value out;
  out.kind = Value::Kind::blank;
  out.axes = Axes::contiguous(call.integers("size"));
  return {out};
}

Values bernoulli(Context& c, const Call& call) {
  Value out = call.value("self");
  if (out.kind != Value::Kind::blank || out.axes.count(out.axes.stored) != rows_symbol || !out.axes.begins_with_rows())
    call.refuse("draws random numbers that are not one for each row (stochastic depth). that is not supported");
  out.kind = Value::Kind::row_mask;
  out.draw = c.draws++;
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
  all["prelu"] = prelu;
  all["elu"] = elu;
  all["mul"] = multiply;
  all["div"] = divide;
  all["pow"] = power;
  all["square"] = square;
  all["sqrt"] = square_root;
  all["rsqrt"] = inverse_root;
  all["reciprocal"] = reciprocal;
  all["linalg_vector_norm"] = all["norm"] = vector_norm;
  all["addcmul"] = add_product;
  all["clamp"] = all["clamp_min"] = all["clamp_max"] = clamp;
  all["dropout"] = dropout;
  all["feature_dropout"] = feature_dropout;
  all["empty"] = all["new_empty"] = blank;
  all["bernoulli"] = bernoulli;
}

}  // namespace millrace::pt2
