// A network as lines of text, one layer per line:
//   conv CHANNELS [KERNEL] [stride=S] [pad=P|same] [dilation=D] [groups=G] [bias=on|off]    KERNEL: 3, 3x3, 3x3x3;
//   default 1 | batchnorm | ACTIVATION (a name of ops/op.hpp) | dropout P | linear FEATURES|outputs [bias=on|off] |
//   embedding WIDTH [vocabulary=V] | maxpool KERNEL [stride=S] [pad=P] | avgpool KERNEL [stride=S] [pad=P] |
//   globalpool | add NAME
// Every line may end with `from=NAME` (read the result of that layer instead of the line above) and `as=NAME` (name the
// result of this line). `input` is the name of the normalised batch.
//
// The parameters of a layer are called by its `as=` name. Without one, the layer is called by its kind and its number
// among the lines of that kind ("conv2"), so that lines of other kinds can be added without another name.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "millrace/base/error.hpp"
#include "millrace/model/zoo.hpp"

namespace millrace {
namespace {

constexpr std::int64_t max_number = std::numeric_limits<std::int32_t>::max();  // products of two fit into 64 bits

struct Line {
  std::string text, kind;
  std::vector<std::string> words;            // positional
  std::map<std::string, std::string> named;  // key=value

  [[noreturn]] void refuse(const std::string& why) const { fail(Exit::config, "model.layers: `{}`: {}", text, why); }

