// What every kind of data set needs when its files are listed, by rank 0. Private to the data room.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "millrace/data/index/shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {

// A data set that rows can be read of; Error(data) says what the file holds instead. key: "data.x". unsigned32: also
// one of 32-bit unsigned integers, as i32.
io::DatasetInfo require_readable_dataset(const io::File&, const std::string& name, const char* key,
                                         bool uint32_as_int32 = false);
// Its size, and when it was written. Error(data) where it cannot be seen.
void record_file_status(Shard&);
// Error(data) where contiguous values end past the file's end.
void require_bytes(const Shard&, const char* what, const std::optional<std::uint64_t>& offset, std::uint64_t bytes);
void refuse_int64(const std::string& path, const std::string& name, DType);  // as samples
// The chunks of a data set that is read without HDF5; or why it is not, into shard.hdf5_only.
void list_chunks(Shard&, const io::File&, const io::DatasetInfo&, std::shared_ptr<const io::ChunkedLayout>*);

// Behind a complaint about rows: MATLAB's arrays lie in HDF5 with their extents reversed. "" for other files.
std::string matlab_hint(const io::File&, const std::string& dataset);

// Of a file whose samples are cut out of x (sample_view.hpp): what scan_file() gives. No shard: it has no sample.
ShardIndex scan_view(const std::string& path, const DataOptions&);
// After "the data set has no rows": why that may be, where samples are cut.
std::string no_samples_reason(const DataOptions&);

}  // namespace millrace
