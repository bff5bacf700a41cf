#include "millrace/model/graph.hpp"

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

// Bounds that keep all later arithmetic within 64 bits, and the passes over the graph, some of them quadratic, within
// seconds.
constexpr std::int64_t max_elements = std::int64_t(1) << 40;
constexpr std::size_t max_nodes = 5000;

void require_size(const std::string& name, const Shape& shape) {
  std::int64_t count = 1;
  for (int axis = 0; axis < shape.rank; ++axis)
    if (__builtin_mul_overflow(count, shape[axis], &count) || count > max_elements)
      fail(Exit::config,
           "model: layer '{}' would have {} values or weights (at most 2^40 are possible). lower its size or "
           "train.micro_batch",
           name, shape.str());
}

}  // namespace

std::int64_t Graph::parameter_count() const {
  std::int64_t sum = 0;
  for (const auto& p : parameters) sum += p.shape.count();
  return sum;
}

double Graph::forward_flops() const {
  double sum = 0;
  for (const auto& n : nodes) sum += flops_of(n.spec);
  return sum;
}

int Graph::producer(int value) const {
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].dst == value) return int(i);
  return -1;
}

int Graph::single_consumer(int value) const {
  int found = -1, reads = int(std::count(outputs.begin(), outputs.end(), value));
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (const auto here = std::count(nodes[i].src.begin(), nodes[i].src.end(), value)) {
      found = int(i);
      reads += int(here);
    }
  return reads == 1 ? found : -1;
}

GraphBuilder::GraphBuilder(const Batch& batch, DType compute, Mode mode) {
  graph_.mode = mode;
  graph_.dtype = compute;
  graph_.rows = batch.x[0];
  graph_.values.push_back({"x", batch.x, batch.x_dtype, false});
  graph_.values.push_back({"y", batch.y, batch.labels ? DType::i32 : DType::f32, false});
  graph_.values.push_back({"ids", {batch.x[0]}, DType::i64, false});
}

int GraphBuilder::node(const std::string& name, Spec spec, std::vector<int> src, const Shape& dst,
                       std::vector<int> weight, int stats) {
  for (int axis = 0; axis < dst.rank; ++axis)
    if (dst[axis] < 1)
      fail(Exit::config,
           "model: layer '{}' would have an empty result {} for its input {} (the image is too small for its stride or "
           "window). lower them",
           name, dst.str(), shape(src[0]).str());
  require_size(name, dst);
  if (graph_.nodes.size() >= max_nodes)
    fail(Exit::config, "model: the network has too many layers (at most {} are possible). use fewer", max_nodes);
  bool grad = !weight.empty();
  for (int s : src) grad = grad || graph_.values[std::size_t(s)].needs_grad;
  graph_.values.push_back({name, dst, graph_.dtype, grad});
  const int value = int(graph_.values.size()) - 1;
  graph_.nodes.push_back({name, std::move(spec), std::move(src), value, std::move(weight), stats});
  return value;
}

int GraphBuilder::parameter(const std::string& name, const Shape& shape, Parameter::Init init, std::int64_t fan_in,
                            bool matrix) {
  require_size(name, shape);
  graph_.parameters.push_back({name, shape, init, fan_in, matrix, {}, 1});
  return int(graph_.parameters.size()) - 1;
}

static InputSpec of_batch(InputSpec spec, const Graph& graph, int raw = Graph::x) {
  spec.src = graph.values[std::size_t(raw)].shape;
  spec.raw = graph.values[std::size_t(raw)].dtype;
  spec.dtype = graph.dtype;
  spec.mode = graph.mode;
  return spec;
}

int GraphBuilder::input(InputSpec spec) {
  spec = of_batch(std::move(spec), graph_);
  const Shape dst = spec.dst();
  return node("input", spec, {Graph::x, Graph::ids}, dst);
}

