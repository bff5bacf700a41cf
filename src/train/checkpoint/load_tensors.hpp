// Loads a checkpoint into the networks of all ranks.
#pragma once
#include <filesystem>
#include <string>

#include "train/checkpoint/checkpoint.hpp"

namespace millrace {

// Why a checkpoint cannot be read.
enum class Unreadable { no, damaged, other_model };
struct ReadResult {
  RunState run;
  Unreadable unreadable = Unreadable::no;
  std::string problem;  // an error message with the path
};
// Rank 0 reads the file piece by piece and broadcasts each piece, of which every rank keeps what it needs: no rank
// holds more than one piece besides its own network. If a piece is damaged, part of the network has been overwritten.
// Collective.
ReadResult load_tensors(World&, ExecutionContext&, Network&, const std::filesystem::path&);

// Copies the elements [begin, begin + count) of a flat buffer to the device, as far as this rank stores them.
void store_elements(Device&, const FlatBuffer&, const BucketSpec&, std::int64_t begin, std::int64_t count,
                    const float* values);

}  // namespace millrace
