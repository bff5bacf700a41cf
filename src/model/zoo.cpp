#include "millrace/model/zoo.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"

namespace millrace {

static void require_outputs(const Shape& made, const Shape& y, const ModelSpec& spec) {
  Shape needed{y[0], spec.outputs};
  if (!spec.pointwise_loss) {  // the classes of each label
    needed = y;
    MR_CHECK(needed.rank < Shape::max_rank);
    needed.dims[std::size_t(needed.rank++)] = spec.outputs;
  }
  if (made == needed) return;
  const bool maps = y.rank > 1 && !spec.pointwise_loss && !spec.tokens;  // a label at each position of an image
  fail(Exit::config,
       "model: the result of the last layer has the shape {}, but the data needs {} ({}). end with `{} {}{}`{}",
       made.str(), needed.str(),
       spec.pointwise_loss ? "rows x features of a target"
       : y.rank > 1        ? "rows x positions x classes"
                           : "rows x classes",
       maps ? "conv" : "linear", spec.outputs,
       maps              ? " 1 bias=on"
       : needed.rank > 2 ? " axis=last"
                         : "",
       spec.pointwise_loss && made.rank > 2 ? ". maps of labels are stored as integers, not as floating point" : "");
}

// Backward would begin at such a result with a gradient that nobody has computed.
static void require_readers(const Graph& graph, const ModelSpec& spec) {
  for (const Node& node : graph.nodes)
    if (node.dst >= 0 && std::ranges::none_of(graph.nodes, [&](const Node& reader) {
          return std::ranges::find(reader.src, node.dst) != reader.src.end();
        })) {
      if (spec.exported) pt2::refuse_unread(*spec.exported, graph, node);
      fail(Exit::config, "model.layers: no layer reads the result of '{}'. remove it, or read it with from={}",
           node.name, node.name);
    }
}

static void add_loss(GraphBuilder& builder, int out, const ModelSpec& spec) {
  if (spec.pointwise_loss)
    builder.loss({.kind = *spec.pointwise_loss, .src = {}, .beta = spec.beta}, out);
  else
    builder.loss(
        {.src = {}, .label_smoothing = spec.label_smoothing, .class_weights = spec.class_weights, .dice = spec.dice},
        out);
}

Graph build_model(const ModelSpec& spec, const ModelBatch& batch, DType compute, Mode mode) {
  Shape x = batch.sample, y = batch.target;
  for (Shape* shape : {&x, &y}) {  // inserts the rows as the first dimension
    MR_CHECK(shape->rank < Shape::max_rank);
    for (int axis = shape->rank; axis > 0; --axis) shape->dims[std::size_t(axis)] = shape->dims[std::size_t(axis) - 1];
    shape->dims[0] = batch.rows;
    ++shape->rank;
  }
  GraphBuilder builder({x, batch.x_dtype, y, batch.labels}, compute, mode);
  const bool language = spec.name == "gpt2" || spec.name == "llama";
  if (spec.tokens && spec.name != "layers" && spec.name != "pt2" && !language)
    fail(Exit::config,
         "model.name: {} does not accept tokens. use gpt2, llama, pt2, or layers with `embedding WIDTH` as the first "
         "layer",
         spec.name);
  if (language && (!spec.tokens || y.rank != 2))
    fail(Exit::config,
         "model.name: {} needs tokens with a label each. set data.sample = tokens and data.token_labels = every",
         spec.name);
  if (spec.separator >= 0 && !language)
    fail(Exit::config, "model.separator: it is for gpt2 and llama. set it to none{}",
         spec.name == "layers" ? ", and begin the layers with `documents separator=TOKEN`" : "");
  if (spec.attention_dropout > 0 && !language && spec.name != "vit")
    fail(Exit::config, "model.attention_dropout: it is for gpt2, llama and vit. set it to 0{}",
         spec.name == "layers" ? ", and write `attention ... dropout=P`" : "");
  if (spec.separator >= spec.outputs)
    fail(Exit::config,
         "model.separator: token {} is outside of the vocabulary (the data has tokens up to {}). set it to the token "
         "that ends each document, or to none",
         spec.separator, spec.outputs - 1);
  if (spec.name == "unet" && (spec.pointwise_loss || y.rank == 1))
    fail(Exit::config, "model.name: unet needs a label at each position, stored as maps of integers. data.y holds {}",
         spec.pointwise_loss ? "floating-point targets" : "one label a row");
  const bool one_input = spec.inputs.empty();
  if (!one_input && spec.name != "layers" && spec.name != "pt2")
    fail(Exit::config, "model.name: {} has one input. name one data set in data.x", spec.name);
  const int input = !one_input ? -1 : spec.tokens ? Graph::x : builder.mix(builder.input(spec.input), spec.mix);
  const auto move_labels = [&] {
    if (batch.labels && y.rank > 1 && !spec.tokens && one_input) y = builder.shape(builder.move_labels(spec.input));
  };
  if (spec.own_losses) move_labels();
  int out = -1;
  if (spec.name == "mlp")
    out = build_mlp(builder, input, spec);
  else if (spec.name == "resnet")
    out = build_resnet(builder, input, spec);
  else if (spec.name == "pt2")
    out = build_pt2(builder, input, spec);
  else
    out = build_layers(builder, input, spec);
  if (!spec.own_losses) {
    move_labels();
    require_outputs(builder.shape(out), y, spec);
    add_loss(builder, out, spec);
  }
  Graph graph = builder.finish();
  require_readers(graph, spec);
  return graph;
}

int build_mlp(GraphBuilder& g, int src, const ModelSpec& spec) {
  int at = src, number = 0;
  for (const std::int64_t width : spec.hidden) {
    const std::string name = fmt::format("fc{}", ++number);
    at = g.linear(name, at, width);
    at = g.activation(name + ".act", at, spec.activation);
    if (spec.dropout > 0) at = g.dropout(name + ".drop", at, spec.dropout, spec.seed);
  }
  return g.linear(fmt::format("fc{}", ++number), at, spec.outputs);
}

}  // namespace millrace
