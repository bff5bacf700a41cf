// ShardIndex: everything that a run needs to know about a data set, read once by rank 0 and broadcast. A plain value.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/transform.hpp"
#include "millrace/data/index/faults.hpp"
#include "millrace/data/index/file_path.hpp"
#include "millrace/data/index/sample_layout.hpp"
#include "millrace/data/index/sample_view.hpp"
#include "millrace/device/tensor.hpp"
#include "millrace/io/chunks.hpp"

namespace millrace {

class LocalCopies;  // src/data/staged_copies.hpp

// Where the bytes of a sample that is a JPEG or PNG file lie.
struct EncodedRow {
  std::uint64_t offset = 0;  // in the HDF5 file
  std::uint32_t bytes = 0;
  std::uint32_t object = 0;  // not 0: offset is of a global heap collection, in which this is the object's number
};

// What tells where the encoded images of a file lie: the file itself, 16 bytes read beside each image, where it keeps
// them in one range of bytes; else a list, 16 bytes an image.
struct EncodedRows {
  enum class Locator { list, offsets, references } locator = Locator::list;
  std::int64_t rows = 0;
  std::uint64_t at = 0;     // byte in the file of int64 offsets [rows + 1], or of heap references [rows]
  std::uint64_t base = 0;   // byte in the file from which they count
  std::uint64_t bytes = 0;  // offsets: the last image ends here at the latest, from base on
  std::string name;         // of the data set, for messages
  std::shared_ptr<const std::vector<EncodedRow>> list = nullptr;
};

// Where one of several joined data sets lies.
struct DatasetLocation {
  std::uint64_t offset = 0;                                   // bytes in the file, when contiguous
  std::shared_ptr<const io::ChunkedLayout> chunks = nullptr;  // null: contiguous
};

// A labelled pixel of a scene.
struct Pixel {
  std::uint32_t row = 0, column = 0;
  std::int32_t label = 0;
};

struct Shard {
  FilePath path;
  std::int64_t first = 0, rows = 0;          // global ids [first, first + rows)
  std::uint64_t x_offset = 0, y_offset = 0;  // bytes in the file, when contiguous
  std::uint64_t file_bytes = 0;
  // Where a data set is chunked and read without HDF5: its chunks, listed once, by rank 0; null: contiguous.
  std::shared_ptr<const io::ChunkedLayout> x_chunks = nullptr, y_chunks = nullptr;
  std::shared_ptr<const EncodedRows> x_encoded = nullptr;  // null: x are values
  std::string hdf5_only_reason = "";                       // why only the HDF5 library can read it; empty: own reads do
  std::vector<DatasetLocation> extra_x = {}, extra_y = {};     // joined data sets, from the second on
  Shape array = {};                                            // of samples that are cut: the extents of x
  std::shared_ptr<const std::vector<Pixel>> pixels = nullptr;  // of patches: what they surround, as rows says how many
  std::uint32_t mtime_seconds = 0;  // when the file was, in seconds, the low 32 bits; 0: not known
};

// Of a shard, what reading one of its samples takes, where they are one range of bytes: a Shard is dear to make.
struct ShardRange {
  std::int64_t first = 0, rows = 0;
  std::uint64_t x_offset = 0;
  std::int64_t end() const { return first + rows; }  // of its samples
};

// The shards of a set, in order; copies share the memory. What is one range of bytes takes 56 bytes and its name, and
// in a list that in_memory_of made lies in memory of somebody's; a shard that is more (chunks, encoded rows) is kept
// whole. Shards are given out by value: their paths are views of this list's memory.
class ShardList {
 public:
  ShardList();
  ShardList(std::initializer_list<Shard>);
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  Shard operator[](std::size_t) const;
  Shard at(std::size_t) const;  // checked
  ShardRange range(std::size_t) const;
  Shard front() const { return at(0); }
  Shard back() const { return at(size() - 1); }
  std::size_t shard_with(std::int64_t id) const;  // which one has this sample; there is one
  void push_back(const Shard&);                   // after the others, also in its samples

  // The shards that are no ranges of bytes, by position; and all others, as bytes that in_memory_of takes, also in
  // another process. Not across machines of another byte order.
  const std::map<std::size_t, Shard>& irregular_shards() const;
  std::string plain_bytes() const;
  static ShardList from_plain_bytes(std::shared_ptr<const char>, std::size_t bytes, std::map<std::size_t, Shard> whole);

