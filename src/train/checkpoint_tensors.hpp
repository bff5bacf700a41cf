// The tensors of a network by name, over host copies of its flat buffers: what a checkpoint holds. Private to
// checkpoint*.cpp.
#pragma once
#include <string>
#include <vector>

#include "millrace/train/network.hpp"

namespace millrace {

struct NamedTensor {
  std::string name;  // "parameters/conv1.weight"
  Shape shape;
  float* data = nullptr;  // in the snapshot
};

// Host copies of master, moments and running values; on a device that shares host memory, those themselves.
class Snapshot {
 public:
  Snapshot(Compute&, Network&);
  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  void take();  // device -> host
  void put();   // host -> device, and the 16-bit weights anew
  struct Flat {
    float* host = nullptr;
    float* device = nullptr;
    std::int64_t count = 0;
  };
  std::vector<Flat>& flats() { return flats_; }

 private:
  Device& device_;
  Network& network_;
  std::vector<std::vector<float>> copies_;
  std::vector<Flat> flats_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace millrace
