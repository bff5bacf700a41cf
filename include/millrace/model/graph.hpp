// Graph: a network as plain data: operation Specs over numbered values, the parameters and the running statistics. A
// graph is built for one number of rows, one precision and one mode. It needs no device, so it can be printed and
// tested anywhere. The nodes are in an order in which they can run.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "millrace/model/recompute_level.hpp"
#include "millrace/ops/backend.hpp"

namespace millrace {

struct Value {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  bool needs_grad = false;  // it depends on a parameter
};

// Where the values of a parameter are in an exported network of PyTorch. Element (i0, i1, ...) of the tensor, in
// PyTorch's order, is element i0 * strides[0] + i1 * strides[1] + ... of the parameter. The extents may combine axes of
// the tensor, and may have fewer rows than the tensor.
struct ArchivePlace {
  int tensor = -1;  // index into pt2::ExportedProgram::tensors; -1: the network does not come from an archive
  Shape extents;
  std::array<std::int64_t, Shape::max_rank> strides{};
  std::vector<std::int64_t> sizes;  // of the tensor in PyTorch
  bool operator==(const ArchivePlace&) const = default;
};

struct Parameter {
  // PyTorch's defaults. scaled_uniform: U(-1/sqrt(fan_in), 1/sqrt(fan_in)), which is kaiming_uniform with a = sqrt(5).
  // It initialises the weights and biases of convolutions and linear layers. Norms start with gamma = 1 and beta = 0.
  // normal: N(0, init_value^2). constant: init_value.
  enum class Init { zero, one, scaled_uniform, normal, constant };
  std::string name;
  Shape shape;
  Init init = Init::zero;
  std::int64_t fan_in = 1;
  // Weights of convolutions, linear layers and embeddings: used in the compute precision, with weight decay. All other
  // parameters stay float32 and have no weight decay.
  bool matrix = false;
  std::string older_name = {};  // in checkpoints of format 2 and older; empty: the same name
  double init_value = 1;
  ArchivePlace archive = {};
};

// The running mean and variance of one norm: 2 * channels values.
struct RunningStats {
  std::string name;
  std::int64_t channels = 0;
  std::string older_name = {};                   // as of Parameter
  int archive_mean = -1, archive_variance = -1;  // as ArchivePlace::tensor
  float momentum = 0;                            // 0: OptimizerSpec::stats_momentum
};

struct Node {
  std::string name;
  Spec spec;
  // Indices into the lists of the graph.
  std::vector<int> src;     // values
  int dst = -1;             // value; -1: the node is a loss
  std::vector<int> weight;  // parameters
  int stats = -1;           // running statistics; -1: none
  int residual_stats = -1;  // of the norm of the residual (BatchNormSpec::residual_norm)
  // Fusion level 2; -1: not fused. Values that a batch norm shares with the convolution before it (sums) and after it
  // (moments, diff_sums): see OpArgs. norm: for the convolution after a norm, that norm's node. residual_sums: of the
  // norm of the residual, whose convolution has them as `sums`.
  int sums = -1, residual_sums = -1, moments = -1, diff_sums = -1, norm = -1;
  // Fusion level 3. affine: scale and bias of a norm, which then does not write its dst; the convolution after it reads
  // its source instead. diff_affine: what the convolution before a norm computes the norm's gradient from.
  int affine = -1, diff_affine = -1;
  // The same for two adjacent linear layers. The second layer writes the bias gradient of the first one, of shape
  // (features): it is src_diff_bias of the second and diff_bias of the first. previous_linear: for the second layer,
  // the node of the first.
  int diff_bias = -1, src_diff_bias = -1, previous_linear = -1;
};

struct Graph {
  static constexpr int x = 0, y = 1, ids = 2;  // values of the batch: raw samples, labels or targets, sample ids
  std::vector<Value> values;
  std::vector<Parameter> parameters;
  std::vector<RunningStats> stats;
  std::vector<Node> nodes;
  Mode mode = Mode::train;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  Recompute recompute = Recompute::off;
  std::int64_t logits_memory = 0;  // most bytes of logits that should exist at once; 0: no limit
  std::vector<int> outputs;        // values that are read after the forward pass: see keep_outputs()

