// Operations with tables of constants, and products of two values, which imported networks have.
#include <algorithm>

#include "onnx/operations.hpp"

namespace millrace {
namespace {

// A table for each entry of a period of the row, or one number.
std::string table_constant(Assembler& a, const Table<float>& table) {
  return table.size() == 1 ? a.constant(table[0]) : a.constant(table.values(), {table.size(), 1});
}

OnnxShape wide(const Table<std::int32_t>& index, std::int64_t for_none) {
  OnnxShape out(index.values().begin(), index.values().end());
  std::ranges::replace(out, -1, for_none);
  return out;
}

bool has_none(const Table<std::int32_t>& index) { return std::ranges::count(index.values(), -1) > 0; }

// With the extents of a value of the graph again.
void set_reshaped(Assembler& a, const Node& node, const std::string& result) {
  OnnxShape extents = a.shape(node.dst).extents();
  extents[0] = -1;
  a.set(node.dst, a.reshape(node.name, result, extents), Order::last);
}

}  // namespace

// Zeros are a block behind the others.
void add_node(Assembler& a, const Node& node, const GatherSpec& s) {
  std::string x = a.reshape(node.name + ".blocks", a.get(node.src[0], Order::last), {-1, s.blocks(), s.size});
  if (has_none(s.index)) x = a.add("Pad", node.name + ".padded", {x, a.integers({0, 0, 0, 0, 1, 0})});
  const std::string indices = a.integers(wide(s.index, s.blocks()));
  set_reshaped(a, node, a.add("Gather", node.name + ".gathered", {x, indices}, {{"axis", std::int64_t(1)}}));
}

void add_node(Assembler& a, const Node& node, const AffineSpec& s) {
  const bool tables = s.period() > 1;
  std::string x = a.get(node.src[0], tables ? Order::last : a.order(node.src[0]));
  if (tables) x = a.reshape(node.name + ".periods", x, {0, -1, s.period(), s.inner});
  bool scales = false, moves = false;  // elements that are not masked
  std::string masked;                  // where the scale is 0
  for (std::int64_t i = 0; i < s.period(); ++i) {
    const float scale = s.scale[i % s.scale.size()], offset = s.offset[i % s.offset.size()];
    scales = scales || (scale != 0 && scale != 1);
    moves = moves || (scale != 0 && offset != 0);
    if (i < s.scale.size()) masked += char(scale == 0);
  }
  if (scales) x = a.add("Mul", node.name + ".scaled", {x, table_constant(a, s.scale)});
  if (moves) x = a.add("Add", node.name + ".moved", {x, table_constant(a, s.offset)});
  if (masked.find(char(1)) != masked.npos) {
    const OnnxShape shape = s.scale.size() == 1 ? OnnxShape{} : OnnxShape{s.scale.size(), 1};
    const std::string mask = a.flags(node.name + ".mask", shape, masked);
    x = a.add("Where", node.name + ".masked", {mask, table_constant(a, s.offset), x});
  }
  if (tables) return set_reshaped(a, node, x);
  a.set(node.dst, x, a.order(node.src[0]));
}

void add_node(Assembler& a, const Node& node, const PowerSpec& s) {
  a.set(node.dst, a.add("Pow", node.name, {a.get(node.src[0]), a.constant(s.exponent)}), a.order(node.src[0]));
}

void add_node(Assembler& a, const Node& node, const IndexedBiasSpec& s) {
  std::string entries = a.weight(node.weight[0]);
  if (has_none(s.index))
    entries = a.add("Concat", node.name + ".entries", {entries, a.constant({0}, {1})}, {{"axis", std::int64_t(0)}});
  const std::string bias = a.add("Gather", node.name + ".bias", {entries, a.integers(wide(s.index, s.entries))},
                                 {{"axis", std::int64_t(0)}});
  const std::string x = a.reshape(node.name + ".groups", a.get(node.src[0], Order::last), {-1, s.positions()});
  set_reshaped(a, node, a.add("Add", node.name + ".sum", {x, bias}));
}

void add_node(Assembler& a, const Node& node, const SoftmaxSpec&) {
  a.set(node.dst, a.add("Softmax", node.name, {a.get(node.src[0], Order::last)}, {{"axis", std::int64_t(-1)}}),
        Order::last);
}

void add_node(Assembler& a, const Node& node, const BatchedMatmulSpec& s) {
  const auto matrices = [&](int src, std::int64_t rows, std::int64_t columns, bool transposed, const char* what) {
    const std::string x = a.get(node.src[std::size_t(src)], Order::last);
    if (!transposed) return a.reshape(node.name + what, x, {-1, rows, columns});
    return a.transpose(node.name + what, a.reshape(node.name + what, x, {-1, columns, rows}), {0, 2, 1});
  };
  const std::string left = matrices(0, s.m, s.k, s.transpose_a, ".a"),
                    right = matrices(1, s.k, s.n, s.transpose_b, ".b");
  set_reshaped(a, node, a.add("MatMul", node.name + ".product", {left, right}));
}

}  // namespace millrace
