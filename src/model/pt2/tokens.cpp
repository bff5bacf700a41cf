// Attention and class tokens.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
// A position of zeros in front of the others, to which the token is added. The axes may be a view of (N, positions,
// width), which is the stored order.
Value with_token(Context& c, const Call& call, const Value& v) {
  const std::vector<std::int64_t> key{-1, v.graph, v.tensor};
  Value out = v;
  out.kind = Value::Kind::graph;
  if (const auto known = c.copies.find(key); known != c.copies.end()) {
    out.graph = known->second.graph;
    return out;
  }
  const std::int64_t width = c.program.tensors[std::size_t(v.tensor)].count();
  const std::int64_t positions = v.axes.count(Atoms(v.axes.stored.begin() + 1, v.axes.stored.end())) / width;
  checked_count({positions, width});
  std::vector<std::int32_t> order;
  for (std::int64_t at = -1; at + 1 < positions; ++at) order.push_back(std::int32_t(at));
  out.graph = c.take(call, graph_value(v.graph, Axes::contiguous({rows_symbol, positions - 1, width})), 1, order).graph;
  std::vector<std::int32_t> index(std::size_t(positions * width), -1);
  for (std::int64_t i = 0; i < width; ++i) index[std::size_t(i)] = std::int32_t(i);
  out.graph =
      c.builder.indexed_bias(c.layer_name(call, v.tensor), out.graph, width, Table<std::int32_t>(std::move(index)));
  Value token;
  token.tensor = v.tensor;
  token.axes = Axes::contiguous({width});
  c.attach(call, {Context::as_stored(token)});
  c.copies[key] = out;
  return out;
}

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
Value written_attention(Context& c, const Call& call, Value q, Value k, const Value& v) {
  const int rank = q.axes.rank();
  const double scale = call.real("scale", 1 / std::sqrt(double(q.axes.size(rank - 1))));
  std::swap(k.axes.logical[std::size_t(rank) - 2], k.axes.logical[std::size_t(rank) - 1]);
  q = affine(c, call, q, scale, 0);  // before the product, whose sums could overflow in half precision
  Value scores = matrix_product(c, call, q, k);
  std::optional<Constant> mask;
  if (call.has("attn_mask")) mask = call.constant("attn_mask");
  const std::int64_t queries = scores.axes.size(rank - 2), keys = scores.axes.size(rank - 1);
  if (call.flag("is_causal", false)) {
    mask = Constant::filled({queries, keys}, 0, Constant::Type::boolean);
    for (std::int64_t i = 0; i < queries * keys; ++i) (*mask->data)[std::size_t(i)] = i % keys <= i / keys;
  }
  if (mask && mask->type == Constant::Type::boolean) {
    Constant offsets = mask->copy();
    for (double& value : *offsets.data) value = value != 0 ? 0 : -std::numeric_limits<double>::infinity();
    offsets.type = Constant::Type::real;
    mask = offsets;
  }
  if (mask) {
    require_visible_keys(call, *mask);
    scores = affine(c, call, scores, Constant::filled({}, 1), *mask);
  }
  scores = softmax_over(c, call, scores, rank - 1);
  if (const double p = call.real("dropout_p", 0); p > 0) {
    if (p >= 1) call.refuse("drops everything");
    scores.graph = c.builder.dropout(c.layer_name(call), scores.graph, float(p), c.spec.seed);
  }
  return matrix_product(c, call, scores, v);
}

Values attention(Context& c, const Call& call) {
  Values qkv{call.value("query"), call.value("key"), call.value("value")};
  bool plain = !call.has("attn_mask");
  for (const Value& v : qkv) {
    if (v.kind != Value::Kind::graph || v.axes.rank() < 3 || v.axes.rank() != qkv[0].axes.rank())
      call.refuse(fmt::format("needs values (N, heads, positions, size), but one is {}", v.axes.text()));
    plain = plain && v.axes.rank() == 4 && v.axes.begins_with_rows() && v.axes.size(2) == qkv[0].axes.size(2) &&
            v.axes.size(3) == qkv[0].axes.size(3);
  }
  const bool scaled =
      call.has("scale") && std::abs(call.real("scale", 0) * std::sqrt(double(qkv[0].axes.sizes().back())) - 1) > 1e-6;
  const bool grouped = call.flag("enable_gqa", false);
  if (!plain || scaled) {
    if (grouped) call.refuse("has grouped keys with a mask or another scale, which is not supported");
    return {written_attention(c, call, qkv[0], qkv[1], qkv[2])};
  }
  std::vector<Heads> heads;
  for (const Value& v : qkv) heads.push_back(heads_of(call, v));
  const Heads &q = heads[0], &k = heads[1];
  if (k.heads != heads[2].heads || (q.heads != k.heads && !grouped))
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
  options.causal = call.flag("is_causal", false);
  options.dropout = float(call.real("dropout_p", 0));
  options.seed = c.spec.seed;
  const int out = c.builder.attention(c.layer_name(call), src, options);
  Axes axes = Axes::contiguous({rows_symbol, q.positions, q.heads, q.size});
  axes.permute({0, 2, 1, 3});
  return {graph_value(out, axes)};
}

}  // namespace

void add_tokens(Operations& all) { all["scaled_dot_product_attention"] = attention; }

}  // namespace millrace::pt2
