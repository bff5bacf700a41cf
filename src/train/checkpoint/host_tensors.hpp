// HostTensors: the tensors of a checkpoint in host memory, from which a network is loaded.
#pragma once
#include <vector>

#include "train/checkpoint/checkpoint_tensors.hpp"

namespace millrace {

// The memory of the network itself, where the device shares the host's memory and the buffer is whole; otherwise copies
// of the whole buffers.
class HostTensors {
 public:
  HostTensors(World&, ExecutionContext&, Network&);
  const CheckpointTensors& all() const { return all_; }
  float* data(const NamedTensor& t) const { return host_[std::size_t(t.flat)] + t.begin; }
  bool training() const { return network_.training(); }
  void broadcast();       // from rank 0 to all ranks; collective
  void copy_to_device();  // copies into the network and updates its 16-bit weights

 private:
  World& world_;
  Device& device_;
  Network& network_;
  CheckpointTensors all_;
  std::vector<std::vector<float>> copies_;
  std::vector<float*> host_;
};

}  // namespace millrace
