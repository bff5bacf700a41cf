// The tensors of a network that a checkpoint contains, and which rank writes which part of them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/train/session/network.hpp"

namespace millrace {

// A buffer of the network that holds tensors one after the other.
struct FlatBuffer {
  float* device = nullptr;
  std::int64_t count = 0;  // elements of all ranks, without padding
  bool sharded = false;    // each rank is responsible for its own shards (BucketSpec)
  std::int64_t whole = 0;  // `device` holds the first `whole` elements, then only this rank's shards behind them
};

struct NamedTensor {
  std::string name;        // "parameters/conv1.weight"
  std::string older_name;  // in formats 1 and 2; empty: the same
  Shape shape;
  int flat = 0;            // index in CheckpointTensors::flats
  std::int64_t begin = 0;  // first element in the flat buffer
  std::int64_t bytes() const { return shape.count() * std::int64_t(sizeof(float)); }
};

// Master weights, moments, averages of the weights, and running statistics.
struct CheckpointTensors {
  std::vector<FlatBuffer> flats;
  std::vector<NamedTensor> tensors;
};
CheckpointTensors checkpoint_tensors(Network&);

// A part of a tensor that one rank writes.
struct Piece {
  int tensor = 0;
  int rank = 0;
  std::int64_t begin = 0, count = 0;  // elements of the tensor
};

// The ranks that write replicated tensors: one per host, at most 64. Collective.
std::vector<int> replica_writers(World&);

// Cuts all tensors into pieces, in the order of tensors and elements; the same on all ranks. Shards are written by the
// ranks that own them. Replicated tensors are cut at multiples of 4 MiB in the file, and each such stripe of the file
// has one writer: parallel file systems lock whole stripes. offsets: of the tensors in the file, in bytes.
std::vector<Piece> plan_pieces(const CheckpointTensors&, const BucketSpec&, const std::vector<std::int64_t>& offsets,
                               const std::vector<int>& writers);

// Where element `begin` of the tensor is on the device; it must belong to this rank.
const float* address_of(const CheckpointTensors&, const BucketSpec&, const NamedTensor&, std::int64_t begin);

}  // namespace millrace
