// What open_source() builds a data source from, besides the engines.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/open/open_source.hpp"

namespace millrace {

// One source for each data set of x, of part_of(index, 0), ... (joined.hpp), which write side by side.
std::unique_ptr<Source> make_concatenated_source(const ShardIndex&, std::vector<std::unique_ptr<Source>> parts);
// Around an engine: tries, skips, and a watch for slow reads.
std::unique_ptr<Source> make_retrying_source(std::unique_ptr<Source>, const ShardIndex&, const FaultOptions&);

}  // namespace millrace
