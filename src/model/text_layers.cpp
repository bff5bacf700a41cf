#include "model/text_layers.hpp"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

namespace millrace {
namespace {

// Parses KERNEL and the options of a sliding window. A single number applies to all dimensions. default_stride 0: the
// stride equals the kernel.
Window window(TextLine& line, const std::string& kernel, int rank, std::int64_t default_stride) {
  Window w;
  w.rank = rank;
  std::vector<std::int64_t> sizes;
  std::istringstream in(kernel);
  for (std::string part; std::getline(in, part, 'x');) sizes.push_back(line.number(part, "kernel size"));
  if (sizes.size() != 1 && int(sizes.size()) != rank)
    line.refuse(fmt::format("kernel {} does not fit data with {} spatial dimensions", kernel, rank));
  for (int a = 0; a < rank; ++a) w.kernel[std::size_t(a)] = sizes[sizes.size() == 1 ? 0 : std::size_t(a)];
  const auto pad = line.named.find("pad");
  const bool same = pad != line.named.end() && pad->second == "same";
  if (same) line.named.erase(pad);
  const std::int64_t dilation = line.option("dilation", 1), padding = line.option("pad", 0, 0);
  const std::int64_t stride = line.option("stride", default_stride);
  for (int a = 0; a < rank; ++a) {
    if (w.kernel[std::size_t(a)] < 1) line.refuse("the kernel must be at least 1");
    w.dilation[std::size_t(a)] = dilation;
    w.stride[std::size_t(a)] = stride > 0 ? stride : w.kernel[std::size_t(a)];
    const std::int64_t reach = dilation * (w.kernel[std::size_t(a)] - 1);
    // More would give results of padding only. A pool also needs at least half of its window inside the image.
    const std::int64_t max_pad = line.kind.starts_with("conv") ? reach : (reach + 1) / 2;
    w.pad[std::size_t(a)] = same ? reach / 2 : padding;
    if (w.pad[std::size_t(a)] > max_pad)
      line.refuse(fmt::format("pad={} is too large for its kernel (at most {})", w.pad[std::size_t(a)], max_pad));
  }
  return w;
}

// `outputs` is the number of classes, or of values of a target.
std::int64_t width_of(const TextLine& line, const std::string& word, const char* what, const ModelSpec& spec) {
  if (word != "outputs") return line.number(word, what);
  if (spec.own_losses && spec.targets.size() > 1)
    line.refuse("data.y names several data sets. give a number in place of `outputs`");
  return spec.outputs;
}

int make_window_layer(GraphBuilder& g, TextLine& line, const std::string& name, int src, const ModelSpec& spec) {
  const int rank = g.shape(src).spatial_rank();
  if (rank < 1)
    line.refuse(fmt::format("needs spatial dimensions, but its input has the shape {}", g.shape(src).str()));
  if (line.kind == "globalpool") return g.pool(name, src, PoolSpec::Kind::global, Window{});
  if (!line.kind.starts_with("conv")) {
    const Window w = window(line, line.word(0, "a kernel"), rank, 0);
    return g.pool(name, src, line.kind == "maxpool" ? PoolSpec::Kind::max : PoolSpec::Kind::average, w);
  }
  const std::string& width = line.word(0, "a number of channels");
  const std::int64_t channels = width_of(line, width, "number of channels", spec);
  const Window w = window(line, line.words.size() > 1 ? line.words[1] : "1", rank, 1);
  const std::int64_t groups = line.option("groups", 1);
  if (channels < 1 || groups < 1) line.refuse("channels and groups must be at least 1");
  if (line.kind == "convt") {
    const std::int64_t output_pad = line.option("output_pad", 0, 0);
    return g.transposed_conv(name, src, channels, w, output_pad, line.flag("bias", false), groups);
  }
  return g.conv(name, src, channels, w, line.flag("bias", false), groups);
}

int make_embedding(GraphBuilder& g, TextLine& line, const std::string& name, int src, const ModelSpec& spec) {
  if (src != Graph::x) line.refuse("embedding accepts only the samples, and only with data.sample = tokens");
  const std::int64_t width = line.number(line.word(0, "a width"), "width"),
                     vocabulary = line.option("vocabulary", spec.outputs);
  if (width < 1) line.refuse("the width must be at least 1");
  if (vocabulary < spec.outputs)
    line.refuse(fmt::format("the vocabulary must be at least {} (the data has tokens up to {})", spec.outputs,
                            spec.outputs - 1));
  return g.embedding(name, vocabulary, width);
}

int make_linear(GraphBuilder& g, TextLine& line, const std::string& name, int src, const ModelSpec& spec) {
  const std::string& width = line.word(0, "a number of features");
  const std::int64_t features = width_of(line, width, "number of features", spec);
  const bool flatten = line.choice("axis", {"all", "last"}) == "all";
  const std::string shared = line.take("weights");
  const int dst = g.linear(name, src, features, line.flag("bias", true), flatten);
  if (!shared.empty() && !g.tie_weights(name, shared))
    line.refuse(fmt::format("no other layer '{}' has weights of the shape {}x{} to share", shared, features,
                            flatten ? g.shape(src).row_count() : g.shape(src)[-1]));
  return dst;
}

float probability(const TextLine& line, const std::string& word) {
  float p = -1;
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), p);
  if (problem != std::errc() || end != word.data() + word.size() || !(p >= 0 && p < 1))
    line.refuse(fmt::format("'{}' is not a probability (a number of at least 0 and below 1)", word));
  return p;
}

