// How PyTorch calls and orders the parameters of a network: the state_dict of the same network in PyTorch.
//
// millrace keeps the channels last, PyTorch first: weights of convolutions are (outputs, inputs, spatial...) there, and
// a linear layer that reads all values of an image reads them as (channels, spatial...). The networks of the zoo have
// the names of torchvision (resnet), timm (vit, convnext), Hugging Face transformers (gpt2, llama) and
// github.com/milesial/Pytorch-UNet (unet); all others have millrace's names.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millrace/model/graph.hpp"

namespace millrace {

struct PyTorchTensor {
  enum class Kind {
    parameter,
    running_mean,      // of a batch norm
    running_variance,  // as PyTorch has it: unbiased
    batch_count        // num_batches_tracked: one int64
  };
  std::string name;
  Kind kind = Kind::parameter;
  int index = 0;                    // of the parameter, or of the running statistics, in the graph
  std::vector<std::int64_t> shape;  // in PyTorch
  // The same elements in PyTorch's order, with more axes where the shape combines several: element (i0, i1, ...) is
  // element begin + i0 * strides[0] + i1 * strides[1] + ... of the parameter.
  Shape extents;
  std::array<std::int64_t, Shape::max_rank> strides{};
  std::int64_t begin = 0;
  // A second name of a tensor that is in the list already: the tied output layer of GPT-2. Files need not have it.
  bool alias = false;
  // A table of positions: a file may have more rows than the network.
  bool first_rows = false;
  std::int64_t count() const { return extents.count(); }
};

// graph: before any rewrite. network: ModelSpec::name. Sorted by name.
std::vector<PyTorchTensor> pytorch_tensors(const Graph& graph, const std::string& network);

// Copies a tensor out of the parameter that holds it, or into it. `tensor` has count() elements.
void gather(const PyTorchTensor&, std::span<const float> parameter, std::span<float> tensor);
void scatter(const PyTorchTensor&, std::span<const float> tensor, std::span<float> parameter);

// The name without the prefixes that wrappers add (DistributedDataParallel, torch.compile) and that differ between a
// model and its head-less form: "module.transformer.wte.weight" and "wte.weight" are equal.
std::string plain_name(const std::string& name, const std::string& network);
// Whether a tensor of a file holds nothing that is learned: masks, frequencies, counts of batches.
bool is_no_weight(const std::string& name);

}  // namespace millrace
