// What the translation of a network of PyTorch has at hand while it goes through the nodes: the builder of the graph,
// the values so far, and which tensors of the archive have become parameters.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "millrace/model/zoo.hpp"
#include "millrace/pt2/exported_program.hpp"
#include "model/pt2/axes.hpp"
#include "model/pt2/constants.hpp"

namespace millrace::pt2 {

// Numbers that follow from the tokens of a row and one special token, `separator`, such as that of the padding.
struct TokenNumbers {
  enum class Kind {
    mask,    // 1 where the token is another one, otherwise 0
    sums,    // how many of the mask are 1, up to each position
    counts,  // the sums plus `first`, and `first` where the mask is 0
    places,  // the position where the mask is 1, otherwise 0
    last     // of each row, the last position where the mask is 1, or 0
  };
  Kind kind = Kind::mask;
  std::int64_t separator = 0, first = 0;
};

struct Value {
  enum class Kind {
    ignored,      // what only PyTorch's own book-keeping reads
    graph,        // a value of the graph
    tokens,       // the samples, which are tokens
    numbers,      // `numbers`, integers that follow from the tokens
    parameter,    // `tensor`
    shifted,      // the parameter `tensor` plus the number `shift`
    class_token,  // `tensor` for each row, before the positions of `graph`
    blank,        // not written yet
    uniform,      // a random number for each row: uniform in [keep, keep + 1)
    row_mask,     // one random factor for each row: 0, or `factor` with the probability `keep`
    nothing,      // no elements
    row_numbers,  // 0, 1, ... for the rows, as an index of them
    constant      // `constant`, the same for all rows
  };
  Kind kind = Kind::ignored;
  int graph = -1;
  int tensor = -1;  // index into ExportedProgram::tensors
  Axes axes;
  std::shared_ptr<const Constant> constant;
  // Of a parameter: the elements at these places of it, in the stored order of `axes`. Null: all of them.
  std::shared_ptr<const Constant> picked;
  int draw = -1;  // of `uniform` and `row_mask`: those with the same number follow from the same random numbers
  // Of a graph value, `factor`: it is still to be multiplied by it (only_masks_rows).
  double keep = 1, factor = 1, shift = 0;
  TokenNumbers numbers;
  int memory = -1;     // values with the same number share, or may share, their elements in PyTorch
  int object = -1;     // names with the same number are one tensor of PyTorch
  bool stale = false;  // a later node has overwritten its elements
};
using Values = std::vector<Value>;

// One of several indices, of an axis. of_rows: each row has its own number; `constant` is then that of the first row.
struct Index {
  Constant constant;
  bool of_rows = false;
};

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
  // A tensor that does not depend on the samples.
  Constant constant(const char* argument) const;
  std::vector<std::optional<Index>> indices() const;  // the argument of that name
  bool is_number(const char* argument) const;
  bool is_integer(const char* argument) const;  // and no tensor
  std::int64_t integer(const char* argument, std::int64_t otherwise) const;
  double real(const char* argument, double otherwise) const;
  bool flag(const char* argument, bool otherwise) const;
  std::string text(const char* argument, const std::string& otherwise) const;
  Sizes integers(const char* argument, const Sizes& otherwise = {}) const;  // one number is a list of one
  int axis(const char* argument, std::int64_t otherwise, int rank) const;
  std::vector<int> axes(const char* argument, int rank) const;  // none twice

 private:
  const Argument* given(const char* argument) const;  // null: not given
  Context& context_;
  const ExportedNode& node_;
};

// The argument of torch.export.export() with which the number of rows is free: it has an entry for each input.
std::string export_for_any_rows(const ExportedProgram&);

class Context {
 public:
  Context(GraphBuilder&, const ExportedProgram&, const ModelSpec&);

  GraphBuilder& builder;
  const ExportedProgram& program;
  const std::vector<ExportedNode> nodes;  // of simplified_nodes(): those that are translated
  const ModelSpec& spec;
  const std::int64_t rows;
  std::vector<int> inputs;  // the samples, unless they are tokens

