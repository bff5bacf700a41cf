// The layers of GraphBuilder for tokens, those that copy blocks, and those with constants.
#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/model/graph.hpp"

namespace millrace {

int GraphBuilder::embedding(const std::string& name, std::int64_t vocabulary, std::int64_t width, std::int64_t padding,
                            int tokens) {
  const DType raw = graph_.values[std::size_t(tokens)].dtype;
  EmbeddingSpec spec{shape(tokens), raw, vocabulary, width, graph_.dtype, graph_.mode, padding};
  const int table = parameter(name + ".weight", spec.weight(), Parameter::Init::scaled_uniform, 1, true);
  return node(name, spec, {tokens}, spec.dst(), {table});
}

int GraphBuilder::layer_norm(const std::string& name, int src, LayerNormSpec::Kind kind, bool bias, float epsilon,
                             bool weight) {
  const LayerNormSpec spec{shape(src), kind, bias, epsilon, graph_.dtype, graph_.mode, false, weight};
  if (!weight) return node(name, spec, {src}, spec.dst());
  const Shape channels{spec.channels()};
  std::vector<int> parameters{parameter(name + ".weight", channels, Parameter::Init::one, channels[0], false)};
  if (bias) parameters.push_back(parameter(name + ".bias", channels, Parameter::Init::zero, channels[0], false));
  return node(name, spec, {src}, spec.dst(), parameters);
}

int GraphBuilder::position_embedding(const std::string& name, int src, bool class_token) {
  const PositionEmbeddingSpec spec{shape(src), class_token, graph_.dtype, graph_.mode};
  std::vector<int> parameters{parameter(name + ".weight", spec.weight(), Parameter::Init::scaled_uniform, 1, true)};
  if (class_token)
    parameters.push_back(parameter(name + ".class_token", {spec.channels()}, Parameter::Init::zero, 1, false));
  return node(name, spec, {src}, spec.dst(), parameters);
}

int GraphBuilder::documents(const std::string& name, std::int64_t separator) {
  return marks(name, {shape(Graph::x), graph_.values[Graph::x].dtype, separator});
}

int GraphBuilder::token_counts(const std::string& name, std::int64_t separator, std::int64_t first) {
  return marks(name, {shape(Graph::x), graph_.values[Graph::x].dtype, separator, DType::i32,
                      DocumentsSpec::Kind::counts, first});
}

int GraphBuilder::last_token(const std::string& name, std::int64_t separator) {
  return marks(name,
               {shape(Graph::x), graph_.values[Graph::x].dtype, separator, graph_.dtype, DocumentsSpec::Kind::last});
}

int GraphBuilder::marks(const std::string& name, const DocumentsSpec& spec) {
  const int dst = node(name, spec, {Graph::x}, spec.dst());
  graph_.values.back().dtype = spec.dtype;
  return dst;
}

// A gather of nothing but zeros reads no elements.
bool GraphBuilder::depends_on(int value, int other) const {
  std::vector<bool> depends(graph_.values.size());
  depends[std::size_t(other)] = true;
  for (const Node& node : graph_.nodes) {
    const auto* gather = std::get_if<GatherSpec>(&node.spec);
    if (gather && std::ranges::all_of(gather->index.values(), [](std::int32_t at) { return at < 0; })) continue;
    if (node.dst >= 0 && std::ranges::any_of(node.src, [&](int src) { return depends[std::size_t(src)]; }))
      depends[std::size_t(node.dst)] = true;
  }
  return depends[std::size_t(value)];
}

bool GraphBuilder::holds_documents(int value) const {
  const int from = graph_.producer(value);
  const auto* spec = from < 0 ? nullptr : std::get_if<DocumentsSpec>(&graph_.nodes[std::size_t(from)].spec);
  return spec && spec->kind == DocumentsSpec::Kind::begins;
}

int GraphBuilder::attention(const std::string& name, int src, const AttentionOptions& options) {
  Shape dst = shape(src);
  const Shape positions{dst[0], dst.rank < 2 ? 1 : dst.row_count() / dst[-1], dst[-1]};
  AttentionSpec spec{positions, options.heads, options.key_heads, options.causal, graph_.dtype, graph_.mode};
  spec.dropout = options.dropout;
  spec.seed = options.seed;
  spec.documents = options.documents >= 0;
  spec.check();
  std::vector<int> sources{src};
  if (spec.dropout > 0) spec.layer = dropouts_++;
  if (spec.dropout > 0 || spec.documents) sources.push_back(Graph::ids);
  if (spec.documents) {
    const Shape& documents = shape(options.documents);
    if (positions[1] != documents[1])
      fail(Exit::config, "model: layer '{}' has {} positions, but the documents were found in {} tokens", name,
           positions[1], documents[1]);
    sources.push_back(options.documents);
  }
  dst[-1] = spec.dst()[-1];
  return node(name, spec, sources, dst);
}

int GraphBuilder::rotary(const std::string& name, int src, std::int64_t heads, std::int64_t key_heads, float theta) {
  const RotarySpec spec{shape(src), heads, key_heads, theta, graph_.dtype, graph_.mode};
  spec.check();
  return node(name, spec, {src}, spec.dst());
}

int GraphBuilder::recurrent_node(const std::string& name, int src, const RecurrentOptions& o, std::int64_t layer,
                                 bool reverse) {
  RecurrentSpec spec{shape(src), o.units, o.kind, o.bias, reverse};
  spec.need_diff_src = graph_.values[std::size_t(src)].needs_grad;
  spec.dtype = graph_.dtype;
  spec.mode = graph_.mode;
  spec.cell_state = o.cell_state;
  const std::string end = fmt::format("l{}{}", layer, reverse ? "_reverse" : "");
  std::vector<int> parameters;
  const auto add = [&](const char* what, const Shape& extents, bool matrix) {
    parameters.push_back(
        parameter(fmt::format("{}.{}_{}", name, what, end), extents, Parameter::Init::scaled_uniform, o.units, matrix));
  };
  add("weight_ih", spec.weight_ih(), true);
  add("weight_hh", spec.weight_hh(), true);
  if (o.bias) {
    add("bias_ih", {spec.width()}, false);
    add("bias_hh", {spec.width()}, false);
  }
  return node(end == "l0" ? name : name + "." + end, spec, {src}, spec.dst(), parameters);
}

int GraphBuilder::recurrent(const std::string& name, int src, const RecurrentOptions& o, std::vector<int>* each) {
  if (shape(src).rank != 3)
    fail(
        Exit::config,
        "model: layer '{}' needs time steps x features, but its input is {}. reshape it, or put an embedding before it",
        name, shape(src).str());
  RecurrentSpec{shape(src), o.units}.check();
  const auto sequence = [&](int value) {
    if (!o.cell_state) return value;
    return slice(graph_.values[std::size_t(value)].name + ".sequence", value, 1, 0, shape(value)[1] - 1);
  };
  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    if (layer > 0 && o.dropout > 0) src = dropout(fmt::format("{}.dropout{}", name, layer), src, o.dropout, o.seed);
    int out = recurrent_node(name, src, o, layer, false);
    if (each) each->push_back(out);
    const bool read = o.sequence || layer + 1 < o.layers;
    if (read) out = sequence(out);
    if (o.bidirectional) {
      const int back = recurrent_node(name, src, o, layer, true);
      if (each) each->push_back(back);
      if (read) out = concat(fmt::format("{}.both{}", name, layer), out, sequence(back), 2);
    }
    src = out;
  }
  return src;
}

