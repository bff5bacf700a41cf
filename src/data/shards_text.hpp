// A ShardIndex as bytes, for the broadcast from rank 0 and the manifest cache: all but its plain shards, which are
// ShardList::plain_bytes. Private to the data room.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/shards.hpp"

namespace millrace {

std::string to_text(const ShardIndex&);
ShardIndex from_text(const std::string&, std::shared_ptr<const char> plain, std::size_t plain_bytes);
Shape shape_of(const std::vector<std::int64_t>& extents, std::size_t from);  // the extents from `from` on

}  // namespace millrace
