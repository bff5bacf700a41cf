// OrderedWeights: the weights of a file with PyTorch's names and order of axes.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "millrace/weights/pytorch_tensors.hpp"
#include "train/checkpoint/weight_source.hpp"

namespace millrace {

// pytorch_tensors() in an order in which each parameter of a file is read once.
std::vector<PyTorchTensor> pytorch_tensors_by_parameter(const Graph&, const std::string& network);

class OrderedWeights {
 public:
  // Both must outlive this.
  OrderedWeights(WeightSource& source, const Graph& graph) : source_(source), graph_(graph) {}
  // All elements of a tensor, but none of Kind::batch_count. Valid until the next call. Keeps the parameter that was
  // read last. Error(data): the file is damaged.
  std::span<const float> of(const PyTorchTensor&);

 private:
  std::span<const float> stored(const PyTorchTensor&);
  WeightSource& source_;
  const Graph& graph_;
  std::vector<float> values_, ordered_;
  int index_ = -1;
  bool statistics_ = false;
};

}  // namespace millrace
