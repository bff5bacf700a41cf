// Where the samples of a SampleView (patches, pairs, token windows) lie in their array. Internal to data/ and bench/.
#pragma once
#include <cstdint>

#include "millrace/data/decode/hyperslab.hpp"
#include "millrace/data/index/shards.hpp"

namespace millrace {

// patch: the part of sample `id` that lies within the scene; a patch at an edge extends beyond it.
Hyperslab patch_hyperslab(const ShardIndex&, const Shard&, std::int64_t id);
// pair: one row of the array, which is a sample or its target.
Hyperslab row_hyperslab(const Shard&, std::int64_t row);
// tokens: the window of sample `id` and the token after it.
Hyperslab window_hyperslab(const ShardIndex&, const Shard&, std::int64_t id);

}  // namespace millrace
