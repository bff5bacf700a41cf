#include "millrace/weights/pytorch_tensors.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

using Tensors = std::vector<PyTorchTensor>;

void make_contiguous(PyTorchTensor& t) {
  std::int64_t stride = 1;
  for (int axis = t.extents.rank - 1; axis >= 0; --axis) {
    t.strides[std::size_t(axis)] = stride;
    stride *= t.extents[axis];
  }
}

// The last axis becomes the axis `to`; those in between move on by one.
void move_last_axis(PyTorchTensor& t, int to) {
  const int last = t.extents.rank - 1;
  std::rotate(t.extents.dims.begin() + to, t.extents.dims.begin() + last, t.extents.dims.begin() + last + 1);
  std::rotate(t.strides.begin() + to, t.strides.begin() + last, t.strides.begin() + last + 1);
}

PyTorchTensor whole(const std::string& name, int index, const Shape& shape) {
  PyTorchTensor out{.name = name, .index = index, .shape = shape.extents(), .extents = shape};
  make_contiguous(out);
  return out;
}

// Whether the positions of a value are those of an image, a volume or a signal, whose channels come first in PyTorch.
// Tokens, and signals that go into a linear layer as they are, have their channels last there too.
bool has_channels_first(const Graph& graph, int value) {
  const int rank = graph.values[std::size_t(value)].shape.rank;
  if (rank > 3) return true;
  for (int from = graph.producer(value); rank == 3 && from >= 0; from = graph.producer(value)) {
    const Node& node = graph.nodes[std::size_t(from)];
    if (std::holds_alternative<ConvSpec>(node.spec) || std::holds_alternative<TransposedConvSpec>(node.spec))
      return true;
    if (std::holds_alternative<PositionEmbeddingSpec>(node.spec) || std::holds_alternative<EmbeddingSpec>(node.spec) ||
        std::holds_alternative<RecurrentSpec>(node.spec))
      return false;
    if (node.src.empty()) return false;
    value = node.src[0];
  }
  return false;
}

// Where a linear layer reads all values of an image, its inputs are (spatial..., channels).
void order_inputs(const Graph& graph, const Node& node, PyTorchTensor& t) {
  const Shape& src = graph.values[std::size_t(node.src[0])].shape;
  const bool flattens = std::get<LinearSpec>(node.spec).src.row_count() == src.row_count() && src.rank > 2;
  if (!flattens || src.rank > Shape::max_rank || !has_channels_first(graph, node.src[0])) return;
  const std::int64_t outputs = t.extents[0];
  t.extents = src;
  t.extents[0] = outputs;
  make_contiguous(t);
  move_last_axis(t, 1);
}

// The layer that has the parameter as weight number `number`.
const Node* layer_of(const Graph& graph, int parameter, std::size_t& number) {
  for (const Node& node : graph.nodes)
    for (number = 0; number < node.weight.size(); ++number)
      if (node.weight[number] == parameter) return &node;
  return nullptr;
}

PyTorchTensor tensor_of(const Graph& graph, int index) {
  const Parameter& p = graph.parameters[std::size_t(index)];
  PyTorchTensor out = whole(p.name, index, p.shape);
  if (p.archive.tensor >= 0) {
    out.extents = p.archive.extents;
    out.strides = p.archive.strides;
    out.shape = p.archive.sizes;
    const std::int64_t all = std::accumulate(out.shape.begin(), out.shape.end(), std::int64_t(1), std::multiplies<>());
    out.first_rows = out.count() < all;
    if (out.first_rows) out.shape[0] = out.shape[0] * out.count() / all;
    return out;
  }
  std::size_t number = 0;
  const Node* layer = layer_of(graph, index, number);
  if (!layer || number > 0) return out;
  if (std::holds_alternative<ConvSpec>(layer->spec) || std::holds_alternative<TransposedConvSpec>(layer->spec)) {
    move_last_axis(out, 1);
    out.shape = out.extents.extents();
  } else if (std::holds_alternative<LinearSpec>(layer->spec)) {
    order_inputs(graph, *layer, out);
  } else if (const auto* positions = std::get_if<PositionEmbeddingSpec>(&layer->spec)) {
    out.first_rows = !positions->class_token;
  }
  return out;
}

// The rows [begin, begin + count) of a matrix, under a name of their own.
PyTorchTensor rows_of(PyTorchTensor matrix, const std::string& name, std::int64_t begin, std::int64_t count) {
  matrix.name = name;
  matrix.begin = begin * matrix.strides[0];
  matrix.extents[0] = matrix.shape[0] = count;
  return matrix;
}

void transpose(PyTorchTensor& t) {
  move_last_axis(t, 0);
  std::swap(t.shape[0], t.shape[1]);
}

bool replace_end(std::string& name, const std::string& end, const std::string& by) {
  if (!name.ends_with(end)) return false;
  name.replace(name.size() - end.size(), end.size(), by);
  return true;
}

// As GPT2LMHeadModel. Its Conv1D holds its weights as (inputs, outputs).
void add_gpt2(PyTorchTensor t, Tensors& out) {
  for (const char* conv : {"c_attn.weight", "c_proj.weight", "c_fc.weight"})
    if (t.name.ends_with(conv)) transpose(t);
  const bool tied = t.name == "wte.weight";
  t.name = "transformer." + t.name;
  out.push_back(t);
  if (!tied) return;
  t.name = "lm_head.weight";
  t.alias = true;
  out.push_back(std::move(t));
}