  std::int64_t number(const std::string& word, const char* what) const {
    std::int64_t value = 0;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (problem != std::errc() || end != word.data() + word.size() || value < 0)
      refuse(fmt::format("'{}' is not a {}", word, what));
    if (value > max_number) refuse(fmt::format("'{}' is too large (at most {})", word, max_number));
    return value;
  }
  std::int64_t option(const std::string& key, std::int64_t otherwise, std::int64_t smallest = 1) {
    const auto it = named.find(key);
    if (it == named.end()) return otherwise;
    const std::int64_t value = number(it->second, "whole number");
    if (value < smallest) refuse(fmt::format("{}={} is out of range (must be at least {})", key, value, smallest));
    named.erase(it);
    return value;
  }
  bool flag(const std::string& key, bool otherwise) {
    const auto it = named.find(key);
    if (it == named.end()) return otherwise;
    const std::string value = it->second;
    named.erase(it);
    if (value != "on" && value != "off") refuse(fmt::format("{}={} must be on or off", key, value));
    return value == "on";
  }
  // The name from as=, and removes the option; "": there is none.
  std::string given_name() {
    const auto it = named.find("as");
    if (it == named.end()) return "";
    const std::string name = it->second;
    named.erase(it);
    const bool plain = std::all_of(name.begin(), name.end(),
                                   [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; });
    if (name.empty() || !plain || name.front() == '.')
      refuse(fmt::format("as={} is not a name. use letters, digits, '_', '-' and '.'", name));
    return name;
  }
  const std::string& word(std::size_t i, const char* what) const {
    if (i >= words.size()) refuse(fmt::format("needs {}", what));
    return words[i];
  }
};

Line parse(const std::string& text) {
  Line line;
  line.text = text;
  std::istringstream in(text);
  in >> line.kind;
  for (std::string word; in >> word;) {
    const auto equals = word.find('=');
    if (equals == std::string::npos)
      line.words.push_back(word);
    else if (!line.named.emplace(word.substr(0, equals), word.substr(equals + 1)).second)
      line.refuse(fmt::format("'{}' is given twice. remove one of them", word.substr(0, equals)));
  }
  return line;
}

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

int make_layer(GraphBuilder& g, Line& line, const std::string& name, int src, const std::map<std::string, int>& results,
               const ModelSpec& spec) {
  if (line.kind == "embedding") {
    if (src != Graph::x) line.refuse("embedding accepts only the samples, and only with data.sample = tokens");
    const std::int64_t width = line.number(line.word(0, "a width"), "width"),
                       vocabulary = line.option("vocabulary", spec.outputs);
    if (width < 1) line.refuse("the width must be at least 1");
    if (vocabulary < spec.outputs)
      line.refuse(fmt::format("the vocabulary must be at least {} (the data has tokens up to {})", spec.outputs,
                              spec.outputs - 1));
    return g.embedding(name, vocabulary, width);
  }
  if (src == Graph::x) line.refuse("the samples are tokens, which only `embedding WIDTH` accepts");
  const int rank = g.shape(src).spatial_rank();
  const bool window_kind =
      line.kind == "conv" || line.kind == "maxpool" || line.kind == "avgpool" || line.kind == "globalpool";
  if (window_kind && rank < 1)
    line.refuse(fmt::format("needs spatial dimensions, but its input has the shape {}", g.shape(src).str()));
  if (line.kind == "conv") {
    const std::int64_t channels = line.number(line.word(0, "a number of channels"), "number of channels");
    const Window w = window(line, line.words.size() > 1 ? line.words[1] : "1", rank, 1);
    const std::int64_t groups = line.option("groups", 1);
    if (channels < 1 || groups < 1) line.refuse("channels and groups must be at least 1");
    return g.conv(name, src, channels, w, line.flag("bias", false), groups);
  }
  if (line.kind == "maxpool" || line.kind == "avgpool") {
    const Window w = window(line, line.word(0, "a kernel"), rank, 0);
    return g.pool(name, src, line.kind == "maxpool" ? PoolSpec::Kind::max : PoolSpec::Kind::average, w);
  }
  if (line.kind == "globalpool") return g.pool(name, src, PoolSpec::Kind::global, Window{});
  if (line.kind == "batchnorm") return g.batch_norm(name, src);
  if (const auto* activation = find_activation(line.kind)) return g.activation(name, src, activation->kind);
  if (line.kind == "linear") {
    const std::string& width = line.word(0, "a number of features");
    return g.linear(name, src, width == "outputs" ? spec.outputs : line.number(width, "number of features"),
                    line.flag("bias", true));
  }
  if (line.kind == "dropout") {
    float p = -1;
    const std::string& word = line.word(0, "a probability");
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), p);
    if (problem != std::errc() || end != word.data() + word.size() || !(p >= 0 && p < 1))
      line.refuse(fmt::format("'{}' is not a probability (a number of at least 0 and below 1)", word));
    return g.dropout(name, src, p, spec.seed);
  }
  if (line.kind == "add") {
    const auto other = results.find(line.word(0, "the name of an earlier layer"));
    if (other == results.end()) line.refuse(fmt::format("no earlier line has as={}", line.words[0]));
    return g.add(name, src, other->second);
  }
  line.refuse(
      fmt::format("unknown layer '{}'. use one of conv, embedding, batchnorm, {}, dropout, linear, maxpool, avgpool, "
                  "globalpool, add",
                  line.kind, activation_names()));
}

}  // namespace

int build_layers(GraphBuilder& g, int src, const ModelSpec& spec) {
  if (spec.layers.empty())
    fail(Exit::config, "model.name: layers needs lines `model.layers = ...`, one for each layer");
  std::map<std::string, int> results{{"input", src}}, of_kind;
  std::set<std::string> taken{"input"};
  int at = src, number = 0;
  for (const std::string& text : spec.layers) {
    Line line = parse(text);
    if (const auto from = line.named.find("from"); from != line.named.end()) {
      const auto found = results.find(from->second);
      if (found == results.end()) line.refuse(fmt::format("no earlier line has as={}", from->second));
      at = found->second;
      line.named.erase(from);
    }
    const std::string as = line.given_name();
    const std::string name = as.empty() ? fmt::format("{}{}", line.kind, of_kind[line.kind] + 1) : as;
    ++of_kind[line.kind];
    if (!taken.insert(name).second)
      line.refuse(fmt::format("the name '{}' is already used. choose another one with as=", name));
    at = make_layer(g, line, name, at, results, spec);
    g.set_older_name(name, fmt::format("{}.{}", ++number, line.kind));
    if (!line.named.empty())
      line.refuse(fmt::format("'{}' is not an option of {}", line.named.begin()->first, line.kind));
    if (!as.empty()) results[as] = at;
  }
  return at;
}

}  // namespace millrace
