// The layers of GraphBuilder for images and volumes that are no plain convolutions or pools.
#include "millrace/base/error.hpp"
#include "millrace/model/graph.hpp"

namespace millrace {

// The bound of the initial weights is that of PyTorch's ConvTranspose, whose fan-in counts the results of one channel.
int GraphBuilder::transposed_conv(const std::string& name, int src, std::int64_t out_channels, const Window& window,
                                  std::int64_t output_pad, bool bias, std::int64_t groups) {
  const TransposedConvSpec spec{shape(src), out_channels, groups, window, output_pad, bias, graph_.dtype, graph_.mode};
  const Shape dst = spec.dst(), weight = spec.weight();
  std::vector<int> parameters{parameter(name + ".weight", weight, Parameter::Init::scaled_uniform, 1, true)};
  const std::int64_t fan_in = graph_.parameters.back().fan_in = weight.row_count();
  if (bias)
    parameters.push_back(parameter(name + ".bias", {out_channels}, Parameter::Init::scaled_uniform, fan_in, false));
  return node(name, spec, {src}, dst, parameters);
}

int GraphBuilder::group_norm(const std::string& name, int src, std::int64_t groups, float epsilon, bool affine) {
  const GroupNormSpec spec{shape(src), groups, epsilon, graph_.dtype, graph_.mode, affine};
  spec.check();
  if (!affine) return node(name, spec, {src}, spec.dst());
  const Shape channels{spec.channels()};
  const std::vector<int> parameters{parameter(name + ".weight", channels, Parameter::Init::one, channels[0], false),
                                    parameter(name + ".bias", channels, Parameter::Init::zero, channels[0], false)};
  return node(name, spec, {src}, spec.dst(), parameters);
}

int GraphBuilder::scale_by(const std::string& name, int src, int factors) {
  const ScaleBySpec spec{shape(src), graph_.dtype, graph_.mode};
  if (spec.src.rank < 2 || shape(factors).count() != spec.factors().count() || shape(factors)[-1] != spec.src[-1])
    fail(Exit::config,
         "model: layer '{}' multiplies {} by {}. the second must have one value for each channel of the first", name,
         spec.src.str(), shape(factors).str());
  if (src == factors) factors = activation(name + ".copy", factors, Activation::none);  // one gradient for a value
  return node(name, spec, {src, factors}, spec.dst());
}

int GraphBuilder::mix(int src, const MixOptions& options) {
  if (!options.on() || graph_.mode != Mode::train) return src;
  mix_ = MixSpec{shape(src), options, graph_.dtype, graph_.mode};
  mix_->check();
  return node("mix", *mix_, {src, Graph::ids, labels_}, mix_->dst());
}

int GraphBuilder::reshape(const std::string& name, int src, const Shape& to) {
  if (to[0] != shape(src)[0] || to.count() != shape(src).count())
    fail(Exit::config, "model: layer '{}' gives {} the shape {}, which has another number of values", name,
         shape(src).str(), to.str());
  return node(name, ReshapeSpec{shape(src), to, graph_.dtype, graph_.mode}, {src}, to);
}

}  // namespace millrace
