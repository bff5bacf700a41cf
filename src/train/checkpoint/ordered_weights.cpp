#include "train/checkpoint/ordered_weights.hpp"

#include <algorithm>
#include <tuple>

namespace millrace {

std::vector<PyTorchTensor> pytorch_tensors_by_parameter(const Graph& graph, const std::string& network) {
  std::vector<PyTorchTensor> out = pytorch_tensors(graph, network);
  std::ranges::sort(out, {}, [](const PyTorchTensor& t) {
    return std::tuple(t.kind != PyTorchTensor::Kind::parameter, t.index, t.kind, t.alias, t.name);
  });
  return out;
}

std::span<const float> OrderedWeights::of(const PyTorchTensor& t) {
  ordered_.resize(std::size_t(t.count()));
  gather(t, stored(t), ordered_);
  return ordered_;
}

std::span<const float> OrderedWeights::stored(const PyTorchTensor& t) {
  using Kind = PyTorchTensor::Kind;
  const bool statistics = t.kind != Kind::parameter;
  if (t.index != index_ || statistics != statistics_) {
    const std::int64_t count = statistics ? 2 * graph_.stats[std::size_t(t.index)].channels
                                          : graph_.parameters[std::size_t(t.index)].shape.count();
    values_.resize(std::size_t(count));
    if (statistics)
      source_.read_statistics(t.index, values_);
    else
      source_.read_parameter(t.index, values_);
    index_ = t.index;
    statistics_ = statistics;
  }
  const std::span<const float> all = values_;
  if (t.kind == Kind::running_mean) return all.first(all.size() / 2);
  return t.kind == Kind::running_variance ? all.last(all.size() / 2) : all;
}

}  // namespace millrace