// As torch.nn.LSTM, torch.nn.GRU and torch.nn.RNN with batch_first.
int make_recurrent(GraphBuilder& g, TextLine& line, const std::string& name, int src, std::uint64_t seed) {
  GraphBuilder::RecurrentOptions options;
  options.kind = line.kind == "lstm" ? RecurrentSpec::Kind::lstm : RecurrentSpec::Kind::gru;
  if (line.kind == "rnn") {
    const std::string function = line.take("activation");
    if (!function.empty() && function != "tanh" && function != "relu")
      line.refuse(fmt::format("activation={} is not possible. use tanh or relu", function));
    options.kind = function == "relu" ? RecurrentSpec::Kind::rnn_relu : RecurrentSpec::Kind::rnn_tanh;
  }
  options.bidirectional = line.take_word("bidirectional");
  options.units = line.number(line.word(0, "a number of units"), "number of units");
  options.layers = line.option("layers", 1);
  options.bias = line.flag("bias", true);
  options.seed = seed;
  const std::string dropout = line.take("dropout");
  if (!dropout.empty()) options.dropout = probability(line, dropout);
  if (options.dropout > 0 && options.layers < 2) line.refuse("dropout= is between layers. add layers=2, or remove it");
  if (options.units < 1) line.refuse("the number of units must be at least 1");
  if (line.words.size() > 1) line.refuse(fmt::format("'{}' is not an option of {}", line.words[1], line.kind));
  return g.recurrent(name, src, options);
}

int make_norm(GraphBuilder& g, TextLine& line, const std::string& name, int src) {
  if (line.kind == "batchnorm") return g.batch_norm(name, src);
  if (line.kind == "groupnorm" || line.kind == "instancenorm") {
    const bool all = line.kind == "instancenorm";
    const std::int64_t groups = all ? g.shape(src)[-1] : line.number(line.word(0, "a number of groups"), "groups");
    return g.group_norm(name, src, groups, float(line.real("epsilon", 1e-5, 0, 1)));
  }
  const bool layer = line.kind == "layernorm";
  const auto kind = layer ? LayerNormSpec::Kind::layer : LayerNormSpec::Kind::rms;
  return g.layer_norm(name, src, kind, layer && line.flag("bias", true), float(line.real("epsilon", 1e-5, 0, 1)));
}

int make_documents(GraphBuilder& g, TextLine& line, const std::string& name, int src, const ModelSpec& spec) {
  if (src != Graph::x) line.refuse("documents accepts only the samples, and only with data.sample = tokens");
  if (!line.named.contains("separator")) line.refuse("needs separator=TOKEN, the last token of each document");
  const std::int64_t separator = line.option("separator", 0, 0);
  if (separator >= spec.outputs)
    line.refuse(fmt::format("the separator {} is outside of the vocabulary (the data has tokens up to {})", separator,
                            spec.outputs - 1));
  return g.documents(name, separator);
}

int make_gated(GraphBuilder& g, const TextLine& line, const std::string& name, int src) {
  const std::string word = line.words.empty() ? "sigmoid" : line.words[0];
  const ActivationTraits* found = find_activation(word);
  if (!found) line.refuse(fmt::format("'{}' is no activation. use one of {}", word, activation_names()));
  return g.gated(name, src, found->kind);
}

