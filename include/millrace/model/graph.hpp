// Graph: a network as plain data: op Specs over numbered values, its parameters and its running statistics. Built for
// one number of rows, one precision and one mode; printable and testable without any device. Nodes stand in an order in
// which they can run.
#pragma once
#include <string>
#include <vector>

#include "millrace/ops/backend.hpp"

namespace millrace {

struct Value {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  bool needs_grad = false;  // a parameter stands above it
};

struct Parameter {
  // PyTorch's defaults. scaled_uniform: U(-1/sqrt(fan_in), 1/sqrt(fan_in)), which is kaiming_uniform with a = sqrt(5),
  // for the weights and the biases of convolutions and linear layers; norms start with gamma = 1 and beta = 0.
  enum class Init { zero, one, scaled_uniform };
  std::string name;
  Shape shape;
  Init init = Init::zero;
  std::int64_t fan_in = 1;
  bool matrix =
      false;  // conv and linear weights: used in the compute precision and decayed; the others stay float32 and are not
};

// Running mean and variance of one norm: 2 * channels values.
struct RunningStats {
  std::string name;
  std::int64_t channels = 0;
};

struct Node {
  std::string name;
  Spec spec;
  std::vector<int> src;     // values
  int dst = -1;             // value; -1: a loss
  std::vector<int> weight;  // parameters
  int stats = -1;           // running statistics
  // Fusion level 2, else -1: values (2, channels) of a batch norm that it shares with the convolutions around it, each
  // noted at both (OpArgs says what they are), and at the convolution behind it the norm's node.
  int sums = -1, moments = -1, diff_sums = -1, norm = -1;
  // So for two linear layers: the value (features) that the one behind makes as src_diff_bias and the one before takes
  // as diff_bias, and at the one behind the other's node.
  int diff_bias = -1, src_diff_bias = -1, previous_linear = -1;
};

struct Graph {
  static constexpr int x = 0, y = 1, ids = 2;  // the batch: raw samples, labels or targets, sample ids
  std::vector<Value> values;
  std::vector<Parameter> parameters;
  std::vector<RunningStats> stats;
  std::vector<Node> nodes;
  Mode mode = Mode::train;
  DType dtype = DType::f32;
  std::int64_t rows = 0;

  std::int64_t parameter_count() const;
  double forward_flops() const;
  int producer(int value) const;         // a node, or -1
  int single_consumer(int value) const;  // the one node that reads a value, once; -1 where there are none or more
};

// Adds nodes; every function returns the number of the value that it makes.
class GraphBuilder {
 public:
  struct Batch {  // of the data set, rows included
    Shape x;
    DType x_dtype;
    Shape y;  // (rows) labels or (rows, features) targets
    bool labels;
  };
  GraphBuilder(const Batch&, DType compute, Mode);
  const Shape& shape(int value) const { return graph_.values[std::size_t(value)].shape; }
  int input(InputSpec);
  // Of the batch itself, which holds tokens: none of `vocabulary` or more. Starts as U(-1, 1).
  int embedding(const std::string& name, std::int64_t vocabulary, std::int64_t width);
  int conv(const std::string& name, int src, std::int64_t out_channels, const Window&, bool bias,
           std::int64_t groups = 1);
  int batch_norm(const std::string& name, int src);
  int linear(const std::string& name, int src, std::int64_t out_features, bool bias = true);
  int activation(const std::string& name, int src, Activation);
  int pool(const std::string& name, int src, PoolSpec::Kind, const Window&);
  int add(const std::string& name, int a, int b);
  int dropout(const std::string& name, int src, float probability, std::uint64_t seed);
  void cross_entropy(int logits, float label_smoothing);
  void mse(int prediction);
  Graph finish() { return std::move(graph_); }

 private:
  int node(const std::string& name, Spec spec, std::vector<int> src, const Shape& dst, std::vector<int> weight = {},
           int stats = -1);
  int parameter(const std::string& name, const Shape&, Parameter::Init, std::int64_t fan_in, bool matrix);
  Graph graph_;
  std::uint32_t dropouts_ = 0;
};

// Graph -> graph, level 1: batch norm + (add) + relu into one node, linear + activation into one. 0 changes nothing.
Graph fuse(Graph, int level);
// Level 1 too: images that one convolution alone reads get as many channels of zeros as the backend wants for it.
Graph pad_channels(Graph, Backend&);
// Level 2, after level 1, where the backend agrees: the convolution before a batch norm makes its sums, the one behind
// norm + relu makes the sums of its backward. `kept`: a line for each that the backend would not.
Graph fuse_norms(Graph, Backend&, std::vector<std::string>& unfused);
// Level 2 too: where a linear layer alone reads another one's activation, its backward makes the gradient before that
// activation, and the other's gradient of the bias.
Graph fuse_linears(Graph, Backend&, std::vector<std::string>& unfused);

}  // namespace millrace
