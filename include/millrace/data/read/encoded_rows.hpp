// Samples that are JPEG or PNG files: where their bytes lie in an HDF5 file, and reading them without HDF5. Private to
// the data room.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/index/shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {

inline std::string offsets_name(const std::string& x) { return x + "_offsets"; }

// Null: x holds values. Encoded are x of uint8 [bytes] with int64 [N + 1] in <x>_offsets, sample i being bytes
// [offsets[i], offsets[i + 1]) of x, contiguous; and x [N] of variable-length uint8. Error(data) names the file.
std::shared_ptr<const EncodedRows> find_encoded(const io::File&, const std::string& x, const Shard& with_path_and_size);

// What x is once decoded, uint8 [images, height, width, 3], as if a file held it so. The first image of the first shard
// tells the size where no key does.
io::DatasetInfo as_decoded(const ShardIndex& of_shards_before, const Shard&, const DataOptions&);

// Where sample id lies, in the file open as fd. Error(data) names the file and the image.
EncodedRow encoded_row(int fd, const Shard&, std::int64_t id);
// The file that sample id is. Error(data) names the file and the sample.
void read_encoded(int fd, const Shard&, std::int64_t id, std::string& out);
std::string place_of(const Shard&, std::int64_t id);  // "image 3 of train.h5 (sample 17)"

}  // namespace millrace
