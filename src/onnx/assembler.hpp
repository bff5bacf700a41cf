// Assembler: the ONNX model while the nodes of a graph are added to it.
//
// ONNX wants the channels of images first, and layer norms and linear layers want them last, where millrace has them.
// So each value is kept in the order in which its operation made it, and is transposed where a reader needs the other
// one. Values without positions, (N, C), have one order only: Order::last.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "millrace/model/graph.hpp"
#include "millrace/onnx/onnx_export.hpp"

namespace millrace {

enum class Order { last, first };  // where the channels are

// How a parameter is written.
struct Arrangement {
  OnnxShape view = {};   // extents in which the parameter is seen; empty: its own
  OnnxShape axes = {};   // of the view, in their new order; empty: as they are
  OnnxShape shape = {};  // of the constant; empty: the permuted view
  OnnxShape parts = {};  // equal parts of the first axis, in their new order; without axes; empty: as they are
  auto operator<=>(const Arrangement&) const = default;
};

class Assembler {
 public:
  Assembler(const OnnxNetwork& network, const OnnxWeights& weights);

  const Graph& graph() const { return network_.graph; }
  const Shape& shape(int value) const { return graph().values[std::size_t(value)].shape; }  // channels last
  bool channels_first() const { return network_.channels_first; }

  // Values of the graph, by their names in the model.
  bool has(int value) const { return values_.contains(value); }
  std::string get(int value, Order);  // transposed if that is necessary
  std::string get(int value) const { return values_.at(value).name; }
  Order order(int value) const { return values_.at(value).order; }
  void set(int value, const std::string& name, Order);

  // Adds a node and returns the name of its result, which is `name` unless that exists.
  std::string add(const std::string& type, const std::string& name, std::vector<std::string> inputs,
                  std::vector<OnnxAttribute> attributes = {});
  // With several results: "" is one that is not wanted.
  void add(const std::string& type, std::vector<std::string> inputs, std::vector<std::string>& results,
           std::vector<OnnxAttribute> attributes);
  std::vector<std::string> split(const std::string& name, const std::string& src, std::int64_t axis,
                                 const OnnxShape& parts);
  // extents: 0 stands for the number of samples.
  std::string reshape(const std::string& name, const std::string& src, OnnxShape extents);
  std::string transpose(const std::string& name, const std::string& src, OnnxShape axes);
  std::string add_input(const std::string& name, OnnxType, OnnxShape shape);
  void add_output(const std::string& name, const std::string& value, OnnxShape shape);

  // Constants. Equal ones exist once.
  std::string constant(const std::vector<float>& values, const OnnxShape& shape);
  std::string constant(float value) { return constant(std::vector<float>{value}, {}); }
  std::string integers(const OnnxShape& values);  // one axis
  std::string integer(std::int64_t value);        // no axis
  std::string flags(const std::string& name, const OnnxShape& shape, const std::string& bytes);
  std::string weight(int parameter, const Arrangement& = {});
  bool is_shared(int parameter) const { return uses_.at(std::size_t(parameter)) > 1; }
  // A vector for the channels of a value with this number of axes.
  std::string channel_weight(int parameter, int rank, Order);
  std::pair<std::string, std::string> statistics(int number);  // mean and variance

  // The node has no ONNX form. All such nodes are named together at the end.
  void refuse(const Node&, const std::string& why);
  OnnxModel finish();

 private:
  std::string unique(const std::string& name);
  const OnnxNetwork& network_;
  const OnnxWeights& weights_;
  OnnxModel model_;
  struct Kept {
    std::string name;
    Order order = Order::last;
    std::string other = {};  // its name in the other order; empty: nobody has read it so
  };
  std::map<int, Kept> values_;
  std::set<std::string> names_;
  std::map<std::pair<OnnxShape, std::string>, std::string> constants_;  // by shape and bytes
  std::map<std::pair<int, Arrangement>, std::string> parameters_;
  std::vector<int> uses_;  // of the parameters
  std::vector<std::string> refused_;
};

// The number of an axis of a value in this order; axis: with the channels last.
int axis_in(Order, int axis, int rank);
// The extents of a value in this order, with 0 for the number of samples.
OnnxShape extents_in(Order, const Shape&);

}  // namespace millrace