  // Values by their name in the archive.
  Value& value(const Call&, const std::string& name);
  const Value* find(const std::string& name) const;  // null: there is none yet
  std::int64_t number(const Call&, const std::string& name) const;
  int add_input(const NamedInput&);  // one of several: its value of the graph
  void define(const std::string& name, Value);
  void define(const std::string& name, std::int64_t number) { numbers_[name] = number; }
  // A node has written its result over `argument`: all names of that tensor now mean the result, and views of it that
  // were made before can no longer be read.
  void overwrite(const std::string& argument, const std::string& result_name, Value result);

  // Of a value that does not depend on the samples, such as a buffer; nullopt: it does, or it is a parameter.
  std::optional<Constant> as_constant(const Value&);

  // Copies selected elements out. The value must be of the kind `graph`, a class token, or a constant.
  Value plain(const Call&, Value);
  Value made_of(const Call&, const Constant&);
  // The value with its atoms, but for selected ones, in this stored order. It is copied if that is another one.
  Value ordered(const Call&, const Value&, const Atoms& order);
  // In the order of its axes.
  Value contiguous(const Call&, const Value&);
  // The atoms of this axis side by side, in their order.
  Value grouped(const Call&, const Value&, int axis);
  // These elements of an axis, in this order; zeros where an index is -1.
  Value take(const Call&, Value, int axis, std::vector<std::int32_t> indices);
  // The value of the graph with this shape; only the extents change.
  int shaped(const Call&, int graph, const Shape&);
  Shape shape_of(const Axes&, const std::vector<Atoms>& groups) const;  // of the stored order, after the rows
  // With these atoms as the last extent. The value is copied if they are not stored innermost.
  int channels_last(const Call&, Value&, const Atoms& channels);
  // (rows, spatial..., channels) of a value (rows, channels, spatial...).
  int image(const Call&, const Value&);

  // A name for a layer: that of its weight without ".weight" or ".weight_ih_l0", or of its node.
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
  void attach_statistics(const Call&, int mean, int variance, float momentum);

  int draws = 0;             // Value::draw of the next random numbers
  std::set<int> used_draws;  // those that a dropout draws in the graph

  // Results of nodes that are asked for again: of cat by their parts, and copies by their source and order.
  std::map<std::vector<std::int64_t>, Value> joined, copies;

 private:
  ArchivePlace place_of(const Call&, const Source&) const;
  int canonical(int tensor) const;
  std::map<std::string, Value> values_;
  std::map<std::string, std::int64_t> numbers_;
  std::map<int, Constant> buffers_;                                // that were read, by tensor
  std::map<int, int> parameters_;                                  // of the graph, by canonical tensor
  std::set<std::string> names_{"input", "mix", "labels", "loss"};  // of nodes; these are in every graph
  std::set<int> statistics_;
  int memories_ = 0, objects_ = 0;
};

// Operations on constants alone. fold: nullopt if there are other operands. kind: the name of an operation.
bool is_constant_operation(const std::string& kind);
std::optional<Value> fold(Context&, const Call&, const std::string& kind, bool in_place);
// Operations on what follows from the tokens. In token_numbers.cpp. fold_numbers: nullopt if there are other operands.
bool is_number_operation(const std::string& kind);
std::optional<Value> fold_numbers(Context&, const Call&, const std::string& kind);
using Fold = Constant (*)(Context&, const Call&);
const std::map<std::string, Fold>& computations();              // by kind
Constant operand(const Call&, const char* argument);            // a number, or a constant
Constant::Type type_of(const Call&, Constant::Type otherwise);  // that a node asks for
Constant::Type type_of(const Context&, const Value&);
Constant::Type type_of(ScalarType);
bool is_constant_view(const std::string& kind);
Constant constant_view(const Call&, Constant, const std::string& kind);
Constant index_constant(const Call&, const Constant&);
Values parts_of_constant(const Constant&, int axis, const Sizes&);  // views
// In constant_moves.cpp. The elements of an axis by an index for each of them, differences of neighbours, and several
// joined.
Constant gathered(Context&, const Call&);
Constant differences(Context&, const Call&);
Constant joined_constants(Context&, const Call&);
Constant stacked_constants(Context&, const Call&);
Constant repeated_constant(Context&, const Call&);
Constant repeated_elements(Context&, const Call&);  // repeat_interleave
Constant selected_constant(Context&, const Call&);  // index_select
Value constant_value(const Constant&);
// Where the elements lie in the stored order, in the order of the axes; of a parameter in the archive.
Constant places_of(const Axes&);
Constant parameter_places(const Value&);

