// The tensors of a network by name, over host copies of its flat buffers: what a checkpoint holds. Private to
// checkpoint*.cpp.
#pragma once
#include <string>
#include <vector>

#include "millrace/train/session/network.hpp"

namespace millrace {

struct NamedTensor {
  std::string name;  // "parameters/conv1.weight"
  Shape shape;
  float* data = nullptr;  // in the snapshot
};

// Host copies of master, moments and running values; on a device that shares host memory, those themselves. Moments
// that ranks have divided among them are copied whole to every rank.
class Snapshot {
 public:
  Snapshot(World&, ExecutionContext&, Network&);
  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  void take();  // device -> host; collective
  void put();   // host -> device, and the 16-bit weights anew
  struct Flat {
    float* host = nullptr;
    float* device = nullptr;
    std::int64_t count = 0;
    bool copied = false;   // host is a copy
    bool sharded = false;  // the device holds this rank's slices of it
  };
  std::vector<Flat>& flats() { return flats_; }

 private:
  template <class Move>
  void for_own(const Flat&, const Move&) const;
  World& world_;
  Device& device_;
  Network& network_;
  std::vector<std::vector<float>> copies_;
  std::vector<Flat> flats_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace millrace
