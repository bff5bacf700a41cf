// The kinds of source, one maker each. Private to the data room.
#pragma once
#include <memory>

#include "millrace/data/source.hpp"

namespace millrace {

std::unique_ptr<Source> make_direct_source(const ShardIndex&);
std::unique_ptr<Source> make_hdf5_source(World&, const ShardIndex&, bool through_mpi);

std::size_t shard_of(const ShardIndex&, std::int64_t id);
// Raises the limit of open files where it may; returns how many of them, at most `wanted`, a source may hold.
std::size_t allow_open_files(std::size_t wanted);
// Bytes of one row of y: in the file, and as the step takes it.
std::size_t y_stored_bytes(const ShardIndex&);
std::size_t y_step_bytes(const ShardIndex&);
// Stored labels or targets -> int32 or float32. May swap y_stored in place. Error(data) names the shard.
void convert_targets(const ShardIndex&, const Shard&, std::size_t rows, void* y_stored, void* y);

}  // namespace millrace
