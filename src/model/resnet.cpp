// Residual networks. CIFAR style (He et al. 2015, section 4.2): depth 6n+2, three stages of n basic blocks. ImageNet
// style: the architecture of torchvision (stride in the 3x3 convolution of a bottleneck, projection shortcuts, no
// biases before norms).
#include <fmt/core.h>

#include <array>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/model/zoo.hpp"

namespace millrace {
namespace {

Window square(std::int64_t kernel, std::int64_t stride) {
  Window w;
  w.rank = 2;
  for (int a = 0; a < 2; ++a) {
    w.kernel[std::size_t(a)] = kernel;
    w.stride[std::size_t(a)] = stride;
    w.pad[std::size_t(a)] = (kernel - 1) / 2;
  }
  return w;
}

int conv_norm(GraphBuilder& g, const std::string& conv, const std::string& norm, int src, std::int64_t channels,
              std::int64_t kernel, std::int64_t stride) {
  return g.batch_norm(norm, g.conv(conv, src, channels, square(kernel, stride), false));
}

int shortcut(GraphBuilder& g, const std::string& name, int src, std::int64_t channels, std::int64_t stride) {
  if (stride == 1 && g.shape(src)[-1] == channels) return src;
  return conv_norm(g, name + ".downsample.0", name + ".downsample.1", src, channels, 1, stride);
}

int basic_block(GraphBuilder& g, const std::string& name, int src, std::int64_t width, std::int64_t stride) {
  int at = conv_norm(g, name + ".conv1", name + ".bn1", src, width, 3, stride);
  at = g.activation(name + ".relu1", at, Activation::relu);
  at = conv_norm(g, name + ".conv2", name + ".bn2", at, width, 3, 1);
  at = g.add(name + ".add", at, shortcut(g, name, src, width, stride));
  return g.activation(name + ".relu2", at, Activation::relu);
}

int bottleneck(GraphBuilder& g, const std::string& name, int src, std::int64_t width, std::int64_t stride) {
  int at = conv_norm(g, name + ".conv1", name + ".bn1", src, width, 1, 1);
  at = g.activation(name + ".relu1", at, Activation::relu);
  at = conv_norm(g, name + ".conv2", name + ".bn2", at, width, 3, stride);
  at = g.activation(name + ".relu2", at, Activation::relu);
  at = conv_norm(g, name + ".conv3", name + ".bn3", at, 4 * width, 1, 1);
  at = g.add(name + ".add", at, shortcut(g, name, src, 4 * width, stride));
  return g.activation(name + ".relu3", at, Activation::relu);
}

}  // namespace

int build_resnet(GraphBuilder& g, int src, const ModelSpec& spec) {
  const Shape image = g.shape(src);
  if (image.spatial_rank() != 2) {
    Shape sample;
    for (int axis = 1; axis < image.rank; ++axis) sample.dims[std::size_t(sample.rank++)] = image[axis];
    fail(
        Exit::config,
        "model.name: resnet needs images (height x width x channels), but a sample has the shape {}. use mlp or layers",
        sample.str());
  }
  std::vector<std::int64_t> blocks;
  bool deep = false, imagenet = true;
  switch (spec.depth) {
    case 18:
      blocks = {2, 2, 2, 2};
      break;
    case 34:
      blocks = {3, 4, 6, 3};
      break;
    case 50:
      blocks = {3, 4, 6, 3};
      deep = true;
      break;
    case 101:
      blocks = {3, 4, 23, 3};
      deep = true;
      break;
    default:
      if (spec.depth < 8 || spec.depth % 6 != 2)
        fail(Exit::config,
             "model.depth: {} is not a depth of a resnet. use 6n+2 (8, 20, 32, 44, 56) or one of 18, 34, 50, 101",
             spec.depth);
      blocks.assign(3, (spec.depth - 2) / 6);
      imagenet = false;
  }
  const std::int64_t width = spec.width > 0 ? spec.width : imagenet ? 64 : 16;
  const bool large_stem = spec.stem == "imagenet" || (spec.stem == "auto" && imagenet && image[1] > 64);
  if (!large_stem && spec.stem != "cifar" && spec.stem != "auto" && spec.stem != "pool")
    fail(Exit::config, "model.stem: unknown stem '{}'. use one of auto, cifar, pool, imagenet", spec.stem);

  int at = conv_norm(g, "conv1", "bn1", src, width, large_stem ? 7 : 3, large_stem ? 2 : 1);
  at = g.activation("relu", at, Activation::relu);
  if (spec.stem == "pool") at = g.pool("maxpool", at, PoolSpec::Kind::max, square(2, 2));
  if (large_stem) at = g.pool("maxpool", at, PoolSpec::Kind::max, square(3, 2));
  for (std::size_t stage = 0; stage < blocks.size(); ++stage)
    for (std::int64_t b = 0; b < blocks[stage]; ++b) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, b);
      const std::int64_t channels = width << stage, stride = stage > 0 && b == 0 ? 2 : 1;
      at = deep ? bottleneck(g, name, at, channels, stride) : basic_block(g, name, at, channels, stride);
    }
  at = g.pool("avgpool", at, PoolSpec::Kind::global, Window{});
  if (spec.dropout > 0) at = g.dropout("dropout", at, spec.dropout, spec.seed);
  return g.linear("fc", at, spec.outputs);
}

}  // namespace millrace