  DType dtype_of(const Parameter& p) const { return p.matrix ? dtype : DType::f32; }  // as operations read it
  std::int64_t parameter_count() const;
  double forward_flops() const;
  int producer(int value) const;  // the node that writes the value; -1: none
  // The node that reads the value, if it is read exactly once; else -1. Outputs are read once more.
  int single_consumer(int value) const;
  std::vector<int> losses() const;  // the nodes that are losses, by LossTerm::number
};

// Adds nodes to a graph. Each function returns the index of the value that its node produces. Error(config) if shapes
// do not fit.
class GraphBuilder {
 public:
  struct Batch {  // shapes include the rows
    Shape x;
    DType x_dtype;
    Shape y;  // labels (rows, positions...) or targets (rows, features)
    bool labels;
  };
  GraphBuilder(const Batch&, DType compute, Mode);
  const Shape& shape(int value) const { return graph_.values[std::size_t(value)].shape; }
  bool depends_on(int value, int other) const;  // on the elements of the other one
  bool holds_documents(int value) const;        // it is a result of documents()
  int input(InputSpec);
  // The same for one of several inputs: the bytes from `begin` on of each sample, which hold values of this type and
  // shape (with the rows).
  int input(InputSpec, const std::string& name, std::int64_t begin, const Shape&, DType);
  // The labels of the batch: at each position of the samples, moved as `input` moves these, if it does. The loss
  // compares with them from then on.
  int move_labels(InputSpec input);
  int labels() const { return labels_; }
  // Mixes the rows of `src` with each other; the loss then mixes their labels. Only in Mode::train; otherwise `src`.
  int mix(int src, const MixOptions&);
  // Looks up the samples of the batch, which are tokens below `vocabulary`, or a result of token_counts(). The table is
  // initialised by U(-1, 1). padding: as EmbeddingSpec::padding.
  int embedding(const std::string& name, std::int64_t vocabulary, std::int64_t width, std::int64_t padding = -1,
                int tokens = Graph::x);
  int conv(const std::string& name, int src, std::int64_t out_channels, const Window&, bool bias,
           std::int64_t groups = 1);
  // output_pad: below the stride.
  int transposed_conv(const std::string& name, int src, std::int64_t out_channels, const Window&,
                      std::int64_t output_pad, bool bias, std::int64_t groups = 1);
  int batch_norm(const std::string& name, int src, float epsilon = 1e-5f);
  // affine: with a learned factor and a bias for each channel.
  int group_norm(const std::string& name, int src, std::int64_t groups, float epsilon, bool affine = true);
  // Layer norm, or RMS norm without bias, over the last axis. Without a weight it has no bias.
  int layer_norm(const std::string& name, int src, LayerNormSpec::Kind, bool bias, float epsilon, bool weight = true);
  // flatten: all values of a row are one vector. Otherwise each position of a row, (C), is one, and the result has the
  // shape (N, ..., out_features).
  int linear(const std::string& name, int src, std::int64_t out_features, bool bias = true, bool flatten = true);
  int activation(const std::string& name, int src, Activation);
  int pool(const std::string& name, int src, PoolSpec::Kind, const Window&, bool ceil_mode = false);
  int add(const std::string& name, int a, int b);
  // Adds a learned vector at each position. class_token: and puts a learned vector before them, as position 0.
  int position_embedding(const std::string& name, int src, bool class_token = false);
  // Where the documents in the samples begin, which are tokens; `separator` is the last token of a document.
  int documents(const std::string& name, std::int64_t separator);
  // DocumentsSpec::Kind::counts and last, of the samples.
  int token_counts(const std::string& name, std::int64_t separator, std::int64_t first);
  int last_token(const std::string& name, std::int64_t separator);
  struct AttentionOptions {
    std::int64_t heads = 1, key_heads = 1;
    bool causal = false;
    float dropout = 0;
    std::uint64_t seed = 0;  // of the dropout
    int documents = -1;      // the value that documents() has returned; -1: a row is one document
  };
  // src: (N, S..., (heads + 2 * key_heads) * head size)
  int attention(const std::string& name, int src, const AttentionOptions&);
  // Rotates the queries and keys of such a source; it must have one axis of positions. key_heads = 0: all heads.
  int rotary(const std::string& name, int src, std::int64_t heads, std::int64_t key_heads, float theta);
  struct RecurrentOptions {
    RecurrentSpec::Kind kind = RecurrentSpec::Kind::lstm;
    std::int64_t units = 0, layers = 1;
    bool bias = true, bidirectional = false;
    bool cell_state = false;  // RecurrentSpec::cell_state
    bool sequence = true;     // false: only `each` is read, and the result may be that of one direction
    float dropout = 0;        // between the layers
    std::uint64_t seed = 0;
  };
  // src: (N, S, features). Weights are called as in PyTorch: NAME.weight_ih_l0, NAME.bias_hh_l1_reverse. each: gets the
  // results of all layers, forwards and then backwards: (N, S, units), or (N, S + 1, units) with cell_state.
  int recurrent(const std::string& name, int src, const RecurrentOptions&, std::vector<int>* each = nullptr);
  int gated(const std::string& name, int src, Activation);
  int scale(const std::string& name, int src, double initial);
  int prelu(const std::string& name, int src, std::int64_t slopes, double initial = 0.25);  // 1, or one a channel
  int leaky_relu(const std::string& name, int src, float slope);
  int scale_by(const std::string& name, int src, int factors);  // (N, C) for a source (N, ..., C)
  int reshape(const std::string& name, int src, const Shape& to);
  int concat(const std::string& name, int a, int b, int axis);
  int slice(const std::string& name, int src, int axis, std::int64_t begin, std::int64_t count);
  int upsample(const std::string& name, int src, UpsampleSpec::Kind, std::int64_t factor);
  int dropout(const std::string& name, int src, float probability, std::uint64_t seed, bool whole_rows = false,
              bool whole_channels = false);
  // Blocks of `size` elements in another order: see GatherSpec.
  int gather(const std::string& name, int src, const Shape& to, std::int64_t size, Table<std::int32_t> index);
  int affine(const std::string& name, int src, Table<float> scale, Table<float> offset, std::int64_t inner = 1);
  int power(const std::string& name, int src, float exponent);
  int indexed_bias(const std::string& name, int src, std::int64_t entries, Table<std::int32_t> index);
  int softmax(const std::string& name, int src);
  struct MatmulOptions {
    std::int64_t batch = 1, m = 1, n = 1, k = 1;
    bool transpose_a = false, transpose_b = false;
  };
  // to: the extents of the result, (rows, ...) of batch * m * n values.
  int matmul(const std::string& name, int a, int b, const Shape& to, const MatmulOptions&);
  // The features [begin, begin + count) of targets (N, features), of which each is a float32 or an int32 label.
  int target_part(const std::string& name, std::int64_t begin, std::int64_t count, DType);
  // The losses, which finish() puts behind all other nodes; their src, dtype, mode, targets and number are set here.
  // target: of target_part(); -1: the labels or targets of the batch.
  void loss(CrossEntropySpec, int logits, const std::string& name = "loss", int target = -1);
  void loss(PointwiseLossSpec, int prediction, const std::string& name = "loss", int target = -1);
  // The weights of layer `name` are drawn from N(0, deviation^2), and its bias is zero. false: it has no weights.
  bool set_normal_init(const std::string& name, double deviation);
  // Layer `name` uses the weights of layer `other` (in the graph) in place of its own. false: their shapes differ, or
  // `other` is the layer itself or positions with a class token.
  bool tie_weights(const std::string& name, const std::string& other);
  // For networks of PyTorch. Parameters have numbers in the order in which layers add them.
  int parameter_count() const { return int(graph_.parameters.size()); }
  void place_parameter(int number, const std::string& name, const ArchivePlace&);
  // The layer that has the parameter `own` uses `shared` in its place; `own` disappears. false: their shapes or places
  // differ, or `shared` is that of positions with a class token.
  bool share_parameter(int own, int shared, const ArchivePlace& place_of_own);
  void place_statistics(int mean, int variance, float momentum);  // of the last batch norm: tensors of the archive
  // Notes that the layer `name` was called `older` in old checkpoints.
  void set_older_name(const std::string& name, const std::string& older);
  Graph finish();