int GraphBuilder::input(InputSpec spec, const std::string& name, std::int64_t begin, const Shape& raw_shape,
                        DType type) {
  const std::int64_t bytes = raw_shape.row_count() * std::int64_t(size_of(type));
  const DType moved = bytes % 4 == 0 ? DType::f32 : bytes % 2 == 0 ? DType::f16 : DType::u8;
  const auto unit = std::int64_t(size_of(moved));
  const Shape& samples = shape(Graph::x);
  const SliceSpec slice{{samples[0], samples[1] / unit}, 1, begin / unit, bytes / unit, moved, graph_.mode};
  const int raw = node(name + ".raw", slice, {Graph::x}, raw_shape);
  graph_.values[std::size_t(raw)].dtype = type;
  spec = of_batch(std::move(spec), graph_, raw);
  const Shape dst = spec.dst();
  return node(name, spec, {raw, Graph::ids}, dst);
}

int GraphBuilder::move_labels(InputSpec input) {
  const MoveLabelsSpec spec{shape(Graph::y), of_batch(std::move(input), graph_)};
  if (!moves_pixels(spec.input)) return labels_;
  labels_ = node("labels", spec, {Graph::y, Graph::ids}, spec.dst());
  graph_.values.back().dtype = spec.dtype;
  return labels_;
}

int GraphBuilder::conv(const std::string& name, int src, std::int64_t out_channels, const Window& window, bool bias,
                       std::int64_t groups) {
  ConvSpec spec;
  spec.src = shape(src);
  spec.out_channels = out_channels;
  spec.groups = groups;
  spec.window = window;
  spec.bias = bias;
  spec.need_diff_src = graph_.values[std::size_t(src)].needs_grad;
  spec.dtype = graph_.dtype;
  spec.mode = graph_.mode;
  if (spec.src.spatial_rank() != window.rank)
    fail(Exit::config, "model: layer '{}' slides over {} dimensions, but its input {} has {}", name, window.rank,
         spec.src.str(), spec.src.spatial_rank());
  if (spec.src[-1] % groups != 0 || out_channels % groups != 0)
    fail(Exit::config,
         "model: layer '{}' has {} groups, which must divide both its {} input channels and its {} output channels",
         name, groups, spec.src[-1], out_channels);
  const Shape weight = spec.weight();
  require_size(name, weight);
  const std::int64_t fan_in = weight.row_count();
  std::vector<int> parameters{parameter(name + ".weight", weight, Parameter::Init::scaled_uniform, fan_in, true)};
  if (bias)
    parameters.push_back(parameter(name + ".bias", {out_channels}, Parameter::Init::scaled_uniform, fan_in, false));
  return node(name, spec, {src}, spec.dst(), parameters);
}

int GraphBuilder::batch_norm(const std::string& name, int src, float epsilon) {
  BatchNormSpec spec;
  spec.epsilon = epsilon;
  spec.src = shape(src);
  spec.dtype = graph_.dtype;
  spec.mode = graph_.mode;
  const std::int64_t channels = spec.src[-1];
  std::vector<int> parameters{parameter(name + ".weight", {channels}, Parameter::Init::one, channels, false),
                              parameter(name + ".bias", {channels}, Parameter::Init::zero, channels, false)};
  graph_.stats.push_back({name, channels, {}});
  return node(name, spec, {src}, spec.dst(), parameters, int(graph_.stats.size()) - 1);
}

int GraphBuilder::linear(const std::string& name, int src, std::int64_t out_features, bool bias, bool flatten) {
  LinearSpec spec;
  spec.src = shape(src);
  Shape dst = spec.src;
  if (!flatten) spec.src = {spec.src.count() / spec.src[-1], spec.src[-1]};
  spec.out_features = out_features;
  spec.bias = bias;
  spec.need_diff_src = graph_.values[std::size_t(src)].needs_grad;
  spec.dtype = graph_.dtype;
  spec.mode = graph_.mode;
  const std::int64_t fan_in = spec.src.row_count();
  std::vector<int> parameters{
      parameter(name + ".weight", spec.weight(), Parameter::Init::scaled_uniform, fan_in, true)};
  if (bias)
    parameters.push_back(parameter(name + ".bias", {out_features}, Parameter::Init::scaled_uniform, fan_in, false));
  dst[-1] = out_features;
  return node(name, spec, {src}, flatten ? spec.dst() : dst, parameters);
}

