// Attention, class tokens, and values that are joined.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

// The class token in front of the positions of each row. The positions that are added next make a layer of both.
Value with_class_token(Context& c, const Call& call, const Value& token, Value x) {
  x = c.plain(call, x);
  const Axes& axes = x.axes;
  const bool fits = axes.rank() == 3 && axes.begins_with_rows() &&
                    concatenated({axes.logical[0], axes.logical[1], axes.logical[2]}) == axes.stored &&
                    token.axes.rank() == 3 && token.axes.sizes() == Sizes{1, 1, axes.size(2)};
  if (!fits)
    call.refuse(
        fmt::format("joins a parameter {} and {}. only a class token (1, 1, width) in front of (N, positions, "
                    "width) is supported",
                    token.axes.text(), axes.text()));
  Value out;
  out.kind = Value::Kind::class_token;
  out.tensor = token.tensor;
  const Shape shape{c.rows, axes.size(1), axes.size(2)};
  out.graph = c.shaped(call, x.graph, shape);
  out.axes = Axes::contiguous({rows_symbol, 1 + axes.size(1), axes.size(2)});
  return out;
}

void describe_axes(const Axes& axes, std::vector<std::int64_t>& out) {
  for (const Atoms& atoms : axes.logical) {
    out.push_back(-1);
    for (const int atom : atoms) out.push_back(axes.extents[std::size_t(atom)]);
  }
  out.push_back(-2);
  out.insert(out.end(), axes.stored.begin(), axes.stored.end());
}

Value joined(Context& c, const Call& call, Value a, Value b, int axis) {
  const auto without = [axis](Axes axes) {
    axes.logical[std::size_t(axis)].clear();
    return axes;
  };
  const Atoms of_a = a.axes.logical[std::size_t(axis)], of_b = b.axes.logical[std::size_t(axis)];
  Axes rest_a = without(a.axes), rest_b = without(b.axes);
  if (rest_a.sizes() != rest_b.sizes())
    call.refuse(fmt::format("joins {} and {}, which differ by more than one axis", a.axes.text(), b.axes.text()));
  // All positions of the other axes before and after those of the joined one.
  bool fits = align(rest_a, rest_b, false);
  const auto begin_of = [&](const Atoms& own, const Axes& all) {
    return own.empty() ? -1 : find_block(own, all.stored);
  };
  const auto others = [](const Atoms& own, const Axes& all) {
    Atoms out = all.stored;
    std::erase_if(out, [&](int atom) { return std::ranges::find(own, atom) != own.end(); });
    return out;
  };
  int at = begin_of(of_a, rest_a), at_b = begin_of(of_b, rest_b);
  const Atoms others_a = others(of_a, rest_a), others_b = others(of_b, rest_b);
  if (of_a.empty()) at = of_b.empty() ? int(others_a.size()) : at_b;
  if (of_b.empty()) at_b = at;
  fits = fits && at > 0 && at == at_b && others_a.size() == others_b.size();
  for (std::size_t i = 0; fits && i < others_a.size(); ++i)
    for (std::size_t list = 0; list < rest_a.logical.size(); ++list) {
      const auto place = [&](const Axes& all, int atom) {
        return std::ranges::find(all.logical[list], atom) - all.logical[list].begin();
      };
      fits = fits && place(rest_a, others_a[i]) == place(rest_b, others_b[i]);
    }
  if (!fits)
    call.refuse(
        fmt::format("joins two values {} that are stored in different orders, which would need a copy. that is "
                    "not built yet",
                    a.axes.text()));
  const std::int64_t before = rest_a.count(Atoms(others_a.begin() + 1, others_a.begin() + at));
  const std::int64_t after = rest_a.count(Atoms(others_a.begin() + at, others_a.end()));
  const auto parts = [&](const Value& v, std::int64_t size) {
    return c.shaped(call, v.graph, after == 1 ? Shape{c.rows, before, size} : Shape{c.rows, before, size, after});
  };
  const std::int64_t first = a.axes.count(of_a), second = b.axes.count(of_b);
  const int left = parts(a, first), right = parts(b, second);
  const int out = c.builder.concat(c.layer_name(call), left, right, 2);
  rest_a.stored = others_a;
  rest_a.logical[std::size_t(axis)].clear();
  rest_a.replace_axis(axis, first + second, at);
  return graph_value(out, rest_a);
}

