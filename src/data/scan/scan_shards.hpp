// From paths and patterns to a ShardIndex, on one rank. Private to the data room.
#pragma once
#include <string>

#include "millrace/data/index/shards.hpp"

namespace millrace {

// What one file holds, as an index of its own; no shard where it has no rows. before: of the files before it, whose
// first tells the size of encoded images. Error(data) names the file.
ShardIndex scan_file(const std::string& path, const DataOptions&, const ShardIndex& before);

// The shard, of which `one` is what its file says besides, goes behind the others. Error(data) where they disagree.
void append_shard(ShardIndex& out, const ShardIndex& one, Shard);

// All files, in order. Many files: with a line every few seconds, and from the manifest cache what is in it.
ShardIndex scan_shards(const DataOptions&);

}  // namespace millrace
