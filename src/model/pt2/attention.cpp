// Scaled dot-product attention, and rotary positions.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

struct Heads {
  std::int64_t heads = 0, positions = 0, size = 0;
  bool packed = false;  // an element of an axis between positions and heads
};

Heads heads_of(const Call& call, const Value& v) {
  const Axes& axes = v.axes;
  if (v.kind != Value::Kind::graph || axes.rank() != 4)
    call.refuse(fmt::format("needs values (N, heads, positions, size), but one is {}", axes.text()));
  Heads out{axes.size(1), axes.size(2), axes.size(3)};
  Atoms between;
  for (const auto& [atom, index] : axes.selected) between.push_back(atom);
  out.packed = between.size() == 1 && concatenated({axes.logical[0], axes.logical[2], between, axes.logical[1],
                                                    axes.logical[3]}) == axes.stored;
  return out;
}

// One linear layer has computed the queries, the keys and then the values.
bool is_packed(const Values& qkv, const std::vector<Heads>& heads) {
  for (std::size_t i = 0; i < 3; ++i) {
    const Axes& axes = qkv[i].axes;
    if (!heads[i].packed || qkv[i].graph != qkv[0].graph || axes.selected[0].second != std::int64_t(i) ||
        axes.extents[std::size_t(axes.selected[0].first)] != 3)
      return false;
  }
  return true;
}

// Whether the mask is a parameter, such as the bias of relative positions.
bool has_bias(const Call& call) {
  return call.has("attn_mask") && call.value("attn_mask").kind == Value::Kind::parameter;
}

// What is added to the scores (..., queries, keys): the mask, as numbers.
std::optional<Constant> mask_of(const Call& call, std::int64_t queries, std::int64_t keys) {
  const double hidden = -std::numeric_limits<double>::infinity();
  if (call.flag("is_causal", false)) {
    Constant mask = Constant::filled({queries, keys}, 0);
    for (std::int64_t i = 0; i < queries * keys; ++i)
      if (i % keys > i / keys) (*mask.data)[std::size_t(i)] = hidden;
    return mask;
  }
  if (!call.has("attn_mask") || has_bias(call)) return std::nullopt;
  Constant mask = call.constant("attn_mask");
  if (mask.type != Constant::Type::boolean) return mask;
  mask = mask.copy();
  for (double& value : *mask.data) value = value != 0 ? 0 : hidden;
  mask.type = Constant::Type::real;
  return mask;
}

enum class Visible { all, up_to_the_query, other };

// Scores that are lowered by the largest float are hidden as well, if each query sees a key.
Visible visible_by(const std::optional<Constant>& mask, std::int64_t queries, std::int64_t keys) {
  if (!mask) return Visible::all;
  constexpr double lowest = -1e30;
  Sizes sizes = mask->sizes;
  while (sizes.size() < 2) sizes.insert(sizes.begin(), 1);
  if (sizes.back() == 1) sizes.back() = keys;
  if (sizes[sizes.size() - 2] == 1) sizes[sizes.size() - 2] = queries;
  if (sizes.back() != keys || sizes[sizes.size() - 2] != queries) return Visible::other;
  bool all = true, causal = queries == keys;
  std::int64_t i = 0;
  for (const double value : mask->expanded(sizes).values()) {
    const bool behind = i % keys > i / keys % queries;
    all = all && value == 0;
    causal = causal && (behind ? value < lowest : value == 0);
    ++i;
  }
  if (all && queries * keys == 1) return Visible::up_to_the_query;  // of a part of a text
  return all ? Visible::all : causal ? Visible::up_to_the_query : Visible::other;
}

// A query that sees no key has no softmax.
void require_visible_keys(const Call& call, const Constant& mask) {
  const std::vector<double> values = mask.values();
  const auto keys = std::size_t(mask.sizes.empty() ? 1 : mask.sizes.back());
  for (std::size_t begin = 0; begin + keys <= values.size(); begin += keys) {
    const auto first = values.begin() + std::ptrdiff_t(begin);
    if (std::all_of(first, first + std::ptrdiff_t(keys),
                    [](double v) { return v == -std::numeric_limits<double>::infinity(); }))
      call.refuse("has a mask that hides all keys from a query");
  }
}