int GraphBuilder::gated(const std::string& name, int src, Activation kind) {
  const GatedSpec spec{shape(src), kind, graph_.dtype, graph_.mode};
  if (spec.src[-1] % 2 != 0)
    fail(Exit::config, "model: layer '{}' divides its channels into two halves, but its input {} has {} of them", name,
         spec.src.str(), spec.src[-1]);
  return node(name, spec, {src}, spec.dst());
}

int GraphBuilder::scale(const std::string& name, int src, double initial) {
  const ScaleSpec spec{shape(src), graph_.dtype, graph_.mode};
  const int weight = parameter(name + ".weight", {spec.src[-1]}, Parameter::Init::constant, 1, false);
  graph_.parameters.back().init_value = initial;
  return node(name, spec, {src}, spec.dst(), {weight});
}

int GraphBuilder::concat(const std::string& name, int a, int b, int axis) {
  Shape expected = shape(a);
  if (expected.rank == shape(b).rank) expected[axis] = shape(b)[axis];
  if (shape(b) != expected)
    fail(Exit::config,
         "model: layer '{}' joins {} and {}. all extents but that of axis {} must be equal. set axis=A, or make them "
         "equal in the layers before",
         name, shape(a).str(), shape(b).str(), axis - 1);
  if (a == b) b = activation(name + ".copy", b, Activation::none);  // a node has one gradient for a value
  const ConcatSpec spec{shape(a), shape(b), axis, graph_.dtype, graph_.mode};
  return node(name, spec, {a, b}, spec.dst());
}

