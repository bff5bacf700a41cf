// What the translation of a network of PyTorch has at hand while it goes through the nodes: the builder of the graph,
// the values so far, and which tensors of the archive have become parameters.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "millrace/model/zoo.hpp"
#include "millrace/pt2/exported_program.hpp"
#include "model/pt2/axes.hpp"

namespace millrace::pt2 {

struct Value {
  enum class Kind {
    ignored,      // what only PyTorch's own book-keeping reads
    graph,        // a value of the graph
    tokens,       // the samples, which are tokens
    parameter,    // `tensor`
    class_token,  // `tensor` for each row, before the positions of `graph`
    blank,        // not written yet
    row_mask,     // one random factor for each row: 0, or `factor` with the probability `keep`
    range         // the numbers 0, 1, 2, ...
  };
  Kind kind = Kind::ignored;
  int graph = -1;
  int tensor = -1;  // index into ExportedProgram::tensors
  Axes axes;
  double keep = 1, factor = 1;
  int memory = -1;     // values with the same number share, or may share, their elements in PyTorch
  int object = -1;     // names with the same number are one tensor of PyTorch
  bool stale = false;  // a later node has overwritten its elements
};
using Values = std::vector<Value>;

class Context;

// One node, with its arguments by name.
class Call {
 public:
  Call(Context& context, const ExportedNode& node) : context_(context), node_(node) {}
  const ExportedNode& node() const { return node_; }
  // Error(config): the node, where it is in Python, and why it cannot be translated.
  [[noreturn]] void refuse(const std::string& why) const;

  bool has(const char* argument) const;  // it was given, and is not None
  Value value(const char* argument) const;
  // Of the kind `graph`, without selected atoms.
  Value computed(const char* argument) const;
  Value parameter(const char* argument) const;
  Values values(const char* argument) const;
  bool is_number(const char* argument) const;
  std::int64_t integer(const char* argument, std::int64_t otherwise) const;
  double real(const char* argument, double otherwise) const;
  bool flag(const char* argument, bool otherwise) const;
  std::string text(const char* argument, const std::string& otherwise) const;
  Sizes integers(const char* argument, const Sizes& otherwise = {}) const;  // one number is a list of one
  int axis(const char* argument, std::int64_t otherwise, int rank) const;

 private:
  const Argument* given(const char* argument) const;  // null: not given
  Context& context_;
  const ExportedNode& node_;
};

class Context {
 public:
  Context(GraphBuilder&, const ExportedProgram&, const ModelSpec&);

  GraphBuilder& builder;
  const ExportedProgram& program;
  const ModelSpec& spec;
  const std::int64_t rows;

  // Values by their name in the archive.
  Value& value(const Call&, const std::string& name);
  std::int64_t number(const Call&, const std::string& name) const;
  void define(const std::string& name, Value);
  void define(const std::string& name, std::int64_t number) { numbers_[name] = number; }
  // A node has written its result over `argument`: all names of that tensor now mean the result, and views of it that
  // were made before can no longer be read.
  void overwrite(const std::string& argument, const std::string& result_name, Value result);

  // Copies selected elements out. The value must be of the kind `graph`.
  Value plain(const Call&, Value);
  // The value of the graph with this shape; only the extents change.
  int shaped(const Call&, int graph, const Shape&);
  Shape shape_of(const Axes&, const std::vector<Atoms>& groups) const;  // of the stored order, after the rows
  // With the atoms of the axis as the last extent. They must be stored innermost.
  int channels_last(const Call&, const Value&, const Atoms& channels);
  // (rows, spatial..., channels) of a value (rows, channels, spatial...).
  int image(const Call&, const Value&);

  // A name for a layer: that of its weight without ".weight", or of its node.
  std::string layer_name(const Call&, int tensor = -1);
  // A parameter of a layer that the builder has added: from which tensor, and where its atoms lie. order: the atoms of
  // `value`, as the parameter stores them.
  struct Source {
    Value value;
    Atoms order;
  };
  static Source as_stored(const Value& v) { return {v, v.axes.stored}; }
  // The last parameters of the builder, in their order. Those in use already are shared.
  void attach(const Call&, const std::vector<Source>&);
  // Of the last norm that the builder has added.
  void attach_statistics(const Call&, int mean, int variance);

  std::map<std::vector<std::int64_t>, Value> joined;  // results of cat, by their parts

 private:
  ArchivePlace place_of(const Call&, const Source&) const;
  int canonical(int tensor) const;
  std::map<std::string, Value> values_;
  std::map<std::string, std::int64_t> numbers_;
  std::map<int, int> parameters_;                                  // of the graph, by canonical tensor
  std::set<std::string> names_{"input", "mix", "labels", "loss"};  // of nodes; these are in every graph
  std::set<int> statistics_;
  int memories_ = 0, objects_ = 0;
};

// The kinds of operations, by their name in ATen without overload: "relu", "conv2d".
using Operation = Values (*)(Context&, const Call&);
using Operations = std::map<std::string, Operation>;
void add_layers(Operations&);
void add_norms(Operations&);
void add_pools(Operations&);
void add_pointwise(Operations&);
void add_shapes(Operations&);
void add_tokens(Operations&);

// A value of the graph with these axes.
inline Value graph_value(int graph, Axes axes) {
  Value out;
  out.kind = Value::Kind::graph;
  out.graph = graph;
  out.axes = std::move(axes);
  return out;
}

}  // namespace millrace::pt2
