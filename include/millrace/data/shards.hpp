// ShardIndex: everything that a run needs to know about a data set, read once by rank 0 and broadcast. A plain value.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/comm/world.hpp"
#include "millrace/data/faults.hpp"
#include "millrace/data/sample_layout.hpp"
#include "millrace/device/tensor.hpp"
#include "millrace/io/chunks.hpp"

namespace millrace {

// Where the bytes of a sample that is a JPEG or PNG file lie.
struct EncodedRow {
  std::uint64_t offset = 0;  // in the HDF5 file
  std::uint32_t bytes = 0;
  std::uint32_t object = 0;  // not 0: offset is of a global heap collection, in which this is the object's number
};

struct Shard {
  std::string path;
  std::int64_t first = 0, rows = 0;          // global ids [first, first + rows)
  std::uint64_t x_offset = 0, y_offset = 0;  // bytes in the file, when contiguous
  std::uint64_t file_bytes = 0;
  // Where a data set is chunked and read without HDF5: its chunks, listed once, by rank 0; null: contiguous.
  std::shared_ptr<const io::ChunkedLayout> x_chunks = nullptr, y_chunks = nullptr;
  std::shared_ptr<const std::vector<EncodedRow>> x_encoded = nullptr;  // null: x are values
  std::string hdf5_only = "";  // why only the HDF5 library can read it; empty: own reads do
};

// How samples that are images' files become values.
struct Decode {
  std::int64_t resize = 0,
               crop = 0;   // short side, then a square from the middle; 0: as in Fit (src/data/image_views.hpp)
  double zoom = 0;         // > 0: instead a random part of at least this share of the area, anew each epoch
  std::uint64_t seed = 0;  // of the random part
};

struct DataOptions {
  std::vector<std::string> paths;  // files or globs; "synthetic:images:rows=50000,shape=32x32x3,classes=10,seed=1"
  std::string x = "x", y = "y";    // data set names
  using Layout = millrace::Layout;
  Layout layout = Layout::automatic;  // automatic: the file's "layout" attribute, else the shape (sample_layout.hpp)
  double scale = 0;                   // 0: 1/255 for uint8 images, else 1
  Decode decode = {};                 // of encoded images
};

struct ShardIndex {
  std::vector<Shard> shards;
  std::int64_t rows = 0;
  Shape sample;  // logical, channels last: (H, W, C), (F), ...
  DType x_dtype = DType::u8;
  bool x_big_endian = false, y_big_endian = false;
  bool channels_first = false;  // how a sample lies in the file
  std::string layout_told_by;   // "by the shape" and so on
  bool labels = true;           // y are class numbers (integers, one a row); false: float targets
  DType y_dtype = DType::i64;
  Shape target;              // of one row of y: () for labels
  std::int64_t classes = 0;  // 1 + largest label, from the shard's attribute or counted when absent; 0 for targets
  std::vector<std::string> class_names;  // by label, where the files hold them
  std::vector<double> mean, std;         // per channel, in units of value * scale; empty when the files hold none
  double scale = 1;
  Decode decode;  // of encoded images
  bool synthetic = false;
  std::string synthetic_spec;
  std::string x_name, y_name;
  std::uint32_t manifest_crc = 0;  // of paths, sizes and layout: run.json and checkpoints hold it
  // Samples are JPEG or PNG files: sample and x_dtype are what they are decoded to.
  bool encoded() const { return !shards.empty() && shards.front().x_encoded; }
  std::size_t sample_bytes() const { return std::size_t(sample.count()) * size_of(x_dtype); }
};

// "pread of contiguous data", "pread of chunks of 16x5x4 (shuffle, gzip), decoded by the loader's threads", or why only
// the HDF5 library can read a file: in words, of the first file that is not contiguous.
std::string describe_storage(const ShardIndex&);
bool own_reads(const ShardIndex&);  // no file needs the HDF5 library

// Collective. Error(data) on every rank, with file and reason: nothing matches, missing data set, unequal shapes or
// dtypes between files, unequal rows of x and y, truncated file, samples of int64,
// several integers a row of y, refused layout.
ShardIndex index_shards(World&, const DataOptions&);
// Per-channel mean and standard deviation of (a sample of) the data where the files hold none. Collective;
// deterministic. What FaultOptions skip is not measured.
void measure_statistics(World&, ShardIndex&, std::int64_t max_rows = 10000, const FaultOptions& = {});

}  // namespace millrace
