// From paths and patterns to a ShardIndex, on rank 0. Private to the data room.
#pragma once
#include "millrace/data/index/shards.hpp"

namespace millrace {

// Scans all files in order. For many files it logs its progress every few seconds and uses the manifest cache.
ShardIndex scan_shards(const DataOptions&);

}  // namespace millrace
