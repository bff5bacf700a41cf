// Reads what the headers of a data set's files say, on rank 0, and gives every rank the same ShardIndex.
#pragma once
#include <cstdint>

#include "millrace/comm/world.hpp"
#include "millrace/data/index/shards.hpp"

namespace millrace {

// Collective. Error(data) on every rank, with file and reason: nothing matches, missing data set, unequal shapes or
// dtypes between files, unequal rows of x and y, truncated file, samples of int64,
// several integers a row of y, refused layout.
ShardIndex index_shards(World&, const DataOptions&);
// Per-channel mean and standard deviation of (a sample of) the data where the files hold none. Collective;
// deterministic. What FaultOptions skip is not measured, nor more than 4 GiB beyond 100 rows. Error(data) where values
// are not finite, as transformed.
void measure_statistics(World&, ShardIndex&, std::int64_t max_rows = 10000, const FaultOptions& = {});

}  // namespace millrace
