// Where the samples of a SampleView lie in their array. Private to the data room.
#pragma once
#include <cstdint>

#include "millrace/data/decode/hyperslab.hpp"
#include "millrace/data/index/shards.hpp"

namespace millrace {

// Of sample `id`, one of `shard`. patch: of what lies within the scene.
Hyperslab patch_hyperslab(const ShardIndex&, const Shard&, std::int64_t id);
Hyperslab row_hyperslab(const Shard&, std::int64_t row);                       // pair: a sample, or its target
Hyperslab window_hyperslab(const ShardIndex&, const Shard&, std::int64_t id);  // tokens: with the one behind the window

}  // namespace millrace
