// The networks that come with millrace, as functions that add nodes to a GraphBuilder.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/model/graph.hpp"

namespace millrace {

namespace pt2 {
struct ExportedProgram;
}

// A data set of data.y: what one loss compares with.
struct LossTarget {
  std::string name;
  std::int64_t begin = 0, count = 1;  // of the features of the targets
  std::int64_t classes = 0;           // of int32 labels; 0: float32 targets
};

// One of several inputs of a network, for a line `input NAME`. It lies in the bytes of a sample.
struct NamedInput {
  std::string name;
  std::int64_t begin = 0;  // in bytes, a multiple of 16
  Shape sample;            // without the rows; channels last
  DType type = DType::f32;
  InputSpec spec;  // as ModelSpec::input
};

struct ModelSpec {
  std::string name = "mlp";  // mlp, resnet, gpt2, llama, vit, convnext, unet, cosmoflow, hyperspectral, layers or
                             // pt2
  std::int64_t depth = 20, width = 0;
  std::string stem = "auto";
  std::vector<std::int64_t> hidden;
  Activation activation = Activation::relu;
  float dropout = 0, label_smoothing = 0;
  float attention_dropout = 0;  // gpt2, llama, vit
  std::int64_t separator = -1;  // gpt2, llama: the last token of a document; -1: a row is one document
  std::vector<std::string> layers;
  // gpt2, llama, vit, convnext: a size of the articles, and what differs from it. 0: as that size has it. unet: blocks
  // are the poolings.
  std::string size = "auto";
  std::int64_t blocks = 0, heads = 0, key_heads = 0, feed_forward = 0, patch = 0;
  bool transposed = false;  // unet: upsampling by transposed convolutions, otherwise linear
  double rotary_base = 10000, drop_path = 0;
  std::string drop_path_line(std::int64_t block, std::int64_t count) const;  // "": the block drops nothing
  std::optional<PointwiseLossSpec::Kind> pointwise_loss;                     // otherwise cross-entropy of classes
  float beta = 1;                                                            // smooth_l1
  std::vector<float> class_weights;  // cross-entropy: empty, or one for each class
  float dice = 0;                    // cross-entropy: weight of the Dice loss
  bool tokens = false;               // the samples are tokens below `outputs`, so the network begins with an embedding
  std::int64_t outputs = 10;         // number of classes, or of features of a target
  std::vector<LossTarget> targets;   // for `loss` lines; one: it is all of the labels or targets
  bool own_losses = false;           // the layers have such lines
  MixOptions mix;                    // one label a row only
  InputSpec input;                   // GraphBuilder sets its src, raw, dtype and mode
  std::vector<NamedInput> inputs;    // then the samples are bytes, and `input` is not used
  std::shared_ptr<const pt2::ExportedProgram> exported;  // pt2
  std::uint64_t seed = 1;
};

struct ModelBatch {
  std::int64_t rows = 0;
  Shape sample;  // without the rows; channels last
  DType x_dtype = DType::u8;
  Shape target;  // without the rows; () for one label a row
  bool labels = true;
};

// Error(config) names the wrong key (model.*) and the possible values.
Graph build_model(const ModelSpec&, const ModelBatch&, DType compute, Mode);

// Each builds a network on the value `src` and returns the value of its outputs.
int build_mlp(GraphBuilder&, int src, const ModelSpec&);
int build_resnet(GraphBuilder&, int src, const ModelSpec&);
// From an exported network of PyTorch. Error(config) names what is not supported, with the node and the line in Python.
int build_pt2(GraphBuilder&, int src, const ModelSpec&);
namespace pt2 {
// Error(config) about a node of its graph whose result no other node reads, such as an input that forward() ignores.
[[noreturn]] void refuse_unread(const ExportedProgram&, const Graph&, const Node&);
}  // namespace pt2
// From written_layers(), with the losses of its `loss` lines.
int build_layers(GraphBuilder&, int src, const ModelSpec&);
// Whether a network that is written in lines brings its own losses, or names its inputs.
bool has_loss_lines(const std::vector<std::string>& layers);
bool has_input_lines(const std::vector<std::string>& layers);
// The lines of text of a network that is written in them, one for each layer. See docs/reference/networks.md. input:
// the shape of what the first line reads.
std::vector<std::string> written_layers(const ModelSpec&, const Shape& input);

}  // namespace millrace
