// A ShardIndex as bytes, for the broadcast from rank 0. Private to the data room.
#pragma once
#include <string>
#include <vector>

#include "millrace/data/shards.hpp"

namespace millrace {

std::string to_text(const ShardIndex&);
ShardIndex from_text(const std::string&);
Shape shape_of(const std::vector<std::int64_t>& extents, std::size_t from);  // the extents from `from` on

}  // namespace millrace