const AttentionSpec& attention_of(const Graph& graph, const std::string& layer) {
  for (const Node& node : graph.nodes)
    if (const auto* spec = std::get_if<AttentionSpec>(&node.spec); spec && node.name == layer) return *spec;
  fail(Exit::internal, "no attention is called {}", layer);
}

// As LlamaForCausalLM, which has queries, keys and values, and both halves of a gated unit, apart.
void add_llama(const Graph& graph, PyTorchTensor t, Tensors& out) {
  std::string layer = t.name;
  if (!t.name.starts_with("lm_head.")) t.name = "model." + t.name;
  std::string stem = t.name;
  if (replace_end(stem, "qkv_proj.weight", "")) {
    replace_end(layer, ".qkv_proj.weight", "");
    const AttentionSpec& attention = attention_of(graph, layer);
    const std::int64_t queries = attention.heads * attention.head_size();
    const std::int64_t keys = attention.key_heads * attention.head_size();
    out.push_back(rows_of(t, stem + "q_proj.weight", 0, queries));
    out.push_back(rows_of(t, stem + "k_proj.weight", queries, keys));
    out.push_back(rows_of(t, stem + "v_proj.weight", queries + keys, keys));
  } else if (replace_end(stem, "gate_up_proj.weight", "")) {
    const std::int64_t half = t.extents[0] / 2;
    out.push_back(rows_of(t, stem + "gate_proj.weight", 0, half));
    out.push_back(rows_of(t, stem + "up_proj.weight", half, half));
  } else {
    out.push_back(std::move(t));
  }
}

// As timm's VisionTransformer and ConvNeXt.
void add_timm(PyTorchTensor t, Tensors& out) {
  if (replace_end(t.name, "pos_embed.weight", "pos_embed")) t.shape.insert(t.shape.begin(), 1);
  if (replace_end(t.name, "pos_embed.class_token", "cls_token")) t.shape = {1, 1, t.shape[0]};
  replace_end(t.name, ".gamma.weight", ".gamma");
  out.push_back(std::move(t));
}

void add_statistics(const Graph& graph, Tensors& out) {
  using Kind = PyTorchTensor::Kind;
  for (std::size_t s = 0; s < graph.stats.size(); ++s) {
    const auto add = [&](const char* what, Kind kind, const Shape& shape) {
      out.push_back(whole(graph.stats[s].name + what, int(s), shape));
      out.back().kind = kind;
    };
    add(".running_mean", Kind::running_mean, {graph.stats[s].channels});
    add(".running_var", Kind::running_variance, {graph.stats[s].channels});
    add(".num_batches_tracked", Kind::batch_count, Shape{});
  }
}

// Calls f(offset in the parameter, number in the tensor) for each element in PyTorch's order.
template <class F>
void for_each_element(const PyTorchTensor& t, F f) {
  const int last = t.extents.rank - 1;
  const std::int64_t inner = last < 0 ? 1 : t.extents[last], stride = last < 0 ? 0 : t.strides[std::size_t(last)];
  std::array<std::int64_t, Shape::max_rank> at{};
  for (std::int64_t number = 0, count = t.count(); number < count;) {
    std::int64_t offset = t.begin;
    for (int axis = 0; axis < last; ++axis) offset += at[std::size_t(axis)] * t.strides[std::size_t(axis)];
    for (std::int64_t i = 0; i < inner; ++i) f(offset + i * stride, number++);
    for (int axis = last - 1; axis >= 0 && ++at[std::size_t(axis)] == t.extents[axis]; --axis)
      at[std::size_t(axis)] = 0;
  }
}

}  // namespace

std::vector<PyTorchTensor> pytorch_tensors(const Graph& graph, const std::string& network) {
  Tensors out;
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    PyTorchTensor t = tensor_of(graph, int(p));
    if (network == "gpt2")
      add_gpt2(std::move(t), out);
    else if (network == "llama")
      add_llama(graph, std::move(t), out);
    else if (network == "vit" || network == "convnext")
      add_timm(std::move(t), out);
    else
      out.push_back(std::move(t));
  }
  add_statistics(graph, out);
  std::ranges::sort(out, {}, &PyTorchTensor::name);
  return out;
}

void gather(const PyTorchTensor& t, std::span<const float> parameter, std::span<float> tensor) {
  for_each_element(t,
                   [&](std::int64_t from, std::int64_t to) { tensor[std::size_t(to)] = parameter[std::size_t(from)]; });
}

void scatter(const PyTorchTensor& t, std::span<const float> tensor, std::span<float> parameter) {
  for_each_element(t,
                   [&](std::int64_t to, std::int64_t from) { parameter[std::size_t(to)] = tensor[std::size_t(from)]; });
}

std::string plain_name(const std::string& name, const std::string& network) {
  std::string out = name;
  const auto drop = [&](const char* prefix) {
    if (!out.starts_with(prefix)) return false;
    out.erase(0, std::string(prefix).size());
    return true;
  };
  while (drop("module.") || drop("_orig_mod.")) {
  }
  if (network == "gpt2") drop("transformer.");
  if (network == "llama") drop("model.");
  return out;
}

bool is_no_weight(const std::string& name) {
  for (const char* end : {".num_batches_tracked", ".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"})
    if (name.ends_with(end)) return true;
  return false;
}

}  // namespace millrace
