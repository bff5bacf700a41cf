// WeightSource: the weights of a network in a file, which another program or another run may have written. For rank 0.
#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/model/graph.hpp"

namespace millrace {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // In millrace's order, as float32. Error(data): the file is damaged.
  virtual void read_parameter(int index, std::span<float> out) = 0;
  virtual void read_statistics(int index, std::span<float> out) = 0;  // mean, then variance
  // Whether the file holds the parameter, or the running statistics, of this index in the graph.
  bool has_parameter(int index) const { return parameters_.at(std::size_t(index)); }
  bool has_statistics(int index) const { return statistics_.at(std::size_t(index)); }

 protected:
  std::vector<bool> parameters_, statistics_;
};

// The network that the weights are for. graph: before any rewrite.
struct WeightTarget {
  const Graph& graph;
  std::string network;            // ModelSpec::name
  std::vector<std::string> skip;  // shell patterns of names of layers' parameters that keep their values
};

// A checkpoint of millrace (.h5), a file in the format safetensors, or a folder of Hugging Face with such files and a
// config.json. Error(data): it cannot be read. Error(config): its tensors are not those of the network, apart from
// `skip`; the message names them.
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path&, const WeightTarget&);
// Of a checkpoint, with all of its weights; averages if it has some.
std::unique_ptr<WeightSource> open_checkpoint_weights(const std::filesystem::path&, const WeightTarget&);

}  // namespace millrace