// One learned slope for each channel, or one for all.
int make_prelu(GraphBuilder& g, TextLine& line, const std::string& name, int src) {
  const bool one = line.choice("slopes", {"channels", "one"}) == "one";
  return g.prelu(name, src, one ? 1 : g.shape(src)[-1], line.real("init", 0.25, -1e6, 1e6));
}

// axis= counts the axes of a sample from 0; without it, the channels.
int axis_of(const GraphBuilder& g, TextLine& line, int src) {
  const int last = g.shape(src).rank - 1;
  const std::int64_t axis = line.option("axis", last - 1, 0) + 1;
  if (axis > last) line.refuse(fmt::format("its input {} has no axis {}", g.shape(src).str(), axis - 1));
  return int(axis);
}

int make_slice(GraphBuilder& g, TextLine& line, const std::string& name, int src) {
  const std::int64_t begin = line.number(line.word(0, "the first element"), "number of an element"),
                     count = line.number(line.word(1, "a number of elements"), "number of elements");
  if (count < 1) line.refuse("the number of elements must be at least 1");
  return g.slice(name, src, axis_of(g, line, src), begin, count);
}

int make_upsample(GraphBuilder& g, TextLine& line, const std::string& name, int src) {
  const std::int64_t factor = line.number(line.word(0, "a factor"), "factor");
  if (factor < 1) line.refuse("the factor must be at least 1");
  if (g.shape(src).spatial_rank() < 1)
    line.refuse(fmt::format("needs spatial dimensions, but its input has the shape {}", g.shape(src).str()));
  const bool linear = line.choice("mode", {"nearest", "linear"}) == "linear";
  return g.upsample(name, src, linear ? UpsampleSpec::Kind::linear : UpsampleSpec::Kind::nearest, factor);
}

// Squeeze and excitation (Hu et al. 2018).
int make_squeeze(GraphBuilder& g, TextLine& line, const std::string& name, int src) {
  const std::int64_t reduction = line.number(line.word(0, "a reduction of the channels"), "reduction"),
                     channels = g.shape(src)[-1];
  if (g.shape(src).spatial_rank() < 1)
    line.refuse(fmt::format("needs spatial dimensions, but its input has the shape {}", g.shape(src).str()));
  if (reduction < 1 || reduction > channels)
    line.refuse(fmt::format("the reduction must be from 1 to the number of channels, {}", channels));
  int at = g.pool(name + ".avgpool", src, PoolSpec::Kind::global, Window{});
  at = g.activation(name + ".activation", g.linear(name + ".fc1", at, channels / reduction), Activation::relu);
  at = g.activation(name + ".scale_activation", g.linear(name + ".fc2", at, channels), Activation::sigmoid);
  return g.scale_by(name, src, at);
}

// channels_to_axis: (..., C) becomes (..., C, 1). axis_to_channels: (..., A, C) becomes (..., A * C).
int make_reshape(GraphBuilder& g, TextLine& line, const std::string& name, int src) {
  const Shape& from = g.shape(src);
  Shape to{from[0]};
  if (line.kind == "reshape") {
    std::istringstream in(line.word(0, "extents such as 4x4x64"));
    std::int64_t left = from.row_count();
    for (std::string part; left > 0 && std::getline(in, part, 'x');) {
      const std::int64_t extent = line.number(part, "extent");
      left = to.rank == Shape::max_rank || extent < 1 || left % extent != 0 ? 0 : left / extent;
      if (left > 0) to.dims[std::size_t(to.rank++)] = extent;
    }
    if (left != 1)
      line.refuse(fmt::format("its extents must multiply to the {} values of each sample of its input {}",
                              from.row_count(), from.str()));
    return g.reshape(name, src, to);
  }
  to = from;
  if (line.kind == "channels_to_axis") {
    if (to.rank == Shape::max_rank || to.spatial_rank() == 3)
      line.refuse(fmt::format("its input {} has as many axes as are possible", from.str()));
    to.dims[std::size_t(to.rank++)] = 1;
  } else {
    if (to.spatial_rank() < 1) line.refuse(fmt::format("its input {} has no axis but the channels", from.str()));
    to.dims[std::size_t(--to.rank)] = 0;
    to[-1] *= from[-1];
  }
  return g.reshape(name, src, to);
}

}  // namespace