int GraphBuilder::slice(const std::string& name, int src, int axis, std::int64_t begin, std::int64_t count) {
  const std::int64_t extent = shape(src)[axis];
  if (begin > extent || count > extent - begin)
    fail(Exit::config,
         "model: layer '{}' takes elements {} to {} of axis {}, but its input {} has {}. lower BEGIN or COUNT, or set "
         "axis=A",
         name, begin, std::uint64_t(begin) + std::uint64_t(count) - 1, axis - 1, shape(src).str(), extent);
  const SliceSpec spec{shape(src), axis, begin, count, graph_.dtype, graph_.mode};
  return node(name, spec, {src}, spec.dst());
}

int GraphBuilder::upsample(const std::string& name, int src, UpsampleSpec::Kind kind, std::int64_t factor) {
  const UpsampleSpec spec{shape(src), kind, factor, graph_.dtype, graph_.mode};
  return node(name, spec, {src}, spec.dst());
}

int GraphBuilder::gather(const std::string& name, int src, const Shape& to, std::int64_t size,
                         Table<std::int32_t> index) {
  const GatherSpec spec{shape(src), to, size, std::move(index), graph_.dtype, graph_.mode};
  spec.check();
  return node(name, spec, {src}, to);
}

int GraphBuilder::affine(const std::string& name, int src, Table<float> scale, Table<float> offset,
                         std::int64_t inner) {
  const AffineSpec spec{shape(src), std::move(scale), std::move(offset), inner, graph_.dtype, graph_.mode};
  spec.check();
  return node(name, spec, {src}, spec.dst());
}

int GraphBuilder::power(const std::string& name, int src, float exponent) {
  const PowerSpec spec{shape(src), exponent, graph_.dtype, graph_.mode};
  return node(name, spec, {src}, spec.dst());
}

int GraphBuilder::prelu(const std::string& name, int src, std::int64_t slopes, double initial) {
  const PreluSpec spec{shape(src), slopes, 0, graph_.dtype, graph_.mode};
  spec.check();
  const int weight = parameter(name + ".weight", spec.weight(), Parameter::Init::constant, 1, false);
  graph_.parameters.back().init_value = initial;
  return node(name, spec, {src}, spec.dst(), {weight});
}

int GraphBuilder::leaky_relu(const std::string& name, int src, float slope) {
  const PreluSpec spec{shape(src), 0, slope, graph_.dtype, graph_.mode};
  spec.check();
  return node(name, spec, {src}, spec.dst());
}

int GraphBuilder::indexed_bias(const std::string& name, int src, std::int64_t entries, Table<std::int32_t> index) {
  const IndexedBiasSpec spec{shape(src), entries, std::move(index), graph_.dtype, graph_.mode};
  spec.check();
  const int weight = parameter(name + ".weight", spec.weight(), Parameter::Init::zero, 1, false);
  return node(name, spec, {src}, spec.dst(), {weight});
}

int GraphBuilder::softmax(const std::string& name, int src) {
  const SoftmaxSpec spec{shape(src), graph_.dtype, graph_.mode};
  return node(name, spec, {src}, spec.dst());
}

int GraphBuilder::matmul(const std::string& name, int a, int b, const Shape& to, const MatmulOptions& o) {
  const BatchedMatmulSpec spec{o.batch, o.m, o.n, o.k, o.transpose_a, o.transpose_b, to, graph_.dtype, graph_.mode};
  if (shape(a).count() != o.batch * o.m * o.k || shape(b).count() != o.batch * o.k * o.n ||
      to.count() != o.batch * o.m * o.n)
    fail(Exit::config, "model: layer '{}' multiplies {} by {}, which are not {} matrices of {}x{} and {}x{}", name,
         shape(a).str(), shape(b).str(), o.batch, o.m, o.k, o.k, o.n);
  if (a == b) b = activation(name + ".copy", b, Activation::none);  // a node has one gradient for a value
  return node(name, spec, {a, b}, to);
}

}  // namespace millrace
