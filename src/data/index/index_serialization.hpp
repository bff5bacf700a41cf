// A ShardIndex as bytes, for the broadcast from rank 0 and the manifest cache: all but its plain shards, which are
// ShardList::plain_bytes. Private to the data room.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/index/shards.hpp"

namespace millrace {

// tables: gets the addresses of chunks, most of what an index of chunked files is; null: they are in the text.
std::string serialize_index(const ShardIndex&, std::string* tables = nullptr);
// The index keeps `plain`, and `tables` where the text has none, which begin at multiples of 8 bytes.
ShardIndex deserialize_index(const std::string&, std::shared_ptr<const char> plain, std::size_t plain_bytes,
                             std::shared_ptr<const char> tables = nullptr);
Shape shape_of(const std::vector<std::int64_t>& extents, std::size_t from);  // the extents from `from` on

}  // namespace millrace