int make_layer(GraphBuilder& g, TextLine& line, const std::string& name, int src, const ModelSpec& spec) {
  const std::string& kind = line.kind;
  if (kind == "embedding") return make_embedding(g, line, name, src, spec);
  if (kind == "documents") return make_documents(g, line, name, src, spec);
  if (src == Graph::x) line.refuse("the samples are tokens, which only `embedding WIDTH` accepts");
  if (kind == "conv" || kind == "convt" || kind == "maxpool" || kind == "avgpool" || kind == "globalpool")
    return make_window_layer(g, line, name, src, spec);
  if (kind == "batchnorm" || kind == "layernorm" || kind == "rmsnorm" || kind == "groupnorm" || kind == "instancenorm")
    return make_norm(g, line, name, src);
  if (kind == "prelu") return make_prelu(g, line, name, src);
  if (kind == "leaky_relu" && line.named.contains("slope"))
    return g.leaky_relu(name, src, float(line.real("slope", 0.01, -1e6, 1e6)));
  if (const auto* activation = find_activation(kind)) return g.activation(name, src, activation->kind);
  if (kind == "lstm" || kind == "gru" || kind == "rnn") return make_recurrent(g, line, name, src, spec.seed);
  if (kind == "linear") return make_linear(g, line, name, src, spec);
  if (kind == "dropout" || kind == "droppath")
    return g.dropout(name, src, probability(line, line.word(0, "a probability")), spec.seed, kind == "droppath");
  if (kind == "positions") return g.position_embedding(name, src, line.flag("class_token", false));
  if (kind == "glu") return make_gated(g, line, name, src);
  if (kind == "scale") return g.scale(name, src, line.real("init", 1, -1e6, 1e6));
  if (kind == "slice") return make_slice(g, line, name, src);
  if (kind == "upsample") return make_upsample(g, line, name, src);
  if (kind == "se") return make_squeeze(g, line, name, src);
  if (kind == "reshape" || kind == "channels_to_axis" || kind == "axis_to_channels")
    return make_reshape(g, line, name, src);
  line.refuse(fmt::format(
      "unknown layer '{}'. use one of input, conv, convt, embedding, documents, positions, batchnorm, layernorm, "
      "rmsnorm, "
      "groupnorm, instancenorm, {}, prelu, glu, scale, se, attention, lstm, gru, rnn, dropout, droppath, linear, "
      "maxpool, "
      "avgpool, "
      "globalpool, upsample, reshape, channels_to_axis, axis_to_channels, add, concat, scale_by, slice, loss, "
      "or a block of repeat or residual",
      kind, activation_names()));
}

int make_attention(GraphBuilder& g, TextLine& line, const std::string& name, int src, int documents,
                   std::uint64_t seed) {
  if (src == Graph::x) line.refuse("the samples are tokens, which only `embedding WIDTH` accepts");
  GraphBuilder::AttentionOptions options;
  options.heads = line.option("heads", 1);
  options.key_heads = line.option("key_heads", options.heads);
  options.causal = line.take_word("causal");
  options.seed = seed;
  options.documents = documents;
  const std::string dropout = line.take("dropout");
  if (!dropout.empty()) options.dropout = probability(line, dropout);
  const bool turned = line.named.contains("rotary");
  const double theta = line.real("rotary", 0, 1, 1e30);
  if (!line.words.empty()) line.refuse(fmt::format("'{}' is not an option of attention", line.words[0]));
  if (documents >= 0 && !g.holds_documents(documents))
    line.refuse("documents= must name a line `documents separator=TOKEN`");
  if (documents >= 0 && !options.causal) line.refuse("attention within documents must be causal. add `causal`");
  if (turned) src = g.rotary(name + ".rotary", src, options.heads, options.key_heads, float(theta));
  return g.attention(name, src, options);
}

int make_join(GraphBuilder& g, TextLine& line, const std::string& name, int src, int other) {
  if (src == Graph::x || other == Graph::x) line.refuse("the samples are tokens, which only `embedding WIDTH` accepts");
  if (line.kind == "scale_by") return g.scale_by(name, src, other);
  return line.kind == "add" ? g.add(name, src, other) : g.concat(name, src, other, axis_of(g, line, src));
}

}  // namespace millrace