int GraphBuilder::activation(const std::string& name, int src, Activation kind) {
  ActivationSpec spec{shape(src), kind, graph_.dtype, graph_.mode};
  return node(name, spec, {src}, spec.dst());
}

int GraphBuilder::pool(const std::string& name, int src, PoolSpec::Kind kind, const Window& window, bool ceil_mode) {
  PoolSpec spec{shape(src), kind, window, graph_.dtype, graph_.mode, ceil_mode};
  return node(name, spec, {src}, spec.dst());
}

int GraphBuilder::add(const std::string& name, int a, int b) {
  if (shape(a) != shape(b))
    fail(Exit::config, "model: layer '{}' adds {} and {}. shapes must be equal. change the layers before it", name,
         shape(a).str(), shape(b).str());
  AddSpec spec{shape(a), graph_.dtype, graph_.mode};
  return node(name, spec, {a, b}, spec.dst());
}

int GraphBuilder::dropout(const std::string& name, int src, float probability, std::uint64_t seed, bool whole_rows,
                          bool whole_channels) {
  DropoutSpec spec{shape(src), probability, seed, dropouts_++, whole_rows, whole_channels, graph_.dtype, graph_.mode};
  return node(name, spec, {src, Graph::ids}, spec.dst());
}

bool GraphBuilder::set_normal_init(const std::string& name, double deviation) {
  bool found = false;
  for (Parameter& p : graph_.parameters)
    if (p.name == name + ".weight") {
      p.init = Parameter::Init::normal;
      p.init_value = deviation;
      found = true;
    } else if (p.name == name + ".bias") {
      p.init = Parameter::Init::zero;
    }
  return found;
}

// Its gradient is that of the first position, so the gradient of the positions must have no other part.
static bool has_class_token(const Graph& graph, int parameter) {
  return std::ranges::any_of(graph.nodes, [&](const Node& node) {
    const auto* positions = std::get_if<PositionEmbeddingSpec>(&node.spec);
    return positions && positions->class_token && node.weight[0] == parameter;
  });
}

// Layers use `shared`, which comes before `own`, in its place.
static void replace_parameter(Graph& graph, int own, int shared) {
  graph.parameters.erase(graph.parameters.begin() + own);
  for (Node& node : graph.nodes)
    for (int& w : node.weight) w = w == own ? shared : w - int(w > own);
}

bool GraphBuilder::tie_weights(const std::string& name, const std::string& other) {
  const auto find = [&](const std::string& layer) {
    return int(std::ranges::find(graph_.parameters, layer + ".weight", &Parameter::name) - graph_.parameters.begin());
  };
  const int own = find(name), shared = find(other);
  const int count = int(graph_.parameters.size());
  if (own == count || shared == count || own == shared || has_class_token(graph_, shared) ||
      graph_.parameters[std::size_t(own)].shape != graph_.parameters[std::size_t(shared)].shape)
    return false;
  replace_parameter(graph_, own, shared);
  return true;
}

bool GraphBuilder::share_parameter(int own, int shared, const ArchivePlace& place_of_own) {
  const Parameter& other = graph_.parameters[std::size_t(shared)];
  if (graph_.parameters[std::size_t(own)].shape != other.shape || place_of_own != other.archive ||
      has_class_token(graph_, shared))
    return false;
  replace_parameter(graph_, own, shared);
  return true;
}

void GraphBuilder::place_parameter(int number, const std::string& name, const ArchivePlace& place) {
  graph_.parameters[std::size_t(number)].name = name;
  graph_.parameters[std::size_t(number)].archive = place;
}

void GraphBuilder::place_statistics(int mean, int variance, float momentum) {
  graph_.stats.back().archive_mean = mean;
  graph_.stats.back().archive_variance = variance;
  graph_.stats.back().momentum = momentum;
}

void GraphBuilder::set_older_name(const std::string& name, const std::string& older) {
  for (Parameter& p : graph_.parameters)
    if (p.name.starts_with(name + ".")) p.older_name = older + p.name.substr(name.size());
  for (RunningStats& s : graph_.stats)
    if (s.name == name) s.older_name = older;
}

}  // namespace millrace