// A value times `scale` plus `offset`, repeated to its extents. In affine.cpp, as those below.
Value affine(Context&, const Call&, Value, const Constant& scale, const Constant& offset);
inline Value affine(Context& c, const Call& call, const Value& v, double scale, double offset) {
  return affine(c, call, v, Constant::filled({}, scale), Constant::filled({}, offset));
}
// The elements of a parameter added to those of a value, repeated to its extents.
Value with_bias(Context&, const Call&, Value, const Value& parameter);
// With axes of extent 1 repeated. to: -1 leaves an axis as it is.
Value expanded(Context&, const Call&, Value, const Sizes& to);
// Gives two values of the graph equal extents and one stored order, and adds them. In sums.cpp.
void fit_together(Context&, const Call&, Value&, Value&);
Value sum_of_values(Context&, const Call&, Value, Value);
Value sum_with(Context&, const Call&, const Value&, const char* other, double factor);  // + factor * that argument
// The mean over the axes of the argument `dim`, or over these. In pools.cpp.
Value mean_over(Context&, const Call&, Value);
Value mean_over(Context&, const Call&, Value, std::vector<int> axes, bool keep);
// For each element of a result, elements of an axis with their weights. In windows.cpp, as those below.
using WeightedWindows = std::vector<std::vector<std::pair<std::int64_t, double>>>;
Value windows_of_axis(Context&, const Call&, Value, int axis, const WeightedWindows&);
// Windows of an adaptive average pool, and the neighbours that an interpolation reads. scale: elements of the source
// for one of the result.
WeightedWindows adaptive_windows(std::int64_t from, std::int64_t to);
WeightedWindows nearest_windows(std::int64_t from, std::int64_t to, double scale);
WeightedWindows linear_windows(std::int64_t from, std::int64_t to, double scale, bool align_corners);
// x W: of a parameter with the inputs first. In layers.cpp.
Values times_parameter(Context&, const Call&, const Value& x, const Value& weight);
// Stochastic depth: x times a row mask. In random.cpp, with the question whether the result of a division is only read
// by such a product; then it may leave its factor to that.
Value with_dropped_rows(Context&, const Call&, Value x, const Value& mask);
bool only_masks_rows(const Context&, const Call&);
// Products, softmax and dropout of values. In products.cpp.
Value matrix_product(Context&, const Call&, Value, Value);
Value softmax_over(Context&, const Call&, Value, int axis);

// The class token in front of the positions, without positions that are added. In joins.cpp.
Value with_token(Context&, const Call&, const Value& class_token);

// The kinds of operations, by their name in ATen without overload: "relu", "conv2d".
using Operation = Values (*)(Context&, const Call&);
using Operations = std::map<std::string, Operation>;
void add_layers(Operations&);
void add_norms(Operations&);
void add_pools(Operations&);
void add_pointwise(Operations&);
void add_shapes(Operations&);
void add_attention(Operations&);
void add_products(Operations&);
void add_recurrent(Operations&);
void add_sums(Operations&);
void add_joins(Operations&);
void add_random(Operations&);
void add_einsum(Operations&);

// The nodes of a program without those whose results nothing reads. Several that compute a known function together,
// such as an RMS norm, have become one. In patterns.cpp.
std::vector<ExportedNode> simplified_nodes(const ExportedProgram&);
// "relu" of aten.relu_.default. in_place: the result is written over the first argument.
std::string kind_of(const std::string& target, bool* in_place = nullptr);
// Names of tensors that are computed while a network is translated, such as buffers. In fold.cpp.
std::set<std::string> constant_names(const ExportedProgram&);

// A value of the graph with these axes.
inline Value graph_value(int graph, Axes axes) {
  Value out;
  out.kind = Value::Kind::graph;
  out.graph = graph;
  out.axes = std::move(axes);
  return out;
}

}  // namespace millrace::pt2
