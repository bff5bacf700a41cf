#include "model/volume_networks.hpp"

#include <fmt/format.h>

namespace millrace {
namespace {

// A hidden layer: linear, activation, dropout.
void add_hidden(std::vector<std::string>& lines, std::int64_t width, const char* activation, float dropout) {
  lines.push_back(fmt::format("linear {}", width));
  lines.push_back(activation);
  if (dropout > 0) lines.push_back(fmt::format("dropout {}", dropout));
}

}  // namespace

// CosmoFlow (Mathuriya et al. 2018) in the version of MLPerf HPC from 1.0 on. Its Keras code ends with 1.2 tanh(x),
// which bounds the results; here they are linear. Its leaky ReLU has the slope 0.3, ours 0.01.
std::vector<std::string> cosmoflow_layers(const ModelSpec& spec) {
  std::vector<std::string> lines;
  for (int layer = 0; layer < 5; ++layer) {
    lines.push_back(fmt::format("conv {} 3 pad=same bias=on", (spec.width > 0 ? spec.width : 32) << layer));
    lines.push_back("leaky_relu");
    lines.push_back("maxpool 2");
  }
  for (const std::int64_t width : {128, 64}) add_hidden(lines, width, "leaky_relu", spec.dropout);
  lines.push_back("linear outputs");
  return lines;
}

// HybridSN (Roy et al. 2019): convolutions over height, width and bands, then over height and width. The bands become
// the last axis of a volume with one channel, and later a part of the channels, without a copy.
std::vector<std::string> hyperspectral_layers(const ModelSpec& spec) {
  std::vector<std::string> lines{"channels_to_axis"};
  const auto conv = [&](std::int64_t channels, const char* kernel) {
    lines.push_back(fmt::format("conv {} {} bias=on", channels, kernel));
    lines.push_back("relu");
  };
  conv(8, "3x3x7");
  conv(16, "3x3x5");
  conv(32, "3x3x3");
  lines.push_back("axis_to_channels");
  conv(64, "3x3");
  for (const std::int64_t width : {256, 128}) add_hidden(lines, width, "relu", spec.dropout);
  lines.push_back("linear outputs");
  return lines;
}

}  // namespace millrace