  class Iterator {
   public:
    Iterator(const ShardList& list, std::size_t at) : list_(&list), at_(at) {}
    using iterator_category = std::input_iterator_tag;
    using value_type = Shard;
    using difference_type = std::ptrdiff_t;
    using pointer = const Shard*;
    using reference = Shard;
    Shard operator*() const { return (*list_)[at_]; }
    Iterator& operator++() { return ++at_, *this; }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const ShardList* list_;
    std::size_t at_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

 private:
  struct Data;
  std::shared_ptr<const Data> data_;
};

// How samples that are images' files become values.
struct DecodeOptions {
  std::int64_t resize = 0,
               crop = 0;   // short side, then a square from the middle; 0: as in Fit (src/data/image_views.hpp)
  double min_area = 0;     // > 0: instead a random part of at least this share of the area, anew each epoch
  std::uint64_t seed = 0;  // of the random part
};

constexpr double offset_from_files = -std::numeric_limits<double>::infinity();  // stands for that of the files, or 0

struct DataOptions {
  std::vector<std::string> paths;  // files or globs; "synthetic:images:rows=50000,shape=32x32x3,classes=10,seed=1"
  std::string x = "x", y = "y";    // data set names; several, separated by commas, are joined
  using Layout = millrace::Layout;
  Layout layout = Layout::automatic;  // automatic: the file's "layout" attribute, else the shape (sample_layout.hpp)
  double scale = 0;                   // 0: the files', else 1/255 for uint8 images, else 1
  double offset = offset_from_files;
  Transform transform = Transform::none;
  DecodeOptions decode = {};   // of encoded images
  bool manifest_cache = true;  // many files: what their headers say is kept for the next start
  SampleView view = {};
  bool validation_part = false;  // view.holdout: the pixels kept for validation, not the others
  FaultOptions faults = {};
};

// One of several data sets that are joined: those of x along the channels, of y to one target.
struct ConcatenatedPart {
  std::string name;
  std::int64_t count = 0;  // channels, or values
  bool operator==(const ConcatenatedPart&) const = default;
};

struct ShardIndex {
  ShardList shards;
  std::int64_t rows = 0;
  Shape sample;  // logical, channels last: (H, W, C), (F), ...
  DType x_dtype = DType::u8;
  bool x_big_endian = false, y_big_endian = false;
  bool channels_first = false;    // how a sample lies in the file
  std::string layout_decided_by;  // "by the shape" and so on
  bool labels = true;             // y are class numbers (integers, one a row); false: float targets
  DType y_dtype = DType::i64;
  Shape target;              // of one row of y: () for labels
  std::int64_t classes = 0;  // 1 + largest label, from the shard's attribute or counted when absent; 0 for targets
  std::vector<std::string> class_names;  // by label, where the files hold them
  // Per stored channel, of transform(value * scale + offset); empty when the files hold none that fit.
  std::vector<double> mean, std;
  std::string statistics_rejected_reason;  // why the files' own are left out; empty: they are not
  double scale = 1, offset = 0;
  std::vector<double> channel_scale, channel_offset;  // per stored channel, of joined data sets; empty: as above
  Transform transform = Transform::none;
  DecodeOptions decode;  // of encoded images
  SampleView view;
  bool normalized_targets = true;  // of pairs: by mean and std, as the network's input is
  bool synthetic = false;
  std::string synthetic_spec;
  std::string x_name, y_name;
  // Joined data sets; empty: one. A sample is then the parts' rows one behind the other, each in the stored layout.
  std::vector<ConcatenatedPart> x_parts, y_parts;
  // Of an index that is one part of another: which, of how many, and the bytes from one whole sample to the next.
  struct Part {
    std::size_t number = 0, count = 1, sample_bytes = 0;
  } part;
  std::shared_ptr<LocalCopies> copies;  // shards that are read from elsewhere; null: none
  std::uint32_t manifest_crc = 0;       // of paths, sizes and layout: run.json and checkpoints hold it
  // Samples are JPEG or PNG files: sample and x_dtype are what they are decoded to.
  bool samples_are_views() const { return view.sample != SampleKind::rows; }
  bool encoded() const { return !shards.empty() && shards.front().x_encoded; }
  std::size_t sample_bytes() const { return std::size_t(sample.count()) * size_of(x_dtype); }
  // From one sample in memory to the next.
  std::size_t sample_pitch() const { return part.count > 1 ? part.sample_bytes : sample_bytes(); }
};

// "pread of contiguous data", "pread of chunks of 16x5x4 (shuffle, gzip), decoded by the loader's threads", or why only
// the HDF5 library can read a file: in words, of the first file that is not contiguous.
std::string describe_storage(const ShardIndex&);
bool readable_without_hdf5(const ShardIndex&);  // no file needs the HDF5 library

}  // namespace millrace
