#pragma once
#include <string>

#include "millrace/data/index/shards.hpp"

namespace millrace {

// Describes the copies of a data set in this node's local cache, judged by their records: "copies in
// /local/millrace-cache: 3 of 4 files, 1.5 GiB of 2 GiB (a run compares the checksums before it uses them); the copy of
// train-3.h5 will be made again: the source has changed since". where: the folder of data.cache. Error(config): copies
// in memory.
std::string describe_copies(const ShardIndex&, const std::string& where);

}  // namespace millrace
