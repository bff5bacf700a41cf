// A network as lines of text, one layer per line. TextLine parses a line; docs/reference/networks.md lists all layers
// and options. Every line may end with `from=NAME` (read the result of that layer instead of the line above) and
// `as=NAME` (name the result of this line). `input` is the name of the normalised batch.
//
// A line that ends with `{` begins a block, which `}` ends:
//   repeat N {      the lines N times, one after the other
//   residual {      the lines, and the sum of their result and of what they read
//
// A line `input NAME` is one of several inputs; then there is no `input`. A line `loss` adds a loss of what it reads,
// which the next line reads too. A network without such a line has one loss, of the last line.
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
#include "model/text_layers.hpp"
#include "model/text_line.hpp"

namespace millrace {
namespace {

using Line = TextLine;

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
  TextNetwork(GraphBuilder& g, const ModelSpec& spec, const Shape& src) : g_(g), spec_(spec) {
    for (const std::string& text : written_layers(spec, src)) lines_.emplace_back(text);
    close_blocks();
  }

  int build(int src) {
    Scope scope{nullptr, "", {}, {}};
    if (src >= 0) scope.results["input"] = src;
    taken_.insert("input");
    const int out = build_lines(scope, 0, lines_.size(), src);
    for (const NamedInput& input : spec_.inputs)
      if (!read_.contains(input.name))
        fail(Exit::config, "data.x: no line `input {}` reads '{}'. add one, or remove it from data.x", input.name,
             input.name);
    for (const LossTarget& target : spec_.targets)
      if (!compared_.empty() && !compared_.contains(target.name))
        fail(Exit::config, "data.y: no line `loss KIND y={}` compares with '{}'. add one, or remove it from data.y",
             target.name, target.name);
    return out;
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
      if (line.kind == "input" && line.named.contains("from")) line.refuse("reads a data set. remove from=");
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
    if (line.kind == "input") return build_input(scope, line, as);
    require_source(line, src);
    const std::string name = unused(scope, line, as);
    const double deviation = line.real("std", 0, 0, 1e6);
    if (const auto shared = line.named.find("weights"); shared != line.named.end())
      shared->second = full_name(scope, shared->second);
    refuse_documents(line, src);
    if (line.kind == "loss") {
      if (deviation > 0) line.refuse("has no weights for std=. remove it");
      compared_.insert(make_loss(g_, line, name, src, spec_));
      return src;
    }
    const int at = build_layer(scope, line, name, src);
    if (deviation > 0 && !g_.set_normal_init(name, deviation)) line.refuse("has no weights for std=. remove it");
    ++number_;
    if (!scope.outer) g_.set_older_name(name, fmt::format("{}.{}", number_, line.kind));
    return at;
  }

  int build_layer(const Scope& scope, Line& line, const std::string& name, int src) const try {
    if (line.kind == "attention") {
      const std::string documents = line.take("documents");
      return make_attention(g_, line, name, src, documents.empty() ? -1 : result(scope, line, documents), spec_.seed);
    }
    if (line.kind != "add" && line.kind != "concat" && line.kind != "scale_by")
      return make_layer(g_, line, name, src, spec_);
    const int other = result(scope, line, line.word(0, "the name of an earlier layer"));
    refuse_documents(line, other);
    return make_join(g_, line, name, src, other);
  } catch (const Error& e) {
    const std::string why = e.what();
    if (e.code() != Exit::config || why.starts_with("model")) throw;
    // What an operation refuses does not name the layer.
    fail(Exit::config, "model: layer '{}' (`{}`{}): {}", name, line.text,
         spec_.name == "layers" ? "" : " of model.name = " + spec_.name, why);
  }

  int build_input(Scope& scope, Line& line, const std::string& as) {
    std::string name = line.word(0, "the name of a data set of data.x"), known;
    if (name.starts_with('/')) name.erase(0, 1);
    for (const NamedInput& input : spec_.inputs) {
      known += (known.empty() ? "" : ", ") + input.name;
      if (input.name != name) continue;
      if (line.named.contains("std")) line.refuse("has no weights for std=. remove it");
      if (line.words.size() > 1) line.refuse(fmt::format("has a word too many, '{}'. remove it", line.words[1]));
      read_.insert(name);
      ++number_;
      const int value = g_.input(input.spec, unused(scope, line, as.empty() ? name : as), input.begin,
                                 with_rows(input.sample), input.type);
      return scope.results[as.empty() ? name : as] = value;
    }
    line.refuse(fmt::format("data.x has no data set '{}'. it has {}", name, known));
  }

  Shape with_rows(const Shape& sample) const {
    Shape out{g_.shape(Graph::x)[0]};
    for (int axis = 0; axis < sample.rank; ++axis) out.dims[std::size_t(out.rank++)] = sample[axis];
    return out;
  }

  static void require_source(const Line& line, int src) {
    if (src < 0) line.refuse("reads no input. begin with a line `input NAME`, NAME being a data set of data.x");
  }

  void refuse_documents(const Line& line, int value) const {
    if (g_.holds_documents(value))
      line.refuse("`documents` is for `attention documents=NAME` only. read another result with from=");
  }

  int repeat(Scope& scope, const Line& line, const std::string& as, std::size_t at, int src) {
    const std::int64_t count = line.number(line.word(0, "a number of repetitions"), "number of repetitions");
    if (count < 1) line.refuse("the number of repetitions must be at least 1");
    if (ends_[at] == at + 1) line.refuse("the block has no lines");
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
    require_source(line, src);
    if (src == Graph::x) line.refuse("the samples are tokens, which only `embedding WIDTH` accepts");
    refuse_documents(line, src);
    const int branch = build_lines(as.empty() ? scope : own, at + 1, ends_[at], src);
    return g_.add(name + ".add", src, branch);
  }

  // Of the layer that is called so in this block or in one around it.
  std::string full_name(const Scope& scope, const std::string& name) const {
    for (const Scope* s = &scope; s; s = s->outer)
      if (taken_.contains(s->prefix + name)) return s->prefix + name;
    return name;
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
  std::vector<std::size_t> ends_;                  // of a block: the index of its `}`
  std::set<std::string> taken_, read_, compared_;  // names of results, inputs that are read, targets of losses
  int number_ = 0;
};

}  // namespace

int build_layers(GraphBuilder& g, int src, const ModelSpec& spec) {
  if (spec.name == "layers" && spec.layers.empty())
    fail(Exit::config, "model.name: layers needs lines `model.layers = ...`, one for each layer");
  return TextNetwork(g, spec, src < 0 ? Shape{} : g.shape(src)).build(src);
}

}  // namespace millrace
