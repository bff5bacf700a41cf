// Convolutions, linear layers, attention and embeddings: operations with the large weights.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"
#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

// One number for each axis; PyTorch writes one for all of them too.
std::array<std::int64_t, 3> by_axis(const Call& call, const char* argument, int rank, std::int64_t otherwise) {
  const Sizes given = call.integers(argument, {otherwise});
  std::array<std::int64_t, 3> out{otherwise, otherwise, otherwise};
  if (given.size() != 1 && given.size() != std::size_t(rank))
    call.refuse(fmt::format("has a '{}' of {} numbers", argument, given.size()));
  for (int axis = 0; axis < rank; ++axis) out[std::size_t(axis)] = given[given.size() == 1 ? 0 : std::size_t(axis)];
  return out;
}

Window window_of(const Call& call, const Axes& weight, int rank) {
  Window w;
  w.rank = rank;
  const std::string padding = call.text("padding", "");
  if (padding.empty()) w.pad = by_axis(call, "padding", rank, 0);
  w.stride = by_axis(call, "stride", rank, 1);
  w.dilation = by_axis(call, "dilation", rank, 1);
  for (std::size_t axis = 0; axis < std::size_t(rank); ++axis) {
    w.kernel[axis] = weight.size(int(axis) + 2);
    const std::int64_t both = padding == "same" ? w.dilation[axis] * (w.kernel[axis] - 1) : 0;
    if (both % 2 != 0) call.refuse("pads one side more than the other. use an odd kernel");
    if (padding == "same") w.pad[axis] = both / 2;
    if (w.stride[axis] < 1 || w.dilation[axis] < 1 || w.pad[axis] < 0) call.refuse("has a negative stride or padding");
  }
  return w;
}

// (outputs, inputs, kernel...), stored with the inputs last.
Context::Source channels_last_weight(const Value& weight) {
  Atoms order = weight.axes.logical[0];
  for (int axis = 2; axis <= weight.axes.rank(); ++axis) {
    const Atoms& atoms = weight.axes.logical[std::size_t(axis < weight.axes.rank() ? axis : 1)];
    order.insert(order.end(), atoms.begin(), atoms.end());
  }
  return {weight, order};
}

Values image_result(Context& c, int graph) {
  const Shape& shape = c.builder.shape(graph);
  Sizes spatial;
  for (int axis = 1; axis + 1 < shape.rank; ++axis) spatial.push_back(shape[axis]);
  return {graph_value(graph, Axes::image(shape[-1], spatial))};
}

Values convolution(Context& c, const Call& call, int rank, bool transposed) {
  const Value x = call.computed("input"), weight = call.parameter("weight");
  if (x.axes.rank() != rank + 2 || weight.axes.rank() != rank + 2)
    call.refuse(fmt::format("needs an input (N, channels, {} extents), but it is {}", rank, x.axes.text()));
  const int src = c.image(call, x);
  const Window window = window_of(call, weight.axes, rank);
  const std::int64_t groups = call.integer("groups", 1);
  if (groups < 1 || x.axes.size(1) != weight.axes.size(transposed ? 0 : 1) * (transposed ? 1 : groups))
    call.refuse(fmt::format("has {} input channels, but its weight is {}. does the data have the shape of the network?",
                            x.axes.size(1), weight.axes.text()));
  const bool bias = call.has("bias");
  const std::string name = c.layer_name(call, weight.tensor);
  int out = -1;
  if (transposed) {
    const auto pad = by_axis(call, "output_padding", rank, 0);
    for (std::size_t axis = 0; axis < std::size_t(rank); ++axis)
      if (pad[axis] != pad[0] || pad[axis] >= window.stride[axis])
        call.refuse("has an output_padding that differs by axis or is not below the stride");
    out = c.builder.transposed_conv(name, src, weight.axes.size(1) * groups, window, pad[0], bias, groups);
  } else {
    out = c.builder.conv(name, src, weight.axes.size(0), window, bias, groups);
  }
  std::vector<Context::Source> sources{channels_last_weight(weight)};
  if (bias) sources.push_back(Context::as_stored(call.parameter("bias")));
  c.attach(call, sources);
  return image_result(c, out);
}

