// Joins the indexes of single files to the index of a data set. Private to the data room.
#pragma once
#include "millrace/data/index/shards.hpp"

namespace millrace {

// Appends a shard to `out`. `metadata`: the index of the shard's file; its list of shards is ignored. Error(data) names
// both files if they differ in sample, types, values or class names.
void append_shard(ShardIndex& out, const ShardIndex& metadata, Shard);

}  // namespace millrace
