// Makers of the sources, one for each kind, and helpers that they share. Internal to data/ and bench/.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/data/read/async_reads.hpp"
#include "millrace/data/read/source.hpp"

namespace millrace {

struct TargetPart;  // src/data/index/concatenated.hpp

// why: the end of describe(), " (auto: ...)" or empty.
std::unique_ptr<Source> make_direct_source(const ShardIndex&, const std::string& why, const ChunkOptions& = {});
std::unique_ptr<Source> make_mmap_source(const ShardIndex&, const std::string& why);
std::unique_ptr<Source> make_uring_source(const ShardIndex&, const std::string& why, const MakeAsyncReads&);
std::unique_ptr<Source> make_encoded_source(const ShardIndex&);
// Error(config): this engine cannot read views. Error(data): no engine can read these files.
std::unique_ptr<Source> make_view_source(const ShardIndex&, Reader, const ChunkOptions&);
// Reader::mpio and mpio_collective: through MPI-IO, collective. Reader::automatic: with HDF5's serial driver.
std::unique_ptr<Source> make_hdf5_source(World&, const ShardIndex&, Reader, const std::string& why);

const char* name_of(Reader);  // as the key data.reader spells it

std::size_t shard_of(const ShardIndex&, std::int64_t id);
// Replaces `order` by the positions of ids in ascending order of the ids, which is the order of the files.
void sort_by_id(std::span<const std::int64_t> ids, std::vector<std::size_t>& order);
// Raises the process's limit of open files where that is allowed. Returns how many of `wanted` files a source may hold
// open: at most half of the limit, because there is a training set and an evaluation set.
std::size_t raise_open_file_limit(std::size_t wanted);
// Bytes of one row of y: in the file, and in a batch.
std::size_t y_stored_bytes(const ShardIndex&);
std::size_t y_batch_bytes(const ShardIndex&);
// Converts the stored labels of `rows` rows to int32, or stored targets to float32. May swap bytes of y_stored in
// place. Error(data) names the shard.
void convert_targets(const TargetPart&, const Shard&, std::int64_t rows, void* y_stored, void* y);

}  // namespace millrace