template <int Rank, bool Transposed>
Values conv(Context& c, const Call& call) {
  return convolution(c, call, Rank, Transposed);
}

// The weight's axis of inputs gets the atoms of the input, in its stored order. So a layer behind flatten() reads
// (channels, height, width) as they are stored, with the channels last.
Atoms order_of_inputs(const Call& call, Axes& x, Axes& weight, int inputs) {
  Axes source = x;
  source.logical = {x.logical.back()};
  Axes target = weight;
  target.logical = {weight.logical[std::size_t(inputs)]};
  if (!align(source, target, false))
    call.refuse(fmt::format("has {} inputs, but its weight is {}. does the data have the shape of the network?",
                            x.size(x.rank() - 1), weight.text()));
  const auto keep = [](Axes& all, std::size_t axis, const Axes& aligned) {
    all.extents = aligned.extents;
    all.stored = aligned.stored;
    all.logical[axis] = aligned.logical[0];
  };
  keep(x, x.logical.size() - 1, source);
  keep(weight, std::size_t(inputs), target);
  Atoms order;
  for (const int atom : x.stored) {
    const auto at = std::ranges::find(source.logical[0], atom);
    if (at != source.logical[0].end()) order.push_back(target.logical[0][std::size_t(at - source.logical[0].begin())]);
  }
  return order;
}

// With the atoms of the last axis innermost, in any order.
Value inputs_last(Context& c, const Call& call, const Value& x) {
  if (x.axes.rank() < 2) call.refuse(fmt::format("reads the last axis of {}, which are the rows", x.axes.text()));
  const Atoms own = x.axes.logical.back(), others = without(x.axes.stored, own);
  const bool last = std::equal(others.begin(), others.end(), x.axes.stored.begin());
  return last ? x : c.ordered(call, x, concatenated({others, own}));
}

// weight: with the axis `inputs`; the other one has the outputs.
Values dense(Context& c, const Call& call, Value x, Value weight, int inputs, const char* bias) {
  if (weight.axes.rank() != 2) call.refuse("has a weight that is no matrix");
  x = inputs_last(c, call, x);
  const Atoms order = order_of_inputs(call, x.axes, weight.axes, inputs);
  const Atoms own = x.axes.logical.back();
  const std::int64_t features = x.axes.count(own), outputs = weight.axes.size(1 - inputs);
  const Shape now = c.builder.shape(x.graph);
  const std::int64_t positions = now.row_count() / features;
  int src = x.graph;
  if (positions > 1 && (now.rank < 3 || now[-1] != features)) src = c.shaped(call, src, {c.rows, positions, features});
  const int out = c.builder.linear(c.layer_name(call, weight.tensor), src, outputs, call.has(bias), positions == 1);
  std::vector<Context::Source> sources{{weight, concatenated({weight.axes.logical[std::size_t(1 - inputs)], order})}};
  if (call.has(bias)) sources.push_back(Context::as_stored(call.parameter(bias)));
  c.attach(call, sources);
  std::erase_if(x.axes.stored, [&](int atom) { return std::ranges::find(own, atom) != own.end(); });
  x.axes.logical.back().clear();
  x.axes.replace_axis(x.axes.rank() - 1, outputs);
  return {graph_value(out, x.axes)};
}

}  // namespace

Values times_parameter(Context& c, const Call& call, const Value& x, const Value& weight) {
  if (weight.picked || !weight.axes.selected.empty()) call.refuse("multiplies by a part of a parameter");
  return dense(c, call, c.plain(call, x), weight, 0, "no bias");
}

