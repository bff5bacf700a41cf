// ShardIndex: everything that a run needs to know about a data set. Rank 0 builds it from the files (data/scan) and
// broadcasts it. A plain value; copies are cheap.
//
// Every shard holds two HDF5 data sets with one row a sample: x (the samples) and y (labels or targets).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/transform.hpp"
#include "millrace/data/index/data_options.hpp"
#include "millrace/data/index/row_selection.hpp"
#include "millrace/data/index/shard.hpp"
#include "millrace/data/index/shard_list.hpp"
#include "millrace/device/tensor.hpp"

namespace millrace {

class LocalCopies;  // src/data/index/local_copies.hpp

// One of several HDF5 data sets that are concatenated: those of x along the channels, those of y to one target.
struct ConcatenatedPart {
  std::string name;
  std::int64_t count = 0;  // channels of x, or values of a row of y
  // Only of y; all data sets of x have one type.
  DType dtype = DType::f32;
  bool big_endian = false;
  bool labels = false;       // one integer a row. Its four bytes in a batch are an int32, those of others a float32
  std::int64_t classes = 0;  // 1 + the largest label of all files

  bool same_storage(const ConcatenatedPart& o) const {
    return name == o.name && count == o.count && dtype == o.dtype && big_endian == o.big_endian && labels == o.labels;
  }
};

// Whether they differ at most in the classes of labels.
bool same_parts(const std::vector<ConcatenatedPart>&, const std::vector<ConcatenatedPart>&);

// How the samples are stored, the same in all files.
struct SampleStorage {
  std::string name;  // of the HDF5 data set, or several names separated by commas
  DType dtype = DType::u8;
  bool big_endian = false;
  bool channels_first = false;
  std::string layout_decided_by;        // "by the shape", "as requested", ... (sample_layout.hpp)
  std::vector<ConcatenatedPart> parts;  // empty: one data set. Else the parts' rows follow each other in a sample
};

// How the labels or targets are stored, the same in all files.
struct TargetStorage {
  std::string name;
  DType dtype = DType::i64;
  bool big_endian = false;
  bool labels = true;                   // true: class numbers, integers. false: floating-point targets of a regression
  Shape target;                         // of one row: () for one label a row; the positions if each has a label
  std::int64_t ignore_label = -1;       // labels of this value do not count, like negative ones; -1: no such value
  std::vector<ConcatenatedPart> parts;  // empty: one data set. Else `labels` is false, and dtype that of the first

  bool label_maps() const { return labels && target.rank > 0; }  // a label at each position of a sample
  bool has_label_parts() const;                                  // some parts are labels
};

struct Classes {
  std::int64_t count = 0;          // 1 + the largest label, from the files' attribute or counted; 0 for targets
  std::vector<std::string> names;  // by label; empty where the files hold none
  std::vector<std::int64_t> label_counts = {};  // by label; empty: they were not counted (count_labels)
};

// How stored values become the network's input: (transform(stored * scale + offset) - mean) / std.
struct ValueConversion {
  double scale = 1, offset = 0;
  std::vector<double> channel_scale, channel_offset;  // concatenated data sets: by stored channel; empty: as above
  Transform transform = Transform::none;
  std::vector<double> mean, std;  // by stored channel; empty when the files hold none that can be used
  // Why the files' mean and std are not used. Empty: they are used, or the files hold none.
  std::string statistics_rejected_reason;
  bool normalize_targets = true;  // SampleKind::pair: mean and std apply to targets as well
  // data.normalize_targets: the loader gives (target - target_mean) / target_std. One for each value of a row of y, or
  // one for all of them; a column of labels has the std 0 and stays as it is. Empty: targets are not normalised.
  std::vector<double> target_mean, target_std;
};

// Which component of a concatenated data set an index describes (see component_index).
struct IndexComponent {
  std::size_t number = 0, count = 1;
  std::size_t sample_bytes = 0;  // distance between two whole samples in memory
};

struct ShardIndex {
  ShardList shards;
  std::int64_t rows = 0;                          // samples of all shards
  std::shared_ptr<const RowSelection> selection;  // the samples that are used (data.split); null: all of them
  Shape sample;                                   // logical, channels last: (H, W, C), (F), ...
  SampleStorage x;
  TargetStorage y;
  Classes classes;
  ValueConversion values;
  DecodeOptions decode;  // encoded images
  SampleView view;
  std::string synthetic_spec;  // the generated data set, "synthetic:..."; empty: data is read from the shards
  IndexComponent component;
  // Several inputs (combine_inputs()): an index of each. Then a sample is the bytes of all of them, so `sample` is
  // their number and x.dtype is u8; y and classes are those of the first one.
  std::vector<ShardIndex> inputs;
  std::shared_ptr<LocalCopies> copies;  // copies of shards near this node; null: none
  std::uint32_t manifest_crc = 0;       // of file names, sizes and layout; run.json and checkpoints hold it

  std::int64_t selected_rows() const { return selection ? selection->count() : rows; }
  // The id of the sample at a position of the selection, in the order of the files.
  std::int64_t selected(std::int64_t position) const { return selection ? selection->id(position) : position; }

  bool synthetic() const { return !synthetic_spec.empty(); }
  bool samples_are_views() const { return view.sample != SampleKind::rows; }
  // True: samples are JPEG or PNG files, and `sample` and x.dtype describe the decoded images.
  bool encoded() const { return !shards.empty() && shards.front().x_encoded; }
  std::size_t sample_bytes() const { return std::size_t(sample.count()) * size_of(x.dtype); }
  // Distance between two samples in memory, in bytes.
  std::size_t sample_pitch() const { return component.count > 1 ? component.sample_bytes : sample_bytes(); }
};

// In words, how the first file that is not contiguous is read: "pread of chunks of 16x5x4 (shuffle, gzip), decoded by
// the loader's threads", or why only the HDF5 library can read it. Else "pread of contiguous data".
std::string describe_storage(const ShardIndex&);
bool readable_without_hdf5(const ShardIndex&);  // no file needs the HDF5 library

}  // namespace millrace
