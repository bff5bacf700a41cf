// Serializes a ShardIndex, for the broadcast from rank 0 and for the manifest cache. Its plain shards are not included;
// ShardList::plain_bytes serializes them. Private to the data room.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/index/shards.hpp"

namespace millrace {

// tables: if not null, the chunk addresses are appended to it instead of being part of the result. They are most of the
// index of chunked files.
std::string serialize_index(const ShardIndex&, std::string* tables = nullptr);
// The index keeps `plain` and `tables` (which may be null if the text contains the addresses). Both must be aligned to
// 8 bytes.
ShardIndex deserialize_index(const std::string&, std::shared_ptr<const char> plain, std::size_t plain_bytes,
                             std::shared_ptr<const char> tables = nullptr);
Shape shape_of(const std::vector<std::int64_t>& extents, std::size_t from);  // the dimensions from `from` on

}  // namespace millrace
