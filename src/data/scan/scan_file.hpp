// Rank 0 reads the headers of one HDF5 file of a data set. Private to the data room.
//
// The helpers are shared by the two kinds of samples, rows (scan_file.cpp) and views (view_index.cpp), and by pack.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "millrace/data/index/shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {

// The index of one file whose samples are rows of x. It has no shard if the file has no rows. `previous`: the index of
// the files before this one; its first file sets the size of encoded images. Error(data) names the file.
ShardIndex scan_file(const std::string& path, const DataOptions&, const ShardIndex& previous);

// The same for a file whose samples are cut out of x (sample_view.hpp). It has no shard if there is no sample.
ShardIndex scan_view(const std::string& path, const DataOptions&);
// Why a view finds no samples. The text continues the message "the data set has no rows"; "" for SampleKind::rows.
std::string no_samples_reason(const DataOptions&);

// Information on an HDF5 data set that holds rows. Error(data) lists what the file holds instead. key: the
// configuration key that names the data set, "data.x". uint32_as_int32: accept 32-bit unsigned integers and read them
// as i32.
io::DatasetInfo require_readable_dataset(const io::File&, const std::string& name, const char* key,
                                         bool uint32_as_int32 = false);
// Sets file_bytes and mtime_seconds of a shard. Error(data) if the file's status cannot be read.
void record_file_status(Shard&);
// Error(data) if contiguous values end behind the end of the file. name: "x" or "y", for the message.
void require_bytes(const Shard&, const char* name, const std::optional<std::uint64_t>& offset, std::uint64_t bytes);
// Error(data) for samples of 64-bit integers.
void refuse_int64(const std::string& path, const std::string& name, DType);
// Lists the chunks of a data set, so that it can be read without the HDF5 library. If that is not possible, sets
// shard.hdf5_only_reason instead. Does nothing for contiguous data sets. Error(data) if the file is truncated.
void list_chunks(Shard&, const io::File&, const io::DatasetInfo&, std::shared_ptr<const io::ChunkedLayout>*);

// A hint for messages about row counts: MATLAB stores the dimensions of an array in reverse order. "" for other files.
std::string matlab_hint(const io::File&, const std::string& dataset);

}  // namespace millrace