Values cat(Context& c, const Call& call) {
  Values all = call.values("tensors");
  if (all.empty()) call.refuse("joins nothing");
  const int axis = call.axis("dim", 0, all[0].axes.rank());
  if (all.size() == 2 && all[0].kind == Value::Kind::parameter && axis == 1)
    return {with_class_token(c, call, all[0], all[1])};
  if (axis == 0) call.refuse("joins rows, which is not supported");
  Value out = c.plain(call, all[0]);
  std::vector<std::int64_t> key{axis, out.graph};
  describe_axes(out.axes, key);
  for (std::size_t i = 1; i < all.size(); ++i) {
    const Value next = c.plain(call, all[i]);
    if (next.axes.rank() != out.axes.rank()) call.refuse("joins values of different numbers of axes");
    key.push_back(next.graph);
    describe_axes(next.axes, key);
    const auto known = c.joined.find(key);  // of a dense block, which joins one more each time
    out = known != c.joined.end() ? known->second : joined(c, call, out, next, axis);
    c.joined[key] = out;
  }
  out.memory = -1;
  return {out};
}

struct Heads {
  std::int64_t heads = 0, positions = 0, size = 0;
  bool packed = false;  // an element of an axis between positions and heads
};

Heads heads_of(const Call& call, const Value& v) {
  const Axes& axes = v.axes;
  if (v.kind != Value::Kind::graph || axes.rank() != 4 || !axes.begins_with_rows())
    call.refuse(fmt::format("needs values (N, heads, positions, size), but one is {}", axes.text()));
  Heads out{axes.size(1), axes.size(2), axes.size(3)};
  Atoms between;
  for (const auto& [atom, index] : axes.selected) between.push_back(atom);
  out.packed = between.size() == 1;
  const Atoms own = concatenated({axes.logical[0], axes.logical[2], between, axes.logical[1], axes.logical[3]});
  const Atoms plain = concatenated({axes.logical[0], axes.logical[2], axes.logical[1], axes.logical[3]});
  if ((out.packed ? own : plain) != axes.stored && !out.packed)
    call.refuse(
        fmt::format("needs heads and sizes of {} stored innermost, which would need a copy. that is not built "
                    "yet",
                    axes.text()));
  out.packed = out.packed && own == axes.stored;
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

Values attention(Context& c, const Call& call) {
  Values qkv{call.value("query"), call.value("key"), call.value("value")};
  if (call.has("attn_mask")) call.refuse("has an attn_mask, which is not supported. is_causal=True is");
  std::vector<Heads> heads;
  for (const Value& v : qkv) heads.push_back(heads_of(call, v));
  const Heads &q = heads[0], &k = heads[1], &v = heads[2];
  if (k.heads != v.heads || q.positions != k.positions || k.positions != v.positions || q.size != k.size ||
      k.size != v.size || (q.heads != k.heads && !call.flag("enable_gqa", false)))
    call.refuse("has queries, keys and values of different extents, which is not supported");
  if (call.has("scale") && std::abs(call.real("scale", 0) * std::sqrt(double(q.size)) - 1) > 1e-6)
    call.refuse("has another scale than 1 / sqrt(size), which is not supported");
  int src = -1;
  if (is_packed(qkv, heads)) {
    src = c.shaped(call, qkv[0].graph, {c.rows, q.positions, 3 * q.heads * q.size});
  } else {
    for (std::size_t i = 0; i < 3; ++i) {
      const Value one = c.plain(call, qkv[i]);
      const Heads& own = heads_of(call, one);
      const int part = c.shaped(call, one.graph, {c.rows, own.positions, own.heads * own.size});
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

Values range(Context&, const Call& call) {
  if (call.integer("start", 0) != 0 || call.integer("step", 1) != 1)
    call.refuse("counts from another number than 0, which is not supported");
  Value out;
  out.kind = Value::Kind::range;
  const std::int64_t end = call.integer("end", 0);
  if (end < 1 || end % rows_symbol == 0) call.refuse("counts the rows, which is not supported");
  out.axes = Axes::contiguous({end});
  return {out};
}

}  // namespace

void add_tokens(Operations& all) {
  all["cat"] = all["concat"] = cat;
  all["scaled_dot_product_attention"] = attention;
  all["arange"] = range;
}

}  // namespace millrace::pt2
