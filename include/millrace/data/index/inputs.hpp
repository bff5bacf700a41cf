// Several inputs of a network: data sets of the same rows whose shapes and types may differ.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "millrace/data/index/shards.hpp"

namespace millrace {

// The names in data.x. Error(config) for an empty one.
std::vector<std::string> input_names(const std::string& list);

// One index for several inputs of the same files, of which only the first has y. Error(data), naming both, if their
// rows differ or a data set cannot be one of several.
ShardIndex combine_inputs(std::vector<ShardIndex> inputs);

// Where input `number` begins in a sample, in bytes: a multiple of 16.
std::size_t input_begin(const ShardIndex&, std::size_t number);

}  // namespace millrace
