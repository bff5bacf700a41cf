// Builds the index of a data set: rank 0 reads the headers of the files, and every rank gets the same ShardIndex.
#pragma once
#include <cstdint>

#include "millrace/comm/world.hpp"
#include "millrace/data/index/shards.hpp"

namespace millrace {

// Collective. Error(data) on every rank, with file and reason: no matching file, a missing HDF5 data set, different
// shapes or types between files, different numbers of rows in x and y, a truncated file, samples of int64, several
// integers in a row of y, or an unsupported layout.
ShardIndex index_shards(World&, const DataOptions&);
// Sets mean and standard deviation of each channel where the files hold none. Collective. Rank 0 measures evenly spread
// rows: at most `max_rows`, at most 2000 encoded images, and at most 4 GiB unless these are fewer than 100 rows. The
// result does not depend on the number of ranks. Samples that FaultOptions skip are not measured. Error(data) if
// transformed values are not finite.
void measure_statistics(World&, ShardIndex&, std::int64_t max_rows = 10000, const FaultOptions& = {});

// Sets ValueConversion::target_mean and target_std, of each value of a row of y, or one for all if they are more than
// max_columns. Rank 0 reads the targets of all selected samples, or, of more than 2^28 values, evenly spread blocks.
// The result does not depend on the number of ranks. A column of equal targets has the std 1. Collective. Error(data):
// a file cannot be read, or a target is not finite.
void measure_target_statistics(World&, ShardIndex&, std::int64_t max_columns);

// How often each class is among the labels of the selected samples: Classes::label_counts. Each rank reads a part of
// the files. Not for tokens. Collective. Error(data): a file cannot be read, or holds a label that is no class.
std::vector<std::int64_t> count_labels(World&, const ShardIndex&);

}  // namespace millrace
