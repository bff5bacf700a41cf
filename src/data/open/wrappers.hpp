// The sources that make_source() wraps around engines. Internal to data/open.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/open/open_source.hpp"

namespace millrace {

// parts: one source for each data set of x, made for component_index(index, 0), (index, 1), ... (concatenated.hpp), or
// for each of index.inputs as such a component.
std::unique_ptr<Source> make_concatenated_source(const ShardIndex&, std::vector<std::unique_ptr<Source>> parts);
// Adds retries, skips, and the monitor of slow reads to an engine.
std::unique_ptr<Source> make_retrying_source(std::unique_ptr<Source>, const ShardIndex&, const FaultOptions&);

}  // namespace millrace
