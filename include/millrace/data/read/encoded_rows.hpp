// Samples that are JPEG or PNG images: finds where their bytes lie in an HDF5 file, and reads them without the HDF5
// library. Internal to data/ and bench/.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/index/shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {

inline std::string offsets_name(const std::string& x) { return x + "_offsets"; }

// Null: the data set x holds values. Two forms hold encoded images:
// - x of uint8 [bytes], contiguous, with int64 [N + 1] in <x>_offsets: sample i is bytes [offsets[i], offsets[i + 1]).
// - x [N] of variable-length uint8.
// Error(data) names the file.
std::shared_ptr<const EncodedRows> find_encoded(const io::File&, const std::string& x, const Shard& with_path_and_size);

// Describes x as it is after decoding: uint8 [images, height, width, 3]. Where no configuration key sets the size, it
// is that of the first image of the first shard.
io::DatasetInfo as_decoded(const ShardIndex& of_shards_before, const Shard&, const DataOptions&);

// Where sample `id` lies in the open file fd. Error(data) names the file and the image.
EncodedRow encoded_row(int fd, const Shard&, std::int64_t id);
// Reads the encoded image of sample `id` into `out`. Error(data) names the file and the sample.
void read_encoded(int fd, const Shard&, std::int64_t id, std::string& out);
std::string place_of(const Shard&, std::int64_t id);  // "image 3 of train.h5 (sample 17)"

}  // namespace millrace
