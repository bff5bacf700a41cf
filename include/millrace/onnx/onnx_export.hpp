// The network of a graph as an ONNX model for inference.
//
// The model takes the stored values of samples, before data.scale and normalisation, and computes what the network
// gives in Mode::infer. Samples and label maps have their channels first, as in PyTorch: (N, C, H, W). Tokens are
// int64, (N, T). Norms use the running statistics. All arithmetic is float32, whatever the precision of the training.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "millrace/model/graph.hpp"
#include "millrace/onnx/onnx_model.hpp"

namespace millrace {

struct OnnxOutput {
  int value = -1;    // of the graph
  std::string name;  // in the model
  // What is done with the result r of channel c: f(r * factor[c] + shift[c]) * gain + lift, with f = expm1 or the
  // identity. Element i of a row has the channel i % factor.size(). factor and shift are empty for 1 and 0.
  std::vector<float> factor = {}, shift = {};
  bool expm1 = false;
  float gain = 1, lift = 0;
  Shape row = {};  // of a sample, in place of that of the value; (): the same
};

// Where the weights come from, in the order of the graph.
struct OnnxWeights {
  std::function<void(int number, std::span<float> out)> parameter;
  std::function<void(int number, std::span<float> out)> statistics;  // mean, then variance
};

struct OnnxNetwork {
  const Graph& graph;  // Mode::infer, before any rewrite
  std::vector<OnnxOutput> outputs;
  // Whether the samples have their channels first. false: as they are stored, with the channels last.
  bool channels_first = true;
};

// Without metadata. Error(config): operations that have no ONNX form, with their layers; or weights of more bytes than
// an ONNX file can hold.
OnnxModel make_onnx_model(const OnnxNetwork&, const OnnxWeights&);

}  // namespace millrace