 private:
  int node(const std::string& name, Spec spec, std::vector<int> src, const Shape& dst, std::vector<int> weight = {},
           int stats = -1);
  int parameter(const std::string& name, const Shape&, Parameter::Init, std::int64_t fan_in, bool matrix);
  int source_of_loss(const std::string& name, int src);
  int recurrent_node(const std::string& name, int src, const RecurrentOptions&, std::int64_t layer, bool reverse);
  int marks(const std::string& name, const DocumentsSpec&);
  Graph graph_;
  std::vector<Node> losses_;
  std::uint32_t dropouts_ = 0;
  int labels_ = Graph::y;
  std::optional<MixSpec> mix_;
};

// How the backward pass stores the gradient that a node computes for one of its sources. The nodes run backward in
// reverse order; the first one that computes the gradient of a value writes it.
enum class GradientStore {
  none,        // not computed
  write,       // the only or the first contribution
  accumulate,  // the operation adds to the earlier contributions
  add_pass,    // the operation writes to scratch memory, and a separate pass adds that
  shared       // nothing is written, the gradient of the result serves: additions, norms with produces_diff_affine
};
using GradientStores = std::array<GradientStore, OpArgs::max_src>;  // by source
std::vector<GradientStores> gradient_stores(const Graph&);          // by node
int count_stores(const std::vector<GradientStores>&, GradientStore);

// What the network computes in Mode::infer from one sample, one line for each operation: two graphs with the same lines
// are the same function of the same weights. Row counts, precision and what only training uses (dropout,
// augmentation, label smoothing) are left out. For graphs before any rewrite.
std::vector<std::string> describe_function(const Graph&);
// Checkpoints hold these lines. Raise the version when the lines of an unchanged function change.
constexpr int function_text_version = 1;

// The same network for inference, without losses: it ends in the values `outputs`, which stay until the next forward
// pass. Nodes that they do not need are left out. The parameters and running statistics stay, and so does the number of
// each value. For graphs in Mode::infer, before any rewrite.
Graph keep_outputs(Graph, std::vector<int> outputs);

// Inference on a part of the positions of a text at a time. What the layers keep of earlier positions lies in caches,
// which the programs of parts of different lengths share. StepState::position says where a part begins.
//
// Why not; "": it is possible. whole: the graph for all positions in Mode::infer, before any rewrite.
std::string why_not_cached(const Graph& whole);
// part: the graph of the same network for fewer positions. Its parameters become those of `whole`.
Graph with_cache(Graph part, const Graph& whole);

// Graph rewrites, applied in this order.
// At every level: merges the last linear layer and the cross-entropy if their logits exceed logits_memory.
Graph chunk_logits(Graph);
// From level 1: where at most half of the positions of a result are read, such as a class token, the operations before
// the slice compute these alone: those that compute each position from the same position, and the queries of an
// attention if the backend supports it.
Graph drop_unread_positions(Graph, const FusionRules&);
// From level 1: merges batch norm + (add) + relu into one node, and linear + activation into one. Level 0: no change.
Graph fuse(Graph, int level);
// Level 1: merges more into the batch norms that fuse() left, where the backend has kernels for it: the norm of the
// residual, and a max pool behind the ReLU. Parameters and running statistics stay as they are.
Graph merge_norms(Graph, const FusionRules&);
// Level 1: pads images with channels of zeros if a convolution is their only consumer. The backend decides how many.
Graph pad_channels(Graph, FusionRules&);
// Level 1, after all other rewrites: where a value has several readers, the convolutions and linear layers among them
// add to its gradient if the backend supports it. Adds one line to `unfused` for each reason of refusals.
Graph accumulate_gradients(Graph, FusionRules&, std::vector<std::string>& unfused);
// Level 2: the convolution before a batch norm also computes the sums for its forward pass, and the one after norm +
// relu those for its backward pass. Adds a line to `unfused` for each fusion that the backend rejects.
Graph fuse_norms(Graph, FusionRules&, std::vector<std::string>& unfused);
// Level 2: if a linear layer is the only consumer of the activation of another one, its backward pass also computes
// the gradient before that activation and the bias gradient of the other layer. `unfused`: as of fuse_norms().
Graph fuse_linears(Graph, FusionRules&, std::vector<std::string>& unfused);
// Level 3, after fuse_norms(): if a convolution computes the gradient sums of a norm, it also normalises what it reads,
// in forward and for the gradient of its weight; the one before that norm computes its gradient. `unfused`: as above.
Graph normalise_in_convs(Graph, FusionRules&, std::vector<std::string>& unfused);

// All rewrites of a level. rewrite_for(): as compile_graph() applies them. wanted: the level; -1: what pays.
Graph rewrite(Graph, FusionRules&, int level, std::vector<std::string>& unfused);
Graph rewrite_for(FusionRules&, Graph, int wanted, int& level, std::vector<std::string>& notes);

}  // namespace millrace
