// The networks that come with millrace, as functions that add nodes to a GraphBuilder.
#pragma once
#include <string>
#include <vector>

#include "millrace/model/graph.hpp"

namespace millrace {

struct ModelSpec {
  std::string name = "mlp";  // mlp, resnet or layers
  std::int64_t depth = 20, width = 0;
  std::string stem = "auto";
  std::vector<std::int64_t> hidden;
  Activation activation = Activation::relu;
  float dropout = 0, label_smoothing = 0;
  std::vector<std::string> layers;
  bool mean_squared_error = false;
  bool tokens = false;        // the samples are tokens below `outputs`, so the network begins with an embedding
  std::int64_t outputs = 10;  // number of classes, or of features of a target
  InputSpec input;            // GraphBuilder sets its src, raw, dtype and mode
  std::uint64_t seed = 1;
};

struct ModelBatch {
  std::int64_t rows = 0;
  Shape sample;  // without the rows; channels last
  DType x_dtype = DType::u8;
  Shape target;  // without the rows; () for labels
  bool labels = true;
};

// Error(config) names the wrong key (model.*) and the possible values.
Graph build_model(const ModelSpec&, const ModelBatch&, DType compute, Mode);

// Each builds a network on the value `src` and returns the value of its outputs.
int build_mlp(GraphBuilder&, int src, const ModelSpec&);
int build_resnet(GraphBuilder&, int src, const ModelSpec&);
// From ModelSpec::layers: lines of text, one for each layer. See docs/reference/networks.md.
int build_layers(GraphBuilder&, int src, const ModelSpec&);

}  // namespace millrace
