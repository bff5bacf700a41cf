#pragma once
#include <string>

#include "millrace/data/index/shards.hpp"

namespace millrace {

// What is there of the copies of a set on this node, by their records: "copies in /local/millrace-cache: 3 of 4
// files, 1.5 GiB of 2 GiB (checksums are compared by the run that takes them); train-3.h5: the source has changed
// since".
std::string describe_copies(const ShardIndex&, const std::string& where);

}  // namespace millrace
