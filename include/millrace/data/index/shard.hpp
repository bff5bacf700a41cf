// Shard: one file of a data set. It says which samples the file holds and where their bytes lie.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/index/file_path.hpp"
#include "millrace/device/tensor.hpp"
#include "millrace/io/chunks.hpp"

namespace millrace {

// Where the bytes of one JPEG or PNG file lie inside an HDF5 file.
struct EncodedRow {
  std::uint64_t offset = 0;  // byte in the HDF5 file
  std::uint32_t bytes = 0;
  std::uint32_t object =
      0;  // not 0: `offset` is that of a global heap collection, and this is the object's number in it
};

// How to find the encoded images of one file. A reader looks up each image in the file itself (16 bytes read beside
// each image) where the file stores the locations in one contiguous range. Otherwise the index holds a list.
struct EncodedRows {
  enum class Locator {
    list,       // `list` holds the location of each image
    offsets,    // the file holds int64 offsets [rows + 1]; image i is [offset i, offset i + 1)
    references  // the file holds global heap references [rows]
  } locator = Locator::list;
  std::int64_t rows = 0;
  std::uint64_t at = 0;     // byte in the file where the offsets or the references begin
  std::uint64_t base = 0;   // byte in the file from which the offsets count
  std::uint64_t bytes = 0;  // offsets: upper bound of every offset, relative to `base`
  std::string name;         // name of the HDF5 data set, for messages
  std::shared_ptr<const std::vector<EncodedRow>> list = nullptr;
};

// Where one HDF5 data set lies in its file.
struct DatasetLocation {
  std::uint64_t offset = 0;                                   // byte in the file, when the data set is contiguous
  std::shared_ptr<const io::ChunkedLayout> chunks = nullptr;  // null: the data set is contiguous
};

// A labelled pixel of a scene: the centre of a patch.
struct Pixel {
  std::uint32_t row = 0, column = 0;
  std::int32_t label = 0;
};

struct Shard {
  FilePath path;
  std::int64_t first = 0, rows = 0;          // the file holds the samples [first, first + rows) of the data set
  std::uint64_t x_offset = 0, y_offset = 0;  // byte in the file, when the data set is contiguous
  std::uint64_t file_bytes = 0;
  // Chunks of a data set that is read without the HDF5 library. Rank 0 lists them once. Null: contiguous.
  std::shared_ptr<const io::ChunkedLayout> x_chunks = nullptr, y_chunks = nullptr;
  std::shared_ptr<const EncodedRows> x_encoded = nullptr;  // null: the samples are values, not JPEG or PNG files
  std::string hdf5_only_reason = "";                       // why only the HDF5 library can read the file; empty: not so
  std::vector<DatasetLocation> extra_x = {}, extra_y = {};  // concatenated data sets, from the second on
  Shape array = {};                                         // views: extents of the array x that samples are cut from
  std::shared_ptr<const std::vector<Pixel>> pixels = nullptr;  // patches: the centre of each of the `rows` samples
  std::uint32_t mtime_seconds = 0;  // low 32 bits of the file's modification time in seconds; 0: unknown
};

}  // namespace millrace
