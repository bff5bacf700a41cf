// Embeddings and attention. These values have their channels last, as in PyTorch.
#include <cmath>
#include <limits>

#include "onnx/operations.hpp"

namespace millrace {
namespace {

// The samples, which are tokens.
std::string tokens_input(Assembler& a) {
  if (!a.has(Graph::x)) a.set(Graph::x, a.add_input("tokens", OnnxType::i64, a.shape(Graph::x).extents()), Order::last);
  return a.get(Graph::x);
}

// Which keys a query may read: (S, S), those up to itself.
std::string causal_mask(Assembler& a, std::int64_t positions) {
  std::string bytes(std::size_t(positions * positions), '\0');
  for (std::int64_t query = 0; query < positions; ++query)
    for (std::int64_t key = 0; key <= query; ++key) bytes[std::size_t(query * positions + key)] = 1;
  return a.flags("causal", {positions, positions}, bytes);
}

// The same for several documents in a row: (N, 1, 1, S, S).
std::string document_mask(Assembler& a, const std::string& name, const std::string& documents, std::int64_t positions) {
  const std::string queries = a.reshape(name + ".queries_of", documents, {0, 1, 1, positions, 1});
  const std::string keys = a.reshape(name + ".keys_of", documents, {0, 1, 1, 1, positions});
  const std::string same = a.add("Equal", name + ".same_document", {queries, keys});
  return a.add("And", name + ".visible", {same, causal_mask(a, positions)});
}

}  // namespace

void add_node(Assembler& a, const Node& node, const EmbeddingSpec&) {
  const std::string tokens = node.src[0] == Graph::x ? tokens_input(a) : a.get(node.src[0], Order::last);
  a.set(node.dst, a.add("Gather", node.name, {a.weight(node.weight[0]), tokens}, {{"axis", std::int64_t(0)}}),
        Order::last);
}

void add_node(Assembler& a, const Node& node, const PositionEmbeddingSpec& s) {
  std::string x = a.get(node.src[0], Order::last);
  if (s.class_token) {
    const std::int64_t channels = s.channels();
    if (s.src.rank != 3) x = a.reshape(node.name + ".positions", x, {0, s.src.row_count() / channels, channels});
    const std::string rows =
        a.add("Shape", node.name + ".rows", {x}, {{"start", std::int64_t(0)}, {"end", std::int64_t(1)}});
    const std::string shape =
        a.add("Concat", node.name + ".shape", {rows, a.integers({1, channels})}, {{"axis", std::int64_t(0)}});
    const std::string token = a.add("Expand", node.name + ".token", {a.weight(node.weight[1]), shape});
    x = a.add("Concat", node.name + ".tokens", {token, x}, {{"axis", std::int64_t(1)}});
  }
  a.set(node.dst, a.add("Add", node.name, {x, a.weight(node.weight[0])}), Order::last);
}

// The number of the document of each position: how many separators come before it. Or the positions that count tokens
// alone. The last token that is no separator is marked by 1.
void add_node(Assembler& a, const Node& node, const DocumentsSpec& s) {
  const std::string tokens = tokens_input(a), &name = node.name;
  const std::string ends = a.add("Equal", name + ".separators", {tokens, a.integer(s.separator)});
  const auto cast = [&](const std::string& what, const std::string& of, OnnxType to) {
    return a.add("Cast", name + what, {of}, {{"to", std::int64_t(to)}});
  };
  if (s.kind == DocumentsSpec::Kind::begins) {
    const std::string counts = cast(".counts", ends, OnnxType::i64);
    a.set(node.dst, a.add("CumSum", name, {counts, a.integer(1)}, {{"exclusive", std::int64_t(1)}}), Order::last);
    return;
  }
  const std::string others = cast(".others", a.add("Not", name + ".no_separators", {ends}), OnnxType::i64);
  if (s.kind == DocumentsSpec::Kind::counts) {
    const std::string sums = a.add("CumSum", name + ".sums", {others, a.integer(1)});
    const std::string counts = a.add("Mul", name + ".counts", {sums, others});
    a.set(node.dst, a.add("Add", name, {counts, a.integer(s.first)}), Order::last);
    return;
  }
  std::vector<std::int64_t> places;
  for (std::int64_t p = 0; p < s.positions(); ++p) places.push_back(p);
  const std::string numbers = a.add("Mul", name + ".places", {others, a.integers(places)});
  const std::string last =
      a.add("ArgMax", name + ".last", {numbers}, {{"axis", std::int64_t(1)}, {"keepdims", std::int64_t(1)}});
  const std::string is_last = a.add("Equal", name + ".is_last", {a.integers(places), last});
  a.set(node.dst, cast("", is_last, OnnxType::f32), Order::last);
}

// Queries have five axes, (N, key heads, queries of a key head, S, size), so that they are multiplied with the keys of
// their head, which have 1 in place of the third.
void add_node(Assembler& a, const Node& node, const AttentionSpec& s) {
  const std::string& name = node.name;
  const std::int64_t S = s.positions(), kv = s.key_heads, group = s.heads / kv, size = s.head_size();
  const auto parts =
      a.split(name + ".qkv", a.get(node.src[0], Order::last), -1, {s.heads * size, kv * size, kv * size});
  const auto heads = [&](int part, const char* what, std::int64_t each, const OnnxShape& axes) {
    const std::string apart = a.reshape(name + what, parts[std::size_t(part)], {0, S, kv, each, size});
    return a.transpose(name + what, apart, axes);
  };
  const std::string q = heads(0, ".q", group, {0, 2, 3, 1, 4}), k = heads(1, ".k", 1, {0, 2, 3, 4, 1}),
                    v = heads(2, ".v", 1, {0, 2, 3, 1, 4});
  const std::string scaled = a.add("Mul", name + ".scaled", {q, a.constant(float(1 / std::sqrt(double(size))))});
  std::string scores = a.add("MatMul", name + ".scores", {scaled, k});
  if (s.causal) {
    const std::string mask =
        s.documents ? document_mask(a, name, a.get(node.src[2], Order::last), S) : causal_mask(a, S);
    const std::string never = a.constant(-std::numeric_limits<float>::infinity());
    scores = a.add("Where", name + ".masked", {mask, scores, never});
  }
  const std::string shares = a.add("Softmax", name + ".softmax", {scores}, {{"axis", std::int64_t(-1)}});
  const std::string sums = a.add("MatMul", name + ".sums", {shares, v});
  const std::string back = a.transpose(name + ".back", sums, {0, 3, 1, 2, 4});
  a.set(node.dst, a.reshape(name, back, extents_in(Order::last, a.shape(node.dst))), Order::last);
}

void add_node(Assembler& a, const Node& node, const RotarySpec& s) {
  const std::string& name = node.name;
  const std::int64_t S = s.positions(), rotated = s.heads + s.key_heads, half = s.head_size() / 2;
  std::vector<float> cosines, sines;
  for (std::int64_t position = 0; position < S; ++position)
    for (std::int64_t pair = 0; pair < half; ++pair) {
      const double angle = double(position) * s.frequency(pair);
      cosines.push_back(float(std::cos(angle)));
      sines.push_back(float(std::sin(angle)));
    }
  const std::string cosine = a.constant(cosines, {S, 1, half}), sine = a.constant(sines, {S, 1, half});
  const std::string x = a.get(node.src[0], Order::last);
  std::vector<std::string> parts{x};
  if (s.key_heads > 0) parts = a.split(name + ".parts", x, -1, {rotated * 2 * half, s.key_heads * 2 * half});
  const std::string heads = a.reshape(name + ".heads", parts[0], {0, S, rotated, 2 * half});
  const auto halves = a.split(name + ".halves", heads, -1, {half, half});
  const auto product = [&](const char* what, const std::string& of, const std::string& by) {
    return a.add("Mul", name + what, {of, by});
  };
  const std::string first =
      a.add("Sub", name + ".first", {product(".ac", halves[0], cosine), product(".bs", halves[1], sine)});
  const std::string second =
      a.add("Add", name + ".second", {product(".bc", halves[1], cosine), product(".as", halves[0], sine)});
  const std::string together = a.add("Concat", name + ".rotated", {first, second}, {{"axis", std::int64_t(-1)}});
  const std::string flat = a.reshape(name + ".flat", together, {0, S, rotated * 2 * half});
  if (s.key_heads == 0) return a.set(node.dst, flat, Order::last);
  a.set(node.dst, a.add("Concat", name, {flat, parts[1]}, {{"axis", std::int64_t(-1)}}), Order::last);
}

}  // namespace millrace