// An operation with tensors that are not kept whole: scores, their softmax, and the sums of the values.
Value written_attention(Context& c, const Call& call, Value q, Value k, const Value& v,
                        const std::optional<Constant>& mask) {
  const int rank = q.axes.rank();
  const double scale = call.real("scale", 1 / std::sqrt(double(q.axes.size(rank - 1))));
  std::swap(k.axes.logical[std::size_t(rank) - 2], k.axes.logical[std::size_t(rank) - 1]);
  q = affine(c, call, q, scale, 0);  // before the product, whose sums could overflow in half precision
  Value scores = matrix_product(c, call, q, k);
  if (mask) {
    require_visible_keys(call, *mask);
    scores = affine(c, call, scores, Constant::filled({}, 1), *mask);
  }
  if (has_bias(call)) scores = with_bias(c, call, scores, call.value("attn_mask"));
  scores = softmax_over(c, call, scores, rank - 1);
  if (const double p = call.real("dropout_p", 0); p > 0) {
    if (p >= 1) call.refuse("drops everything");
    scores.graph = c.builder.dropout(c.layer_name(call), scores.graph, float(p), c.spec.seed);
  }
  return matrix_product(c, call, scores, v);
}

// Each head of the keys for several heads of the queries, which lie side by side.
Value repeated_heads(Context& c, const Call& call, const Value& keys, std::int64_t heads) {
  const std::int64_t own = keys.axes.size(1);
  if (heads == own) return keys;
  if (own < 1 || heads % own != 0) call.refuse("has heads that do not fit");
  checked_count({heads});
  std::vector<std::int32_t> order;
  for (std::int64_t head = 0; head < heads; ++head) order.push_back(std::int32_t(head / (heads / own)));
  return c.take(call, keys, 1, std::move(order));
}

Values attention(Context& c, const Call& call) {
  Values qkv{call.value("query"), call.value("key"), call.value("value")};
  bool same = true;
  for (const Value& v : qkv) {
    if (v.kind != Value::Kind::graph || v.axes.rank() < 3 || v.axes.rank() != qkv[0].axes.rank())
      call.refuse(fmt::format("needs values (N, heads, positions, size), but one is {}", v.axes.text()));
    same = same && v.axes.rank() == 4 && v.axes.begins_with_rows() && v.axes.size(2) == qkv[0].axes.size(2) &&
           v.axes.size(3) == qkv[0].axes.size(3);
  }
  const int rank = qkv[0].axes.rank();
  const bool scaled =
      call.has("scale") && std::abs(call.real("scale", 0) * std::sqrt(double(qkv[0].axes.sizes().back())) - 1) > 1e-6;
  const bool grouped = call.flag("enable_gqa", false);
  const std::int64_t queries = qkv[0].axes.size(rank - 2), keys = qkv[1].axes.size(rank - 2);
  std::optional<Constant> mask;
  Visible visible = Visible::up_to_the_query;
  if (!same || !call.flag("is_causal", false)) {
    mask = mask_of(call, queries, keys);
    visible = has_bias(call) ? Visible::other : visible_by(mask, queries, keys);
  }
  if (!same || visible == Visible::other) {
    if (grouped && rank == 4)
      for (const std::size_t i : {1, 2}) qkv[i] = repeated_heads(c, call, qkv[i], qkv[0].axes.size(1));
    return {written_attention(c, call, qkv[0], qkv[1], qkv[2], mask)};
  }
  if (scaled)  // the operation has the factor 1 / sqrt(size)
    qkv[0] = affine(c, call, qkv[0], call.real("scale", 0) * std::sqrt(double(qkv[0].axes.size(3))), 0);
  std::vector<Heads> heads;
  for (const Value& v : qkv) heads.push_back(heads_of(call, v));
  const Heads &q = heads[0], &k = heads[1];
  if (k.heads != heads[2].heads || (q.heads != k.heads && !grouped && k.heads != 1))
    call.refuse("has queries, keys and values of different extents, which is not supported");
  int src = -1;
  if (is_packed(qkv, heads)) {
    src = c.shaped(call, qkv[0].graph, {c.rows, q.positions, 3 * q.heads * q.size});
  } else {
    for (std::size_t i = 0; i < 3; ++i) {
      const auto& axes = qkv[i].axes.logical;
      const Value one = c.ordered(call, qkv[i], concatenated({axes[0], axes[2], axes[1], axes[3]}));
      const int part = c.shaped(call, one.graph, {c.rows, heads[i].positions, heads[i].heads * heads[i].size});
      src = i == 0 ? part : c.builder.concat(c.layer_name(call) + ".qkv", src, part, 2);
    }
  }
  GraphBuilder::AttentionOptions options;
  options.heads = q.heads;
  options.key_heads = k.heads;
  options.causal = visible == Visible::up_to_the_query;
  options.dropout = float(call.real("dropout_p", 0));
  options.seed = c.spec.seed;
  const int out = c.builder.attention(c.layer_name(call), src, options);
  Axes axes = Axes::contiguous({rows_symbol, q.positions, q.heads, q.size});
  axes.permute({0, 2, 1, 3});
  return {graph_value(out, axes)};
}

