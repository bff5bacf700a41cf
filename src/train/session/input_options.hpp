// data.*, as far as it says what the input pass does to values and places.
#pragma once
#include "millrace/config/run_config.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/ops/input.hpp"

namespace millrace {

// The stored channels that data.channels names; empty: all. Error(config).
std::vector<std::int64_t> used_channels(const ValueOptions&, const ShardIndex&);
// All of the Spec but what the graph fills in. Error(config) names the key.
InputSpec input_spec(const DataConfig&, const ShardIndex&, std::uint64_t seed);
// Are mean and deviation to be measured?
bool needs_statistics(const ValueOptions&, const ShardIndex&);

}  // namespace millrace
