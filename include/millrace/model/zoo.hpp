// The zoo: models as functions that fill a GraphBuilder. `text.hpp` builds one from lines of text.
#pragma once
#include <string>
#include <vector>

#include "millrace/model/graph.hpp"

namespace millrace {

struct ModelSpec {
  std::string name = "mlp";  // mlp, resnet, layers
  std::int64_t depth = 20, width = 0;
  std::string stem = "auto";
  std::vector<std::int64_t> hidden;
  Activation activation = Activation::relu;
  float dropout = 0, label_smoothing = 0;
  std::vector<std::string> layers;
  bool mean_squared_error = false;
  bool tokens = false;        // samples are tokens, all below `outputs`: the network begins with an embedding
  std::int64_t outputs = 10;  // classes, or features of a target
  InputSpec input;            // its src, dtype and mode are filled in
  std::uint64_t seed = 1;
};

struct ModelBatch {
  std::int64_t rows = 0;
  Shape sample;  // channels last
  DType x_dtype = DType::u8;
  Shape target;  // () for labels
  bool labels = true;
};

// Error(config) naming the key model.* and what is possible.
Graph build_model(const ModelSpec&, const ModelBatch&, DType compute, Mode);

int build_mlp(GraphBuilder&, int src, const ModelSpec&);  // returns the outputs' value
int build_resnet(GraphBuilder&, int src, const ModelSpec&);
// Lines of text, one layer each; see docs/reference/networks.md.
int build_layers(GraphBuilder&, int src, const ModelSpec&);

}  // namespace millrace