// The elements of an axis, of which the first ones are moved behind the others.
Value second_half_first(Context& c, const Call& call, const Value& x, int axis, std::int64_t half) {
  const std::int64_t size = x.axes.size(axis);
  checked_count({size});
  std::vector<std::int32_t> order;
  for (std::int64_t i = 0; i < size; ++i) order.push_back(std::int32_t((i + half) % size));
  return c.take(call, x, axis, std::move(order));
}

// The base of frequencies theta^(-2 i / size) with which the halves of the last axis of (positions, size) are rotated;
// 0: they are others.
double base_of(const Constant& cosine, const Constant& sine) {
  const std::int64_t positions = cosine.sizes[0], size = cosine.sizes[1], half = size / 2;
  if (positions < 2 || half < 2 || size % 2 != 0) return 0;
  const std::vector<double> c = cosine.values(), s = sine.values();
  const auto last = std::size_t(size + half - 1);
  double base = std::pow(std::atan2(s[last], c[last]), -double(size) / double(size - 2));
  if (std::abs(base - std::round(base)) < 1e-5 * base) base = std::round(base);
  if (!(base > 1)) return 0;
  for (std::int64_t at = 0; at < positions * size; ++at) {
    const double frequency = std::pow(base, -2 * double(at % half) / double(size));
    const double angle = double(at / size) * frequency, allowed = 2e-7 * angle + 1e-9;  // rounded to float32
    const auto i = std::size_t(at);
    if (std::abs(c[i] - std::cos(angle)) > allowed || std::abs(s[i] - std::sin(angle)) > allowed) return 0;
  }
  return base;
}

// Of the positions and the last axis, without axes of extent 1 before them; nullopt: it differs by another axis.
std::optional<Constant> by_position(const Constant& table, std::int64_t positions, std::int64_t size) {
  const std::size_t rank = table.sizes.size();
  if (rank < 2 || table.sizes[rank - 1] != size || table.sizes[rank - 2] != positions ||
      table.count() != positions * size)
    return std::nullopt;
  return table.reshaped({positions, size});
}

// sine * (-1, ..., -1, 1, ..., 1), whose elements lie along this axis of `rank` axes.
Constant with_signs(const Constant& sine, int rank, int axis, std::int64_t size, std::int64_t negative) {
  Sizes of_signs(std::size_t(rank - axis), 1);
  of_signs[0] = size;
  Constant signs = Constant::filled(of_signs, 1);
  std::fill_n(signs.data->begin(), negative, -1);
  const Sizes sizes = broadcast_sizes(sine.sizes, of_signs);
  Constant out = sine.expanded(sizes).copy();
  const std::vector<double> factors = signs.expanded(sizes).values();
  for (std::size_t i = 0; i < factors.size(); ++i) (*out.data)[i] *= factors[i];
  return out;
}

// x * cosine + rotated * sine, where `rotated` is the second part of an axis, negated, before the first one
// (patterns.cpp).
Values rotary(Context& c, const Call& call) {
  Value x = call.computed("self");
  const Constant cosine = call.constant("cosine"), sine = call.constant("sine");
  const int rank = x.axes.rank();
  const int axis = call.axis("dim", 0, rank);
  if (call.axis("joined", 0, rank) != axis) call.refuse("joins other axes than it divides, which is not supported");
  const std::int64_t size = x.axes.size(axis), half = std::clamp<std::int64_t>(call.integer("half", 0), 0, size);
  if (rank == 4 && axis == 3 && x.axes.begins_with_rows() && 2 * half == size) {
    const auto cosines = by_position(cosine, x.axes.size(2), size), sines = by_position(sine, x.axes.size(2), size);
    if (const double base = cosines && sines ? base_of(*cosines, *sines) : 0; base > 0) {
      const auto axes = x.axes.logical;
      x = c.ordered(call, x, concatenated({axes[0], axes[2], axes[1], axes[3]}));
      const std::int64_t heads = x.axes.size(1);
      const int src = c.shaped(call, x.graph, {c.rows, x.axes.size(2), heads * size});
      return {graph_value(c.builder.rotary(c.layer_name(call), src, heads, 0, float(base)), x.axes)};
    }
  }
  if (size % rows_symbol == 0) call.refuse("rotates the rows, which is not supported");
  const Constant nothing = Constant::filled({}, 0), factor = with_signs(sine, rank, axis, size, size - half);
  const Value turned = affine(c, call, second_half_first(c, call, x, axis, half), factor, nothing);
  return {sum_of_values(c, call, affine(c, call, x, cosine, nothing), turned)};
}

}  // namespace

void add_attention(Operations& all) {
  all["scaled_dot_product_attention"] = attention;
  all["(rotary)"] = rotary;
}

}  // namespace millrace::pt2
