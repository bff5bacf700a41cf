// Snapshot: the tensors of a network that a checkpoint contains, by name, in host memory. Internal to checkpoint*.cpp.
#pragma once
#include <string>
#include <vector>

#include "millrace/train/session/network.hpp"

namespace millrace {

struct NamedTensor {
  std::string name;  // "parameters/conv1.weight"
  Shape shape;
  float* data = nullptr;  // points into the flat buffers of the snapshot
};

// Contains the master weights, the moments and the running statistics. These are copies, except on a device that shares
// host memory: there the tensors refer to the original buffers. Moments that are sharded over the ranks are gathered on
// every rank.
class Snapshot {
 public:
  Snapshot(World&, ExecutionContext&, Network&);
  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  void take();  // copies from the device to the host. Collective
  void put();   // copies from the host to the device and updates the 16-bit weights
  struct Flat {
    float* host = nullptr;
    float* device = nullptr;
    std::int64_t count = 0;
    bool copied = false;   // `host` is a copy, not the buffer of the device
    bool sharded = false;  // the device holds only this rank's shards
  };
  std::vector<Flat>& flats() { return flats_; }

 private:
  template <class Move>
  void for_each_own(const Flat&, const Move&) const;
  World& world_;
  Device& device_;
  Network& network_;
  std::vector<std::vector<float>> copies_;
  std::vector<Flat> flats_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace millrace
