// A network as lines of text, one layer per line. TextLine parses a line; docs/reference/networks.md lists all layers
// and options. Every line may end with `from=NAME` (read the result of that layer instead of the line above) and
// `as=NAME` (name the result of this line). `input` is the name of the normalised batch.
//
// A line that ends with `{` begins a block, which `}` ends:
//   repeat N {      the lines N times, one after the other
//   residual {      the lines, and the sum of their result and of what they read
//
// The parameters of a layer are called by its `as=` name. Without one, the layer is called by its kind and its number
// among the lines of that kind ("conv2"), so that lines of other kinds can be added without another name. In a block,
// names begin with that of the block: `repeat 12 as=h {` gives h.0.NAME, h.1.NAME. Only lines of the same block and of
// the blocks around it can read a result.
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <set>
#include <sstream>

#include "millrace/base/error.hpp"
#include "millrace/model/zoo.hpp"
#include "model/text_line.hpp"

namespace millrace {
namespace {

using Line = TextLine;

// Parses KERNEL and the options of a sliding window. A single number applies to all dimensions. default_stride 0: the
// stride equals the kernel.
Window window(Line& line, const std::string& kernel, int rank, std::int64_t default_stride) {
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
    const std::int64_t max_pad = line.kind == "conv" ? reach : (reach + 1) / 2;
    w.pad[std::size_t(a)] = same ? reach / 2 : padding;
    if (w.pad[std::size_t(a)] > max_pad)
      line.refuse(fmt::format("pad={} is too large for its kernel (at most {})", w.pad[std::size_t(a)], max_pad));
  }
  return w;
}

int make_window_layer(GraphBuilder& g, Line& line, const std::string& name, int src) {
  const int rank = g.shape(src).spatial_rank();
  if (rank < 1)
    line.refuse(fmt::format("needs spatial dimensions, but its input has the shape {}", g.shape(src).str()));
  if (line.kind == "globalpool") return g.pool(name, src, PoolSpec::Kind::global, Window{});
  if (line.kind != "conv") {
    const Window w = window(line, line.word(0, "a kernel"), rank, 0);
    return g.pool(name, src, line.kind == "maxpool" ? PoolSpec::Kind::max : PoolSpec::Kind::average, w);
  }
  const std::int64_t channels = line.number(line.word(0, "a number of channels"), "number of channels");
  const Window w = window(line, line.words.size() > 1 ? line.words[1] : "1", rank, 1);
  const std::int64_t groups = line.option("groups", 1);
  if (channels < 1 || groups < 1) line.refuse("channels and groups must be at least 1");
  return g.conv(name, src, channels, w, line.flag("bias", false), groups);
}

int make_embedding(GraphBuilder& g, Line& line, const std::string& name, int src, const ModelSpec& spec) {
  if (src != Graph::x) line.refuse("embedding accepts only the samples, and only with data.sample = tokens");
  const std::int64_t width = line.number(line.word(0, "a width"), "width"),
                     vocabulary = line.option("vocabulary", spec.outputs);
  if (width < 1) line.refuse("the width must be at least 1");
  if (vocabulary < spec.outputs)
    line.refuse(fmt::format("the vocabulary must be at least {} (the data has tokens up to {})", spec.outputs,
                            spec.outputs - 1));
  return g.embedding(name, vocabulary, width);
}

int make_linear(GraphBuilder& g, Line& line, const std::string& name, int src, const ModelSpec& spec) {
  const std::string& width = line.word(0, "a number of features");
  const std::int64_t features = width == "outputs" ? spec.outputs : line.number(width, "number of features");
  const bool flatten = line.choice("axis", {"all", "last"}) == "all";
  const std::string shared = line.take("weights");
  const int dst = g.linear(name, src, features, line.flag("bias", true), flatten);
  if (!shared.empty() && !g.tie_weights(name, shared))
    line.refuse(fmt::format("no layer '{}' has weights of the shape {}x{}", shared, features,
                            flatten ? g.shape(src).row_count() : g.shape(src)[-1]));
  return dst;
}

int make_dropout(GraphBuilder& g, const Line& line, const std::string& name, int src, std::uint64_t seed) {
  float p = -1;
  const std::string& word = line.word(0, "a probability");
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), p);
  if (problem != std::errc() || end != word.data() + word.size() || !(p >= 0 && p < 1))
    line.refuse(fmt::format("'{}' is not a probability (a number of at least 0 and below 1)", word));
  return g.dropout(name, src, p, seed);
}

