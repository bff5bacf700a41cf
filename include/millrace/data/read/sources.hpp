// The kinds of source, one maker each. Private to the data room.
#pragma once
#include <memory>
#include <string>

#include "millrace/comm/world.hpp"
#include "millrace/data/read/async_reads.hpp"
#include "millrace/data/read/source.hpp"

namespace millrace {

// why: goes to the end of describe(), " (auto: ...)" or empty.
std::unique_ptr<Source> make_direct_source(const ShardIndex&, const std::string& why, const ChunkOptions& = {});
std::unique_ptr<Source> make_mmap_source(const ShardIndex&, const std::string& why);
std::unique_ptr<Source> make_uring_source(const ShardIndex&, const std::string& why, const MakeAsyncReads&);
std::unique_ptr<Source> make_encoded_source(const ShardIndex&);
// Error(config) for an engine that cannot, Error(data) for files that none can.
std::unique_ptr<Source> make_view_source(const ShardIndex&, Reader, const ChunkOptions&);
// Through MPI-IO, or automatic: with the serial driver.
std::unique_ptr<Source> make_hdf5_source(World&, const ShardIndex&, Reader, const std::string& why);

const char* name_of(Reader);  // as in data.reader

std::size_t shard_of(const ShardIndex&, std::int64_t id);
// Raises the limit of open files where it may; returns how many of them, at most `wanted`, a source may hold: half of
// what the process may, since there is a set to train on and one to evaluate on.
std::size_t raise_open_file_limit(std::size_t wanted);
// Bytes of one row of y: in the file, and as the step takes it.
std::size_t y_stored_bytes(const ShardIndex&);
std::size_t y_batch_bytes(const ShardIndex&);
// Stored labels or targets -> int32 or float32. May swap y_stored in place. Error(data) names the shard.
void convert_targets(const ShardIndex&, const Shard&, std::int64_t values, void* y_stored, void* y);

}  // namespace millrace