namespace {

Values linear(Context& c, const Call& call) {
  return dense(c, call, call.computed("input"), call.parameter("weight"), 1, "bias");
}

// self + mat1 @ mat2, where mat2 has the inputs first or is a transposed weight.
Values addmm(Context& c, const Call& call) {
  if (call.real("alpha", 1) != 1 || call.real("beta", 1) != 1) call.refuse("has factors, which is not supported");
  return dense(c, call, call.computed("mat1"), call.parameter("mat2"), 0, "self");
}

// Of constant places: the parameter itself if these are its first rows.
Value rows_of_table(const Call& call, const Value& weight, const Constant& index) {
  const std::vector<double> rows = index.values();
  const Sizes sizes = weight.axes.sizes();
  bool first = true;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (index.type != Constant::Type::integer || !(rows[i] >= 0 && rows[i] < double(sizes[0])))
      call.refuse(fmt::format("looks up row {} of {}", rows[i], sizes[0]));
    first = first && rows[i] == double(i);
  }
  Sizes result = index.sizes;
  result.push_back(sizes[1]);
  Value out = weight;
  out.axes = Axes::contiguous(result);
  if (first && !weight.picked) return out;
  checked_count(result);
  const std::vector<double> places = parameter_places(weight).values();
  std::vector<double> picked;
  for (const double row : rows) {
    const auto begin = places.begin() + std::ptrdiff_t(row) * std::ptrdiff_t(sizes[1]);
    picked.insert(picked.end(), begin, begin + std::ptrdiff_t(sizes[1]));
  }
  out.picked = std::make_shared<const Constant>(Constant::of(result, std::move(picked), Constant::Type::integer));
  return out;
}

Values embedding(Context& c, const Call& call) {
  const Value weight = call.parameter("weight"), indices = call.value("indices");
  if (weight.axes.rank() != 2) call.refuse(fmt::format("has a weight {}, which is no matrix", weight.axes.text()));
  const std::int64_t padding = call.integer("padding_idx", -1);
  if (padding < -1 || padding >= weight.axes.size(0)) call.refuse("has a padding_idx beyond its rows");
  if (call.flag("scale_grad_by_freq", false)) call.refuse("has scale_grad_by_freq. remove it");
  if (const auto constant = c.as_constant(indices)) {
    const std::vector<double> rows = constant->values();
    if (padding >= 0 && std::ranges::find(rows, double(padding)) != rows.end())
      call.refuse("looks up its padding_idx for all samples, and that row would be trained. remove padding_idx");
    return {rows_of_table(call, weight, *constant)};
  }
  const bool counts = indices.kind == Value::Kind::numbers && indices.numbers.kind == TokenNumbers::Kind::counts;
  if ((indices.kind != Value::Kind::tokens && !counts) || indices.axes.rank() != 2 ||
      !indices.axes.begins_with_rows() || !indices.axes.selected.empty())
    call.refuse("looks up what are no samples. only tokens can be looked up");
  const std::int64_t vocabulary = weight.axes.size(0), width = weight.axes.size(1);
  int tokens = Graph::x;
  if (counts) {
    const TokenNumbers& of = indices.numbers;
    if (of.first < 0 || of.first + indices.axes.size(1) >= vocabulary)
      call.refuse(
          fmt::format("looks up row {} of {}. use shorter samples", of.first + indices.axes.size(1), vocabulary));
    tokens = c.builder.token_counts(c.layer_name(call) + ".positions", of.separator, of.first);
  }
  const int out = c.builder.embedding(c.layer_name(call, weight.tensor), vocabulary, width, padding, tokens);
  c.attach(call, {Context::as_stored(weight)});
  const Shape& shape = c.builder.shape(out);
  return {graph_value(out, Axes::contiguous({rows_symbol, shape[1], width}))};
}

}  // namespace

void add_layers(Operations& all) {
  all["conv1d"] = conv<1, false>;
  all["conv2d"] = conv<2, false>;
  all["conv3d"] = conv<3, false>;
  all["conv_transpose1d"] = conv<1, true>;
  all["conv_transpose2d"] = conv<2, true>;
  all["conv_transpose3d"] = conv<3, true>;
  all["linear"] = linear;
  all["addmm"] = addmm;
  all["embedding"] = embedding;
}

}  // namespace millrace::pt2