int make_norm(GraphBuilder& g, Line& line, const std::string& name, int src) {
  if (line.kind == "batchnorm") return g.batch_norm(name, src);
  const bool layer = line.kind == "layernorm";
  const auto kind = layer ? LayerNormSpec::Kind::layer : LayerNormSpec::Kind::rms;
  return g.layer_norm(name, src, kind, layer && line.flag("bias", true), float(line.real("epsilon", 1e-5, 0, 1)));
}

int make_attention(GraphBuilder& g, Line& line, const std::string& name, int src) {
  const std::int64_t heads = line.option("heads", 1);
  const bool causal = line.take_word("causal");
  if (!line.words.empty()) line.refuse(fmt::format("'{}' is not an option of attention", line.words[0]));
  return g.attention(name, src, heads, line.option("key_heads", heads), causal);
}

// Makes the layer of a line whose kind is none of `add`, `repeat` and `residual`.
int make_layer(GraphBuilder& g, Line& line, const std::string& name, int src, const ModelSpec& spec) {
  const std::string& kind = line.kind;
  if (kind == "embedding") return make_embedding(g, line, name, src, spec);
  if (src == Graph::x) line.refuse("the samples are tokens, which only `embedding WIDTH` accepts");
  if (kind == "conv" || kind == "maxpool" || kind == "avgpool" || kind == "globalpool")
    return make_window_layer(g, line, name, src);
  if (kind == "batchnorm" || kind == "layernorm" || kind == "rmsnorm") return make_norm(g, line, name, src);
  if (const auto* activation = find_activation(kind)) return g.activation(name, src, activation->kind);
  if (kind == "linear") return make_linear(g, line, name, src, spec);
  if (kind == "dropout") return make_dropout(g, line, name, src, spec.seed);
  if (kind == "attention") return make_attention(g, line, name, src);
  if (kind == "positions") return g.position_embedding(name, src);
  line.refuse(
      fmt::format("unknown layer '{}'. use one of conv, embedding, positions, batchnorm, layernorm, rmsnorm, {}, "
                  "attention, dropout, linear, maxpool, avgpool, globalpool, add, or a block of repeat or residual",
                  kind, activation_names()));
}

// The names of a block, and the results that its lines have named.
struct Scope {
  const Scope* outer;
  std::string prefix;  // of names
  std::map<std::string, int> results, of_kind;

  const int* find(const std::string& name) const {
    const auto it = results.find(name);
    return it != results.end() ? &it->second : outer ? outer->find(name) : nullptr;
  }
};

class TextNetwork {
 public:
  TextNetwork(GraphBuilder& g, const ModelSpec& spec) : g_(g), spec_(spec) {
    for (const std::string& text : spec.layers) lines_.emplace_back(text);
    close_blocks();
  }

  int build(int src) {
    Scope scope{nullptr, "", {{"input", src}}, {}};
    taken_.insert("input");
    return build_lines(scope, 0, lines_.size(), src);
  }

 private:
  static bool opens(const Line& line) { return !line.words.empty() && line.words.back() == "{"; }

  // Finds the end of each block.
  void close_blocks() {
    std::vector<std::size_t> open;
    ends_.resize(lines_.size());
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const bool block = lines_[i].kind == "repeat" || lines_[i].kind == "residual";
      if (block != opens(lines_[i]))
        lines_[i].refuse(block ? "a block begins with `{` at the end of its line"
                               : "only repeat and residual begin a block");
      if (block) open.push_back(i);
      if (lines_[i].kind != "}") continue;
      if (open.empty()) lines_[i].refuse("no block is open here");
      ends_[open.back()] = i;
      open.pop_back();
    }
    if (!open.empty()) lines_[open.back()].refuse("the block has no end. close it with a line `}`");
  }

  int build_lines(Scope& scope, std::size_t begin, std::size_t end, int at) {
    for (std::size_t i = begin; i < end; ++i) {
      Line line = lines_[i];
      if (const std::string from = line.take("from"); !from.empty()) at = result(scope, line, from);
      const std::string as = line.given_name();
      if (line.kind == "repeat" || line.kind == "residual") {
        line.words.pop_back();
        at = line.kind == "repeat" ? repeat(scope, line, as, i, at) : residual(scope, line, as, i, at);
        i = ends_[i];
      } else {
        at = build_line(scope, line, as, at);
      }
      line.require_no_options_left();
      if (!as.empty()) scope.results[as] = at;
    }
    return at;
  }

  int build_line(Scope& scope, Line& line, const std::string& as, int src) {
    const std::string name = unused(scope, line, as);
    const double deviation = line.real("std", 0, 0, 1e6);
    int at = -1;
    if (line.kind == "add")
      at = g_.add(name, src, result(scope, line, line.word(0, "the name of an earlier layer")));
    else
      at = make_layer(g_, line, name, src, spec_);
    if (deviation > 0) g_.set_normal_init(name, deviation);
    ++number_;
    if (!scope.outer) g_.set_older_name(name, fmt::format("{}.{}", number_, line.kind));
    return at;
  }

  int repeat(Scope& scope, const Line& line, const std::string& as, std::size_t at, int src) {
    const std::int64_t count = line.number(line.word(0, "a number of repetitions"), "number of repetitions");
    if (count < 1) line.refuse("the number of repetitions must be at least 1");
    const std::string name = unused(scope, line, as);
    for (std::int64_t i = 0; i < count; ++i) {
      Scope inner{&scope, fmt::format("{}.{}.", name, i), {}, {}};
      src = build_lines(inner, at + 1, ends_[at], src);
    }
    return src;
  }

  // The lines of a residual block belong to the block around it, unless it has a name.
  int residual(Scope& scope, const Line& line, const std::string& as, std::size_t at, int src) {
    const std::string name = unused(scope, line, as);
    Scope own{&scope, name + ".", {}, {}};
    const int branch = build_lines(as.empty() ? scope : own, at + 1, ends_[at], src);
    return g_.add(name + ".add", src, branch);
  }

  // The full name of a layer, which no other one has.
  std::string unused(Scope& scope, const Line& line, const std::string& as) {
    const std::string name =
        scope.prefix + (as.empty() ? fmt::format("{}{}", line.kind, scope.of_kind[line.kind] + 1) : as);
    ++scope.of_kind[line.kind];
    if (!taken_.insert(name).second)
      line.refuse(fmt::format("the name '{}' is already used. choose another one with as=", name));
    return name;
  }

  static int result(const Scope& scope, const Line& line, const std::string& name) {
    const int* found = scope.find(name);
    if (!found) line.refuse(fmt::format("no earlier line has as={}", name));
    return *found;
  }

  GraphBuilder& g_;
  const ModelSpec& spec_;
  std::vector<Line> lines_;
  std::vector<std::size_t> ends_;  // of a block: the index of its `}`
  std::set<std::string> taken_;
  int number_ = 0;
};

}  // namespace

int build_layers(GraphBuilder& g, int src, const ModelSpec& spec) {
  if (spec.layers.empty())
    fail(Exit::config, "model.name: layers needs lines `model.layers = ...`, one for each layer");
  return TextNetwork(g, spec).build(src);
}

}  // namespace millrace
